"""Linked reports for the kinds of layers: encoder, decoder and cross-attention."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from . import _heed
from ._counted import counted
from ._look import Report
from ._look_at import Tokens, data_of_weights

KINDS = ("encoder", "decoder", "cross")
Token = TypeVar("Token", str, int)


class Seen(NamedTuple):
    """A call of a layer."""

    kind: str
    layer: int  #: number within its kind
    shape: tuple[int, int, int, int]  #: (B, H, Lq, Lk)
    #: makes the report from (tokens, top_k, heads of all layers)
    report: Callable[[Tokens, int, int], _heed.ReportData]


class Texts(NamedTuple):
    """Texts and ids of rows and keys. A decoder may have its own tokens."""

    tokens: Sequence[str] = ()
    target_tokens: Sequence[str] = ()
    title: str = ""
    target_title: str = ""
    ids: Sequence[int] = ()
    target_ids: Sequence[int] = ()
    others: Mapping[int, Sequence[str]] = {}  #: tokens that are no text, by their number: a picture's patches

    def of(self, kind: str, rows: int, keys: int) -> tuple[Tokens, str]:
        """The tokens for this many rows and keys, and a title."""
        has_target = len(self.target_tokens) > 0 or len(self.target_ids) > 0
        source = has_target and kind.startswith("cross")
        if not has_target or kind.startswith("encoder"):
            texts, ids, title = self.tokens, self.ids, self.title
        else:
            texts, ids, title = self.target_tokens, self.target_ids, self.target_title
        if source:
            title = " ← ".join(x for x in (title, self.title) if x)
        among = rows if source else keys
        key_texts, key_ids = (self.tokens, self.ids) if source else (texts, ids)
        return Tokens(fitting(texts, rows, among) or list(self.others.get(rows, ())),
                      fitting(key_texts, keys, keys) or list(self.others.get(keys, ())),
                      fitting(ids, rows, among), fitting(key_ids, keys, keys)), title


    def check(self, seen: Sequence[Seen]) -> None:
        """Refuses tokens and ids that no layer has as many rows or keys as: of() would leave them out."""
        has_target = len(self.target_tokens) > 0 or len(self.target_ids) > 0
        own: dict[bool, set[int]] = {False: set(), True: set()}  # rows and keys, by whether they are those of the target
        for one in seen:
            own[has_target and one.kind != "encoder"].add(one.shape[2])
            own[has_target and one.kind == "decoder"].add(one.shape[3])
        for name, given, of_target in (("tokens", self.tokens, False), ("token_ids", self.ids, False),
                                       ("target_tokens", self.target_tokens, True), ("target_token_ids", self.target_ids, True)):
            if len(given) > 0 and own[of_target] and len(given) not in own[of_target]:
                raise ValueError(f"{name} has {counted(len(given), 'entry', 'entries')}; "
                                 f"{' or '.join(map(str, sorted(own[of_target])))}, one for each row or key, are expected")


def fitting(tokens: Sequence[Token], count: int, keys: int) -> list[Token]:
    """The tokens of these rows or keys. Fewer rows than keys are the last ones. [] if the model added positions of its
    own."""
    if len(tokens) == keys and count <= keys:
        return list(tokens[keys - count:])
    return list(tokens) if len(tokens) == count else []


def groups(seen: Sequence[Seen]) -> dict[str, list[Seen]]:
    """Groups calls by kind; kinds with several shapes are also split by rows and keys."""
    found: dict[str, list[Seen]] = {}
    for kind in sorted({one.kind for one in seen}, key=KINDS.index):
        shapes = list(dict.fromkeys((one.shape[0], *one.shape[2:]) for one in seen if one.kind == kind))
        for shape in shapes:
            name = kind if len(shapes) == 1 else f"{kind} {shape[1]} x {shape[2]}"
            found[name] = [one for one in seen if one.kind == kind and (one.shape[0], *one.shape[2:]) == shape]
    return found


def report_of_given(seen: Sequence[Seen], texts: Texts, top_k: int) -> Report:
    """report_of(), for tokens that were given for these calls."""
    texts.check(seen)
    return report_of(seen, texts, top_k)


def report_of(seen: Sequence[Seen], texts: Texts, top_k: int = 5) -> Report:
    """The report of the first kind; its kind() returns the others."""
    found = {}
    for kind, layers in groups(seen).items():
        tokens, title = texts.of(kind, *layers[0].shape[2:])
        heads = sum(one.shape[1] for one in layers)
        data = [(str(one.layer), one.report(tokens, top_k, heads)) for one in layers]
        found[kind] = Report(_heed.join_reports(data), title)
    first = next(iter(found.values()))
    for one in found.values():
        one._kinds = found if len(found) > 1 else {}
    return first


def report_of_maps(calls: Sequence[Any], texts: Texts, call: int, top_k: int) -> Report:
    """The report of calls (CallMap) with weights, using each layer's call number `call`."""
    counted: dict[int, int] = {}
    chosen = []
    for one in calls:
        if counted.setdefault(one.layer, 0) == call:
            chosen.append(one)
        counted[one.layer] += 1
    if not chosen:
        raise ValueError(f"call is {call}; 0 to {max(counted.values(), default=0) - 1} is expected")
    if any(one.weights is None or one.rows is not None for one in chosen):
        raise ValueError("report() needs all rows of the weights: capture(report=True) or capture(weights=True) is expected")
    return report_of_given([_seen(one) for one in chosen], texts, top_k)


def _seen(call: Any) -> Seen:
    kind, layer = (call.kind, call.kind_layer) if call.kind else ("decoder", call.layer)
    return Seen(kind, layer, tuple(call.weights.shape), functools.partial(_report, call.weights))


def _report(weights: Any, tokens: Tokens, top_k: int, heads: int) -> _heed.ReportData:
    return data_of_weights(weights, tokens, top_k, heads)
