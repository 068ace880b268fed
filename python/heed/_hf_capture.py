"""capture: the results to collect of a call, the layers, heads and rows to collect them from, and their destination."""

from __future__ import annotations

import contextlib
import contextvars
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _heed
from ._hf_cache import CachedRows, of_held, row_mask_of_held
from ._hf_report import Names, seen
from ._hf_row_mask import RowMask
from ._kinds import Seen, Texts, report_of_given, report_of_maps
from ._look import Report
from ._places import whole
from ._run import CallMap, Run, consecutive
from .torch._ops import untracked

ROWS = (*_heed.ROW_RESULTS, "weights", "top_k_index", "top_k_weight")  # [B, H, Lq, …]
COLUMNS = ("weights", "received", "received_last")  # […, Lk]

Rows = int | slice | Iterable[int]


class Call(NamedTuple):
    """An attention call with heed's options."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None  #: bool
    row_mask: RowMask | None
    bias: Tensor | None
    sinks: Tensor | None
    causal: bool
    offset: int
    softcap: float
    scale: float | None

    def attend(self, options: dict[str, Any]) -> Any:
        """Runs heed.attention on this call."""
        if not isinstance(self.key, CachedRows):
            return _heed.attention(self.query, self.key, self.value, **options)
        layer = self.key.current()
        return _heed.attention(self.query, layer.kv, sequences=layer.sequences, **options)

    def held(self) -> Call:
        """The call with masks restricted to the stored rows, for a cache with evicted rows."""
        places = self.key.layer.places() if isinstance(self.key, CachedRows) else None
        if places is None:
            return self
        return self._replace(mask=of_held(self.mask, places), bias=of_held(self.bias, places),
                             row_mask=row_mask_of_held(self.row_mask, places))

    def spread(self, name: str, result: Tensor) -> Tensor:
        """Expands a result to one column per position, for a cache with evicted rows."""
        return self.key.spread(result) if name in COLUMNS and isinstance(self.key, CachedRows) else result

    def options(self) -> dict[str, Any]:
        """The keyword arguments for heed.attention."""
        return {"mask": self.mask, "sparse_mask": None if self.row_mask is None else self.row_mask.sparse(),
                "bias": untracked(self.bias), "sinks": untracked(self.sinks), "causal": self.causal,
                "query_offset": self.offset, "softcap": self.softcap, "scale": self.scale,
                "threads": torch.get_num_threads()}

    def untracked(self) -> Call:
        return self._replace(query=untracked(self.query), key=untracked(self.key), value=untracked(self.value))

    def of_heads(self, heads: Sequence[int]) -> Call:
        """The call for these heads. If a cache holds the keys, all heads remain."""
        if isinstance(self.key, CachedRows):
            return self
        shared = self.query.shape[1] // self.key.shape[1]
        kv = [head // shared for head in heads]
        once = sorted(set(kv))
        if [head for head in once for _ in range(len(kv) // len(once))] == kv:  # heed repeats shared key heads itself
            kv = once
        return self._replace(query=_pick(self.query, heads), key=_pick(self.key, kv), value=_pick(self.value, kv),
                             mask=_pick(self.mask, heads), bias=_pick(self.bias, heads),
                             sinks=None if self.sinks is None else self.sinks.flatten()[list(heads)])

    def of_rows(self, first: int, last: int) -> Call:
        def cut(x: Tensor | None) -> Tensor | None:
            return x if x is None or x.shape[-2] == 1 else x[..., first:last, :]

        return self._replace(query=self.query[:, :, first:last], mask=cut(self.mask), bias=cut(self.bias),
                             row_mask=None if self.row_mask is None else self.row_mask.rows(first, last),
                             offset=self.offset + first)


def _pick(x: Any, heads: Sequence[int]) -> Any:
    """Selects heads, as a view if they are consecutive; broadcast axes stay."""
    if x is None or x.dim() < 3 or x.shape[-3] == 1:
        return x
    first, last = heads[0], heads[-1] + 1
    if list(heads) == list(range(first, last)):
        return x[..., first:last, :, :]
    return x[..., list(heads), :, :]


def _whole_numbers(name: str, given: Any) -> list[int]:
    try:
        numbers = [operator.index(given)] if not isinstance(given, Iterable) else [operator.index(x) for x in given]
    except TypeError:
        raise TypeError(f"{name} is {given!r}; whole numbers are expected") from None
    return sorted(set(numbers))


def _at_least_0(name: str, given: Any) -> list[int] | None:
    if given is None:
        return None
    numbers = _whole_numbers(name, given)
    if not numbers or numbers[0] < 0:
        raise ValueError(f"{name} is {given!r}; whole numbers of 0 or more, at least one, are expected")
    return numbers


class Asked:
    """The arguments of capture."""

    def __init__(self, *, layers: Any, heads: Any, rows: Rows | None, tiles: Iterable[Sequence[int]], top_k: int,
                 received_last: int, map: tuple[int, int] | None, **needs: bool) -> None:
        self.layers, self.heads = _at_least_0("layers", layers), _at_least_0("heads", heads)
        self.rows = rows if rows is None or isinstance(rows, slice) else _whole_numbers("rows", rows)
        try:
            self.tiles = [tuple(operator.index(x) for x in tile) for tile in tiles]
        except TypeError:
            raise TypeError(f"tiles is {tiles!r}; a list of (row_begin, row_end, key_begin, key_end) is expected") from None
        for tile in self.tiles:
            if len(tile) != 4 or not (0 <= tile[0] < tile[1] and 0 <= tile[2] < tile[3]):
                raise ValueError(f"tiles has {tile}; (row_begin, row_end, key_begin, key_end), with no empty range, is "
                                 f"expected")
        self.names = tuple(name for name, wanted in needs.items() if wanted)
        self.top_k = top_k
        self.more: dict[str, Any] = {"top_k": top_k} if top_k else {}
        self.more |= {"received_last": received_last} if received_last else {}
        self.more |= {"map": map} if map is not None else {}
        if (received_last or map is not None) and (self.rows is not None and (
                not isinstance(self.rows, slice) or self.rows.step not in (None, 1))):
            raise ValueError(f"rows is {rows!r}; a slice of step 1 is expected with received_last or map")
        self._check()

    def _check(self) -> None:
        """Lets the library reject unknown or wrong arguments before a model runs."""
        one = torch.zeros(1, 1, 1, 1)
        _heed.attention(one, one, one, **self.request())

    def request(self) -> dict[str, Any]:
        return {"need": ["lse", *self.names], **self.more}

    def settings(self) -> dict[str, Any]:
        """The arguments, for the index file."""
        limits = {"layers": self.layers, "heads": self.heads, "tiles": self.tiles,
                  "rows": repr(self.rows) if isinstance(self.rows, slice) else self.rows}
        return dict.fromkeys(self.names, True) | self.more | {name: x for name, x in limits.items() if x}

    def is_limited(self) -> bool:
        return self.heads is not None or self.rows is not None

    def results(self, result: Any, call: Call) -> dict[str, Any]:
        names = ["lse", *self.names, *(name for name in ("received_last", "map") if name in self.more)]
        names += ["top_k_index", "top_k_weight"] if self.top_k else []
        return {name: call.spread(name, getattr(result, name)) for name in names}

    def which(self, call: Call, module: Any) -> tuple[Call, list[int] | None, list[int] | None]:
        """(the call for the requested heads, these heads, the requested rows); None stands for all."""
        queries, count = call.query.shape[2], call.query.shape[1]
        heads, rows = self.heads, None
        if heads is not None:
            if heads[-1] >= count:
                raise ValueError(f"heads has {heads[-1]}; numbers below {count}, the heads of {type(module).__name__}, "
                                 "are expected")
            call = call.of_heads(heads)
        if isinstance(self.rows, slice):
            rows = sorted(range(queries)[self.rows])
        elif self.rows is not None:
            rows = sorted({row + queries if row < 0 else row for row in self.rows if -queries <= row < queries})
        return call, heads, rows

    def gather(self, call: Call, module: Any) -> dict[str, Any]:
        """The requested results by name, for a call whose output is already computed.

        The values do not matter here, so one column of them is enough."""
        call = call.untracked()
        if not isinstance(call.key, CachedRows):
            call = call._replace(value=call.value[..., :1])
        call, heads, rows = self.which(call, module)
        parts = [call] if rows is None else [call.of_rows(*run) for run in consecutive(rows) or [(0, 0)]]
        found = _joined([self.results(x.attend(self.options(x) | self.request()), x) for x in parts])
        found |= self.cut_tiles(call, found["lse"] if rows is None else None)
        if isinstance(call.key, CachedRows) and heads is not None:
            found = {name: [tile[:, heads] for tile in x] if name == "tiles" else x[:, heads]
                     for name, x in found.items()}
        return found | {"heads": heads, "rows": rows}

    def options(self, call: Call) -> dict[str, Any]:
        options = call.options()
        # `masked_mass` compares with causal attention. A causal row mask therefore sets `causal`, too.
        if "masked_mass" in self.names and call.row_mask is not None and call.row_mask.is_causal():
            options["causal"] = True
        return options

    def cut_tiles(self, call: Call, lse: Tensor | None) -> dict[str, Any]:
        """The weights of `tiles`, for a call that was restricted to the requested heads."""
        tiles = []
        queries, keys = call.query.shape[2], call.key.shape[2]
        for row_begin, row_end, key_begin, key_end in self.tiles:
            first, last = min(row_begin, queries), min(row_end, queries)
            part = call.of_rows(first, last)
            if isinstance(call.key, CachedRows):
                result = part.attend(part.options() | {"need": "weights"})
                tiles.append(part.spread("weights", result.weights)[..., key_begin:key_end])
                continue
            known = lse[:, :, first:last] if lse is not None else _heed.attention(
                part.query, part.key, part.value, need="lse", **part.options()).lse
            tiles.append(_heed.attention_tile(part.query, part.key, known, (0, last - first),
                                              (min(key_begin, keys), min(key_end, keys)), -1, -1, part.options()))
        return {"tiles": tiles} if self.tiles else {}


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Joins the results of several runs of rows."""
    if len(parts) == 1:
        return parts[0]
    return {name: torch.cat([part[name] for part in parts], 2) if name in ROWS else sum(part[name] for part in parts)
            for name in parts[0]}


class Maps(list[CallMap]):
    """The captured calls in order. A forward pass has one call per layer, generate() one per layer and step."""

    def __init__(self, names: tuple[str, ...], top_k: int, more: Sequence[str] = ()) -> None:
        super().__init__()
        self.names = names
        self.top_k = top_k
        self._more = more
        self._seen: list[list[Seen]] = []  #: for reports: the calls of each layer

    def report(self, tokens: Sequence[str] = (), target_tokens: Sequence[str] = (), *, token_ids: Sequence[int] = (),
               target_token_ids: Sequence[int] = (), title: str = "", call: int = 0, top_k: int = 5) -> Report:
        """A report as from heed.look, for a capture with report=True or weights=True.

        It shows each layer's call number `call` (from 0). Encoder, decoder and cross-attention layers have separate
        reports: report.kind("cross").

        tokens: names of rows and keys (see pieces()); target_tokens: the decoder's, if an encoder has others.
        token_ids, target_token_ids: the model's ids of the same tokens, which identify repeated tokens.
        """
        number = whole("call", call)
        texts = Texts(tokens, target_tokens, title, title, token_ids, target_token_ids)
        if not self._seen:
            return report_of_maps(self, texts, number, top_k)
        most = max(map(len, self._seen))
        if not 0 <= number < most:
            raise ValueError(f"call is {number}; 0 to {most - 1} is expected")
        return report_of_given([calls[number] for calls in self._seen if number < len(calls)], texts, top_k)

    def __repr__(self) -> str:
        held = ["lse", *self.names, *([f"top_k={self.top_k}"] if self.top_k else []), *self._more]
        return f"<Maps: calls {len(self)}, layers {len({call.layer for call in self})}, each with {', '.join(held)}>"

    def of_layer(self, layer: int) -> list[CallMap]:
        """The calls of one layer, in order."""
        return [call for call in self if call.layer == layer]


class Collector:
    """Numbers the layers and stores the results, in memory or in a folder."""

    def __init__(self, asked: Asked, to: str | os.PathLike[str] | None, report: bool = False) -> None:
        self.asked = asked
        self.names = Names()
        self._report = report
        more = [f"{name}={value}" for name, value in asked.more.items() if name != "top_k"]
        more += [f"tiles={len(asked.tiles)}"] if asked.tiles else []
        self.calls: Maps | Run = (Maps(asked.names, asked.top_k, more) if to is None else
                                  Run.begin(to, asked.settings()))
        self._order: dict[Any, tuple[int, str, int]] = {}  #: layer, kind, number within its kind
        self._seen: dict[Any, list[Seen]] = {}

    def number(self, module: Any, call: Call) -> int | None:
        """The layer's number; None if the layer was not requested."""
        if module not in self._order:
            kind = self.names.kind(module, call)
            self._order[module] = len(self._order), kind, sum(one[1] == kind for one in self._order.values())
        layer = self._order[module][0]
        return layer if self.asked.layers is None or layer in self.asked.layers else None

    def check_layers(self) -> None:
        """Refuses a layer that is none of those that ran."""
        count = len(self._order)
        if count and self.asked.layers is not None and self.asked.layers[-1] >= count:
            raise ValueError(f"layers has {self.asked.layers[-1]}; numbers from 0 to {count - 1}, of the layers that ran, are "
                             f"expected")

    def add(self, module: Any, call: Call, found: dict[str, Any]) -> None:
        layer, kind, kind_layer = self._order[module]
        found = found | {"kind": kind, "kind_layer": kind_layer}
        if self._report and isinstance(self.calls, Maps):
            if module not in self._seen:
                self._seen[module] = []
                self.calls._seen.append(self._seen[module])
            self._seen[module].append(seen(kind, kind_layer, call))
        if isinstance(self.calls, Run):
            tiles = [x.numpy() for x in found["tiles"]] if "tiles" in found else None
            arrays = {name: x.numpy() if isinstance(x, Tensor) else x for name, x in found.items()} | {"tiles": tiles}
            self.calls.write(CallMap(module=type(module).__name__, layer=layer, **arrays))
        else:
            self.calls.append(CallMap(module=module, layer=layer, **found))


_capturing: contextvars.ContextVar[Collector | None] = contextvars.ContextVar("heed_capturing", default=None)


def current() -> Collector | None:
    return _capturing.get()


@contextlib.contextmanager
def capture(
    *,
    top_k: int = 0,
    entropy: bool = False,
    received: bool = False,
    weights: bool = False,
    max_score: bool = False,
    distance: bool = False,
    masked_mass: bool = False,
    received_last: int = 0,
    map: tuple[int, int] | None = None,
    tiles: Iterable[Sequence[int]] = (),
    layers: int | Iterable[int] | None = None,
    heads: int | Iterable[int] | None = None,
    rows: Rows | None = None,
    report: bool = False,
    to: str | os.PathLike[str] | None = None,
) -> Iterator[Any]:
    """Collects the requested results from every attention layer that runs inside the `with` block.

    The model must use attn_implementation="heed"; it needs no flag. Summaries grow linearly with the length;
    weights=True collects whole matrices. Functions compiled by torch.compile run uncompiled meanwhile. Raises
    RuntimeError at the end if nothing was collected, and ValueError if layers has one that did not run.

    tiles: tiles (row_begin, row_end, key_begin, key_end) of the weights.
    layers, heads, rows: restrict the capture; None means all. Layers are numbered in the order of their first call.
    Rows are counted within each call; negative ones from its end. Other heads and rows cost no more than without
    capture.
    report: keeps queries and keys, so that maps.report(tokens=…) shows all heads of these layers as heed.look does.
    to: a new folder that receives each call as a file once it is done. The yielded object reads them back, as heed.open
    does.
    """
    asked = Asked(layers=layers, heads=heads, rows=rows, tiles=tiles, top_k=top_k, received_last=received_last, map=map,
                  entropy=entropy, received=received, weights=weights, max_score=max_score, distance=distance,
                  masked_mass=masked_mass)
    if report and to is not None:
        raise ValueError("report is True together with to, which stores no queries and keys; weights=True is expected, "
                         "from which heed.open(to).report() makes the report")
    collector = Collector(asked, to, report)
    token = _capturing.set(collector)
    watched = collector.names.watch()
    try:
        with torch.compiler.set_stance("force_eager"):
            yield collector.calls
    finally:
        watched.remove()
        collector.names.restore()
        _capturing.reset(token)
        if isinstance(collector.calls, Run):
            collector.calls.end()
    collector.check_layers()
    if not collector.calls:
        raise RuntimeError('capture() collected nothing: expected a model with attn_implementation="heed" to run '
                           "within it, in the same thread")
