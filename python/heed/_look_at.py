"""heed.look and heed.open: reports of calls, of weights, of layers, and of files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _heed
from ._counted import counted
from ._look import Floats, Report
from ._places import checked_text, float32_of, is_masked, path_text, token_ids_of, whole
from ._run import Run, is_run, open_run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._heed import AttentionOptions
    from ._pretrained import Model

MOST_CELLS = 4_000_000  # most weights per head that a report stores


def _of_layers(name: str, given: Any) -> tuple[Any, list[tuple[str, int]]]:
    """An array [B, H, …], and (name, heads) of each layer if a list of them was given."""
    if not isinstance(given, (list, tuple)) or not given or not hasattr(given[0], "shape"):
        return array_of(name, given), []
    if any(map(is_masked, given)):  # joining layers would drop the mask
        raise ValueError(f"{name} has a masked array with masked elements; plain arrays are expected, as filled() returns")
    parts = [np.asarray(detached(part)) for part in given]
    for layer, part in enumerate(parts):
        if part.ndim < 3 or (part.shape[:-3], part.shape[-2:]) != (parts[0].shape[:-3], parts[0].shape[-2:]):
            raise ValueError(f"{name} has shape {list(part.shape)} in layer {layer}; {list(parts[0].shape)}, as in "
                             f"layer 0 but for the heads, is expected, with at least three axes")
    return np.concatenate(parts, -3), [(str(layer), part.shape[-3]) for layer, part in enumerate(parts)]


def array_of(name: str, x: Any) -> Any:
    """An array as it is; nested lists of numbers as f32."""
    if not isinstance(x, (list, tuple)):
        return detached(x)
    try:
        numbers = np.asarray(x, np.float64)
    except (TypeError, ValueError):
        raise ValueError("a list is given whose parts are no numbers or differ in length; lists of numbers of equal "
                         "lengths are expected") from None
    return float32_of(name, numbers)


def detached(x: Any) -> Any:
    """A tensor without its gradient, with negation applied to its memory."""
    if getattr(x, "is_nested", False):
        raise ValueError("a nested tensor is given; a plain tensor, or a list of them for layers, is expected")
    x = x.detach() if getattr(x, "requires_grad", False) else x
    return x.resolve_neg() if hasattr(x, "resolve_neg") else x


class Tokens(NamedTuple):
    """Texts of rows and keys, and the ids that identify repeated tokens. Each may be empty."""

    texts: list[str]
    key_texts: list[str]
    ids: list[int]
    key_ids: list[int]


class GivenTokens(NamedTuple):
    """The arguments of look() about tokens."""

    tokens: Any
    key_tokens: Any
    token_ids: Any
    key_token_ids: Any

    def checked(self, rows: int, keys: int) -> Tokens:
        return Tokens(words_of("tokens", self.tokens, rows, "query"), words_of("key_tokens", self.key_tokens, keys, "key"),
                      ids_of("token_ids", self.token_ids, rows, "query"), ids_of("key_token_ids", self.key_token_ids, keys, "key"))


def words_of(name: str, given: Any, count: int, of: str) -> list[str]:
    """Checks and returns the token texts: one per row or key, or none."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is {given!r}; a list of texts, one for each {of}, is expected")
    words = list(given)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"{name} has {word!r}; texts are expected")
        checked_text(f"one of {name}", word)
    if words and len(words) != count:
        raise ValueError(f"{name} has {counted(len(words), 'entry', 'entries')}; {count}, one for each {of}, are expected")
    return words


def ids_of(name: str, given: Any, count: int, of: str) -> list[int]:
    """Checks and returns the token ids: one per row or key, or none."""
    ids = token_ids_of(name, given)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise TypeError(f"{name} is {given!r}; a list of whole numbers, one for each {of}, is expected")
    if ids.size and ids.size != count:
        raise ValueError(f"{name} has {counted(ids.size, 'entry', 'entries')}; {count}, one for each {of}, are expected")
    return [int(one) for one in ids]


def look(
    q: Any = None,
    k: Any = None,
    v: Any = None,
    *,
    weights: Any = None,
    allowed: Any = None,
    tokens: Sequence[str] = (),
    key_tokens: Sequence[str] = (),
    token_ids: Sequence[int] | Floats = (),
    key_token_ids: Sequence[int] | Floats = (),
    top_k: int = 5,
    title: str = "",
    cost: bool = False,
    model: str | os.PathLike[str] | Model | None = None,
    **options: Unpack[AttentionOptions],
) -> Report:
    """Runs attention(q, k, v, **options) and reports what attends to what, at any length.

    q, k and v may be lists: the layers of a model.

    model: reads q, which is then a text or token ids, as model.look() does: heed.look("to be or not", model="induction").

    weights: replaces q, k and v by given softmax weights, [B, H, Lq, Lk], or a list of layers, from any framework.
    `allowed` (bool) says which keys each row may see. By default these are all keys, or those up to the diagonal if
    every weight beyond it is exactly 0.
    tokens: one per query, or none; key_tokens: one per key, if they differ from the queries'.
    token_ids, key_token_ids: the vocabulary ids of the same tokens. Scores about repeated tokens (such as induction)
    compare ids; without ids they compare tokens.
    title: of the page; by default made from the tokens.
    cost: also measures a plain call, and what each part of the report adds to it.
    """
    top_k, title = whole("top_k", top_k), checked_text("title", "" if title is None else title)
    if model is not None or isinstance(q, str):
        others = {"k": k, "v": v, "weights": weights, "allowed": allowed, **options}
        return _look_with_model(q, model, top_k, title, [name for name, given in others.items() if given is not None])
    given_tokens = GivenTokens(tokens, key_tokens, token_ids, key_token_ids)
    if weights is not None:
        for name, given in {"q": q, "k": k, "v": v, **options}.items():
            if given is not None:
                raise TypeError(f"{name} is given together with weights, which are already computed; one of the two is "
                                f"expected")
        return _look_at_weights(weights, allowed, given_tokens, top_k, title)
    for name, given in (("q", q), ("k", k), ("v", v)):
        if given is None:
            raise TypeError(f"{name} is missing; q, k and v, or weights, are expected")
    if allowed is not None:
        raise TypeError("allowed is given without weights; mask is expected")
    return _look_at_calls(q, k, v, given_tokens, top_k, title, cost, options)


def _look_with_model(text: Any, model: str | os.PathLike[str] | Model | None, top_k: int, title: str, others: list[str]) -> Report:
    from ._explain import model_of

    if model is None:
        raise TypeError("q is a text, but model is missing; a model to read it, such as model='induction', is expected")
    if text is None:
        raise TypeError("q is missing; the text that the model reads is expected")
    if others:
        raise TypeError(f"{others[0]} is given together with model, which computes it; heed.load_model(…).look() has the "
                        "options of a model")
    report = model_of(model).look(text, top_k=top_k)
    report.title = title or report.title
    return report


def _look_at_weights(weights: Any, allowed: Any, tokens: GivenTokens, top_k: int, title: str) -> Report:
    array, layers = _of_layers("weights", weights)
    if not hasattr(array, "shape") or len(array.shape) < 2:
        raise TypeError(f"weights is of type {type(weights).__name__}; an array [B, H, Lq, Lk], or a list of them, is expected")
    rows, keys = array.shape[-2:]
    heads = array.shape[-3] if len(array.shape) > 2 else 1
    cells, bins = limits(heads, rows * keys)
    return Report(_heed.report_of_weights(array, detached(allowed), tokens.checked(rows, keys), layers, top_k, cells, bins), title)


def data_of_weights(weights: Any, tokens: Tokens, top_k: int, heads: int) -> _heed.ReportData:
    """Data of a layer's weights [B, H, Lq, Lk]. `heads` counts the heads of the whole model."""
    return _heed.report_of_weights(weights, None, tokens, [], top_k, *limits(heads, weights.shape[-2] * weights.shape[-1]))


def limits(heads: int, cells: int) -> tuple[int, int]:
    """Limits per head: weights to store, and bins per side of its map. All heads together take at most a gigabyte."""
    bins = 1024
    while bins > 64 and heads * bins * bins > 1 << 26:
        bins //= 2
    return (MOST_CELLS if heads * cells <= 1 << 28 else 0), bins


def _look_at_calls(q: Any, k: Any, v: Any, tokens: GivenTokens, top_k: int, title: str, cost: bool, options: Any) -> Report:
    given = [x if isinstance(x, (list, tuple)) and x and hasattr(x[0], "shape") else None for x in (q, k, v)]
    listed = [x for x in given if x is not None]
    if not listed:
        return Report(data_of_call(q, k, v, tokens, top_k, cost, options), title)
    if len(listed) < 3 or len({len(x) for x in listed}) > 1:
        raise ValueError("q, k and v are not lists of the same number of layers; three such lists, or three arrays, "
                         "are expected")
    heads = sum(x.shape[-3] if len(x.shape) > 2 else 1 for x in listed[0])
    parts = [(str(layer), data_of_call(one[0], one[1], one[2], tokens, top_k, cost, options, heads))
             for layer, one in enumerate(zip(*listed))]
    return Report(_heed.join_reports(parts), title)


def data_of_call(q: Any, k: Any, v: Any, tokens: GivenTokens | Tokens, top_k: int, cost: bool, options: Any,
                 heads: int = 1) -> _heed.ReportData:
    """Data of one call. `heads` counts the heads of the whole model."""
    q, k, v = array_of("q", q), array_of("k", k), array_of("v", v)
    rows, keys = (x.shape[-2] if len(getattr(x, "shape", ())) > 1 else None for x in (q, k))
    if rows is None or keys is None:
        return _heed.make_report(q, k, v, Tokens([], [], [], []), top_k, cost, 0, 0, {})  # raises the error
    known = GivenTokens(*tokens).checked(rows, keys)
    cells, bins = limits(heads, rows * keys)
    plain = {name: detached(option) for name, option in options.items()}
    return _heed.make_report(q, k, v, known, top_k, cost, cells, bins, plain)


def open(path: str | os.PathLike[str]) -> Report | Run:
    """Opens a file from heed look --save, heed explain --save or Report.save, as a report like heed.look's.

    For a folder from heed.transformers.capture(to=path), returns its calls, each read on access.

    A file contains neither values nor output, and the map only as it was saved.
    """
    path = path_text("path", path)
    if is_run(path):
        return open_run(path)
    return Report(_heed.open_report(path))
