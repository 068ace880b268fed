"""Differential attention (Ye et al. 2024, arXiv:2410.05258), made of two calls of attention()."""

import secrets
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ._counted import counted
from ._heed import AttentionResult, KvCache, attention, attention_backward
from ._places import float32_of


class DifferentialResult(NamedTuple):
    """The signed results of H heads, None where not asked for, and the results of their two softmaxes.

    A signed weight is p - lam p'; output, weights, received, received_last and map are sums of such weights. Entropy, top-k and all
    other results are in `first` and `second`, which have an lse in any case."""

    output: Any
    weights: Any
    received: Any
    received_last: Any
    map: Any
    first: AttentionResult[Any]
    second: AttentionResult[Any]


class DifferentialGradients(NamedTuple):
    """The gradients of a differential call, each like its array."""

    dq: Any
    dk: Any
    dv: Any
    dlam: Any


def _library(array: Any) -> Any:
    """The module with the functions of an array: of PyTorch, JAX or NumPy, whose 1.x has no __array_namespace__."""
    if hasattr(array, "new_tensor"):
        return sys.modules["torch"]
    return array.__array_namespace__() if hasattr(array, "__array_namespace__") else np


def _like(values: Any, array: Any) -> Any:
    """Values as an array of the dtype and library of another."""
    return values.to(array.dtype) if hasattr(values, "new_tensor") else _library(array).asarray(values, dtype=array.dtype)


def _wide(array: Any) -> Any:
    """An array in f64, for sums over many rows. JAX has no f64 by default."""
    return array.double() if hasattr(array, "new_tensor") else np.asarray(array).astype(np.float64)


def _array(name: str, value: Any, like: Any = None) -> Any:
    """An array as it is; other memory, a number or nested lists as an array of NumPy.

    Numbers and lists become f32, or f64 beside an array of f64."""
    if hasattr(value, "reshape"):
        return value
    if isinstance(value, memoryview):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    wide = str(getattr(like, "dtype", "")).endswith("float64")
    try:
        array = np.asarray(value if value is not None else "", np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is a {type(value).__name__}; an array or nested lists of numbers are expected") from None
    return array if wide else float32_of(name, array)


def _array_beside(name: str, value: Any, q: Any) -> Any:
    """The same, as an array of q's library."""
    value = _array(name, value, q)
    if getattr(value, "requires_grad", False):
        raise ValueError(f"{name} requires a gradient, which autograd does not compute here; {name}.detach() is expected")
    if hasattr(q, "new_tensor") != hasattr(value, "new_tensor"):
        return sys.modules["torch"].from_numpy(np.array(value)) if hasattr(q, "new_tensor") else value.numpy()
    return value


def _factors_like(q: Any, lam: Any) -> Any:
    """lam as an array of floats of q's library: a number stands for all heads."""
    if q.ndim != 4 or q.shape[1] < 2 or q.shape[1] % 2:
        raise ValueError(f"q has shape {tuple(q.shape)}; [B, 2 H, Lq, D] with two halves of each head is expected")
    lam = _array_beside("lam", lam, q)
    if lam.ndim == 0:
        lam = lam.reshape(1).repeat(q.shape[1] // 2)
    if hasattr(lam, "new_tensor") and not lam.is_complex():
        return lam if lam.is_floating_point() else lam.float()
    if getattr(lam.dtype, "kind", "c") not in "biufV":  # V: bfloat16 of ml_dtypes
        raise ValueError(f"lam has dtype {lam.dtype}; a floating dtype is expected")
    return lam.astype(np.float32) if lam.dtype.kind in "biu" else lam


def _refuse(options: dict[str, Any], names: tuple[str, ...], instead: str) -> None:
    """Refuses options that would mean another thing for each half."""
    for name in names:
        if options.get(name) is not None:
            raise ValueError(f"{name} is given for differential attention; {instead}")


def _factors(q: Any, lam: Any) -> tuple[Any, Any]:
    """The factors as [H or B, H, Lq, 1], and as [H, 1] where there is one for each head."""
    batch, heads, rows = q.shape[0], q.shape[1] // 2, q.shape[2]
    if tuple(lam.shape) not in ((heads,), (batch, heads, rows)):
        raise ValueError(f"lam has shape {tuple(lam.shape)}; {(heads,)} or {(batch, heads, rows)} is expected")
    return (lam[:, None, None], lam[:, None]) if lam.ndim == 1 else (lam[..., None], None)


def _keys(k: Any, v: Any, half: int) -> Any:
    """The keys of a half, which may have its own."""
    if v is None:
        return k  # attention() says what is missing
    for name, array in (("k", k), ("v", v)):
        if array.ndim != 4:
            raise ValueError(f"{name} has shape {tuple(array.shape)}; 4 axes, [B, H, Lk, D], are expected")
    if k.shape[1] not in (v.shape[1], 2 * v.shape[1]):
        raise ValueError(f"k has {counted(k.shape[1], 'head')}; {v.shape[1]} as v, or {2 * v.shape[1]}, are expected")
    return k if k.shape[1] == v.shape[1] else k[:, half::2]


def _beside_zeros(q: Any, half: int) -> Any:
    """Queries [q, 0] or [0, q], for keys that hold those of both halves."""
    zeros = _library(q).zeros_like(q)
    return _library(q).concatenate((zeros, q) if half else (q, zeros), -1)


def _heads_of(halves: Any) -> Any:
    """[B, 2 H, L, D] of two halves [B, H, L, D]: heads 2h and 2h + 1 are those of head h."""
    both = _library(halves[0]).stack(halves, 2)
    return both.reshape(both.shape[0], 2 * both.shape[1], *both.shape[3:])


def differential_attention(q: Any, k: Any, v: Any = None, *, lam: Any, need: Any = None, **options: Any) -> DifferentialResult:
    """Two softmaxes over the same values, of which the second is subtracted with a learned factor:
    out_i = sum_j (p_ij - lam p'_ij) v_j.

    q [B, 2 H, Lq, D]: heads 2h and 2h + 1 are the halves of head h. k [B, 2 Hkv, Lk, D] has halves likewise, or both read the same
    [B, Hkv, Lk, D]; v [B, Hkv, Lk, Dv]. Or k is a KvCache with keys of D channels for both, or of 2 D: the first half's, then the
    second's. lam: a number, [H], or [B, H, Lq]; then received, received_last and map are refused, because they sum over rows.

    The options are attention()'s but for `out`, and hold for both halves: dropout drops the same pairs in both. Sinks and alibi
    have an entry for each of the H heads."""
    _refuse(options, ("out",), "its output is a new array")
    q = _array("q", q)
    k = k if isinstance(k, KvCache) else _array("k", k, q)
    v = v if v is None else _array("v", v, q)
    lam = _factors_like(q, lam)
    if options.get("dropout") and options.get("seed") is None:
        options["seed"] = secrets.randbits(63)
    factors, of_heads = _factors(q, lam)
    if need is not None and not isinstance(need, Iterable):
        raise TypeError(f"need is {need!r}; a name or several is expected")
    names: Any = [need] if isinstance(need, str) else [] if need is None else list(need)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"need is {name!r}; the name of a result is expected")
    sums = [name for name in ("received", "received_last", "map") if name in names or options.get(name)]
    if of_heads is None and sums:
        raise ValueError(f"{sums[0]} is asked for with lam of shape {tuple(lam.shape)}; ({q.shape[1] // 2},) is expected")
    if isinstance(k, KvCache) and k.key_dim == 2 * q.shape[-1]:
        options = {**options, "scale": q.shape[-1] ** -0.5 if options.get("scale") is None else options["scale"]}

    needed: Any = [*names, "lse"]

    def softmax(half: int) -> AttentionResult[Any]:
        queries = q[:, half::2]
        if not isinstance(k, KvCache):
            return attention(queries, _keys(k, v, half), v, need=needed, **options)
        if k.key_dim == 2 * q.shape[-1]:
            queries = _beside_zeros(queries, half)
        return attention(queries, k, need=needed, **options)

    first, second = softmax(0), softmax(1)

    def signed(name: str, by: Any) -> Any:
        minuend, subtrahend = getattr(first, name), getattr(second, name)
        return None if minuend is None else _like(minuend - by * subtrahend, minuend)

    return DifferentialResult(signed("output", factors), signed("weights", factors), signed("received", of_heads),
                              signed("received_last", of_heads), signed("map", None if of_heads is None else of_heads[..., None]),
                              first, second)


def differential_attention_backward(q: Any, k: Any, v: Any, lam: Any, result: DifferentialResult, grad_output: Any,
                                    **options: Any) -> DifferentialGradients:
    """The gradients of differential_attention by q, k, v and lam. `result` and the options are those of the forward call."""
    _refuse(options, ("gradients", "grad_lse", "grad_weights"), "dq, dk, dv and dlam by grad_output are expected")
    if not isinstance(result, DifferentialResult):
        raise TypeError(f"result is a {type(result).__name__}; the DifferentialResult of the forward call is expected")
    q = _array("q", q)
    k, v, grad_output = _array("k", k, q), _array("v", v, q), _array_beside("grad_output", grad_output, q)
    lam = _factors_like(q, lam)
    factors, of_heads = _factors(q, lam)
    by_second = _like(-factors * grad_output, grad_output)
    first, second = (attention_backward(q[:, half::2], _keys(k, v, half), v, softmax.output, softmax.lse, by_half, **options)
                     for half, softmax, by_half in ((0, result.first, grad_output), (1, result.second, by_second)))
    dk = first.dk + second.dk if k.shape[1] == v.shape[1] else _heads_of((first.dk, second.dk))
    dlam = -(_wide(grad_output) * _wide(result.second.output)).sum(-1)
    dlam = dlam if of_heads is None else dlam.sum(-1).sum(0)
    return DifferentialGradients(_heads_of((first.dq, second.dq)), dk, first.dv + second.dv, _like(dlam, lam))
