"""heed.look and heed.open: reports of calls, of weights, of layers, and of files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _heed
from ._look import Report
from ._places import whole
from ._run import Run, is_run, open_run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._heed import AttentionOptions

MOST_CELLS = 4_000_000  # of a head's weights that a report holds


def _of_layers(name: str, given: Any) -> tuple[Any, list[tuple[str, int]]]:
    """An array [B, H, …], and (name, heads) of each layer where a list of them was given."""
    if not isinstance(given, (list, tuple)) or not given or not hasattr(given[0], "shape"):
        return detached(given), []
    parts = [np.asarray(detached(part)) for part in given]
    for layer, part in enumerate(parts):
        if part.ndim < 3 or (part.shape[:-3], part.shape[-2:]) != (parts[0].shape[:-3], parts[0].shape[-2:]):
            raise ValueError(f"{name} has shape {list(part.shape)} in layer {layer}; {list(parts[0].shape)} but for the heads "
                             "is expected, as layer 0 has, with three axes at least")
    return np.concatenate(parts, -3), [(str(layer), part.shape[-3]) for layer, part in enumerate(parts)]


def detached(x: Any) -> Any:
    """A tensor without its gradient: a report has none."""
    return x.detach() if getattr(x, "requires_grad", False) else x


def words_of(name: str, given: Any, count: int, of: str) -> list[str]:
    """Tokens as a list of texts, as many as there are rows or keys; or none."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is {given!r}; a list of texts, one for each {of}, is expected")
    words = list(given)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"{name} has {word!r}; texts are expected")
    if words and len(words) != count:
        raise ValueError(f"{name} has {len(words)} of them; {count}, one for each {of}, is expected")
    return words


def look(
    q: Any = None,
    k: Any = None,
    v: Any = None,
    *,
    weights: Any = None,
    allowed: Any = None,
    tokens: Sequence[str] = (),
    key_tokens: Sequence[str] = (),
    top_k: int = 5,
    title: str = "",
    cost: bool = False,
    **options: Unpack[AttentionOptions],
) -> Report:
    """Runs attention(q, k, v, **options) and gathers what there is to see, at any length. Lists of q, k and v are the
    layers of a model.

    weights: in their place, what a softmax gave, [B, H, Lq, Lk], or a list of layers, from any framework; `allowed` (bool)
    are the keys that each row may see: where it is left out all, or, if every weight beyond the diagonal is exactly 0,
    those up to it.
    tokens: one for each query, or none; key_tokens: one for each key, where they are not the queries'.
    title: of the page; else it is made of the tokens.
    cost: also how long a plain call takes, and what each part of the report added.
    """
    top_k = whole("top_k", top_k)
    if weights is not None:
        for name, given in {"q": q, "k": k, "v": v, **options}.items():
            if given is not None:
                raise TypeError(f"{name} is given beside weights, which were computed; either is expected")
        return _look_at_weights(weights, allowed, tokens, key_tokens, top_k, title)
    for name, given in (("q", q), ("k", k), ("v", v)):
        if given is None:
            raise TypeError(f"{name} is missing; q, k and v, or weights, are expected")
    if allowed is not None:
        raise TypeError("allowed is given without weights; mask is expected")
    return _look_at_calls(q, k, v, tokens, key_tokens, top_k, title, cost, options)


def _look_at_weights(weights: Any, allowed: Any, tokens: Any, key_tokens: Any, top_k: int, title: str) -> Report:
    array, layers = _of_layers("weights", weights)
    if not hasattr(array, "shape") or len(array.shape) < 2:
        raise TypeError(f"weights is of type {type(weights).__name__}; an array [B, H, Lq, Lk], or a list of them, is expected")
    rows, keys = array.shape[-2:]
    words, key_words = words_of("tokens", tokens, rows, "query"), words_of("key_tokens", key_tokens, keys, "key")
    heads = array.shape[-3] if len(array.shape) > 2 else 1
    cells, bins = limits(heads, rows * keys)
    return Report(_heed.report_of_weights(array, detached(allowed), words, key_words, layers, top_k, cells, bins), title)


def data_of_weights(weights: Any, words: tuple[list[str], list[str]], top_k: int, heads: int) -> _heed.ReportData:
    """Of a layer [B, H, Lq, Lk] of a model with so many heads in all."""
    return _heed.report_of_weights(weights, None, *words, [], top_k, *limits(heads, weights.shape[-2] * weights.shape[-1]))


def limits(heads: int, cells: int) -> tuple[int, int]:
    """Cells of the weights that each of so many heads may keep, and bins a side of its map: a gigabyte at most for all."""
    bins = 1024
    while bins > 64 and heads * bins * bins > 1 << 26:
        bins //= 2
    return (MOST_CELLS if heads * cells <= 1 << 28 else 0), bins


def _look_at_calls(q: Any, k: Any, v: Any, tokens: Any, key_tokens: Any, top_k: int, title: str, cost: bool,
                   options: Any) -> Report:
    given = [x if isinstance(x, (list, tuple)) and x and hasattr(x[0], "shape") else None for x in (q, k, v)]
    listed = [x for x in given if x is not None]
    if not listed:
        return Report(data_of_call(q, k, v, tokens, key_tokens, top_k, cost, options), title)
    if len(listed) < 3 or len({len(x) for x in listed}) > 1:
        raise ValueError("q, k and v are not lists of as many layers each; three lists, or three arrays, are expected")
    heads = sum(x.shape[-3] if len(x.shape) > 2 else 1 for x in listed[0])
    parts = [(str(layer), data_of_call(one[0], one[1], one[2], tokens, key_tokens, top_k, cost, options, heads))
             for layer, one in enumerate(zip(*listed))]
    return Report(_heed.join_reports(parts), title)


def data_of_call(q: Any, k: Any, v: Any, tokens: Any, key_tokens: Any, top_k: int, cost: bool, options: Any,
                   heads: int = 1) -> _heed.ReportData:
    """Of one call, of a model with so many heads in all."""
    q, k, v = detached(q), detached(k), detached(v)
    rows, keys = (x.shape[-2] if len(getattr(x, "shape", ())) > 1 else 0 for x in (q, k))
    words = words_of("tokens", tokens, rows, "query") if rows else list(tokens)
    key_words = words_of("key_tokens", key_tokens, keys, "key") if keys else list(key_tokens)
    cells, bins = limits(heads, rows * keys)
    plain = {name: detached(option) for name, option in options.items()}
    return _heed.make_report(q, k, v, words, key_words, top_k, cost, cells, bins, plain)


def open(path: str | os.PathLike[str]) -> Report | Run:
    """Reads what heed look --save, heed explain --save or Report.save wrote, as heed.look would have given it; of a folder
    that heed.transformers.capture(to=path) wrote, its calls, each when it is asked for.

    Of heed look the file holds neither values nor output, and the map as it was saved.
    """
    if is_run(path):
        return open_run(path)
    return Report(_heed.open_report(os.fspath(path)))
