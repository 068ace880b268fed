"""Layers by their kind, encoder, decoder and cross-attention, as reports that know each other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import _heed
from ._look import Report

KINDS = ("encoder", "decoder", "cross")
Words = tuple[list[str], list[str]]  # of rows and keys


class Seen(NamedTuple):
    """A call of a layer."""

    kind: str
    layer: int  #: among those of its kind
    shape: tuple[int, int, int, int]  #: (B, H, Lq, Lk)
    #: (words, top_k, heads of all layers) to its report
    report: Callable[[Words, int, int], _heed.ReportData]


class Texts(NamedTuple):
    """What rows and keys are. A decoder has words of its own where they are given."""

    tokens: Sequence[str] = ()
    target_tokens: Sequence[str] = ()
    title: str = ""
    target_title: str = ""

    def of(self, kind: str) -> tuple[Sequence[str], Sequence[str], str]:
        """(of the rows, of the keys, title)"""
        if not self.target_tokens or kind.startswith("encoder"):
            return self.tokens, self.tokens, self.title
        if kind.startswith("cross"):
            return self.target_tokens, self.tokens, " ← ".join(x for x in (self.target_title, self.title) if x)
        return self.target_tokens, self.target_tokens, self.target_title


def fitting(tokens: Sequence[str], count: int, keys: int) -> list[str]:
    """Of so many rows or keys; fewer rows than keys are the last ones. None where a model added places of its own."""
    if len(tokens) == keys and count <= keys:
        return list(tokens[keys - count:])
    return list(tokens) if len(tokens) == count else []


def groups(seen: Sequence[Seen]) -> dict[str, list[Seen]]:
    """By kind; where those of a kind have several shapes, by rows and keys too."""
    found: dict[str, list[Seen]] = {}
    for kind in sorted({one.kind for one in seen}, key=KINDS.index):
        shapes = list(dict.fromkeys((one.shape[0], *one.shape[2:]) for one in seen if one.kind == kind))
        for shape in shapes:
            name = kind if len(shapes) == 1 else f"{kind} {shape[1]} x {shape[2]}"
            found[name] = [one for one in seen if one.kind == kind and (one.shape[0], *one.shape[2:]) == shape]
    return found


def report_of(seen: Sequence[Seen], texts: Texts, top_k: int = 5) -> Report:
    """The report of the first kind, whose kind() gives the others."""
    found = {}
    for kind, layers in groups(seen).items():
        tokens, key_tokens, title = texts.of(kind)
        _, _, rows, keys = layers[0].shape
        words = fitting(tokens, rows, keys if tokens is key_tokens else rows), fitting(key_tokens, keys, keys)
        heads = sum(one.shape[1] for one in layers)
        data = [(str(one.layer), one.report(words, top_k, heads)) for one in layers]
        found[kind] = Report(_heed.join_reports(data), title)
    first = next(iter(found.values()))
    for one in found.values():
        one._kinds = found if len(found) > 1 else {}
    return first


def report_of_maps(calls: Sequence[Any], texts: Texts, call: int, top_k: int) -> Report:
    """Of calls (CallMap) with weights: of each layer the one of this number."""
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
    return report_of([_seen(one) for one in chosen], texts, top_k)


def _seen(call: Any) -> Seen:
    kind, layer = (call.kind, call.kind_layer) if call.kind else ("decoder", call.layer)
    return Seen(kind, layer, tuple(call.weights.shape), functools.partial(_report, call.weights))


def _report(weights: Any, words: Words, top_k: int, heads: int) -> _heed.ReportData:
    from ._look_at import data_of_weights

    return data_of_weights(weights, words, top_k, heads)
