"""The operators: heed's forward and backward pass in PyTorch (autograd, meta tensors, torch.compile)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .. import _heed
from .._torch_tensors import check, check_given, real, refuse_transforms, truth, whole
from . import _formula
from ._held import as_handle, held, kept, score_handle

if TYPE_CHECKING:
    from .._heed import Align, ScoreMod, SparseMask

DIFFERENTIABLE = ("output", "lse", "weights")  # the results whose gradients the backward pass accepts

NEED = ("weights", "scores", "lse", "max_score", "entropy", "distance", "masked_mass", "received")

INPUTS = "Tensor q, Tensor k, Tensor v"
# A call's options as the operators take them: tensors, then other arguments.
TENSORS = ("Tensor? mask, Tensor? bias, Tensor? sinks, Tensor? decay, Tensor? alibi, Tensor? kv_lengths, "
           "Tensor? query_segments, Tensor? key_segments, Tensor? seed, Tensor? sparse_mask, Tensor? score_mod")  # two handles last (_held.py)
SETTINGS = "bool causal, SymInt[] window, float softcap, float? scale, str align, SymInt? query_offset, float dropout"


def _names(schema: str) -> list[str]:
    return [argument.split()[-1] for argument in schema.split(",")]


def _options(values: Sequence[Any]) -> dict[str, Any]:
    """The keyword arguments for heed.attention, from the arguments of TENSORS and SETTINGS."""
    options = dict(zip(_names(TENSORS) + _names(SETTINGS), values, strict=True))
    segments = options.pop("query_segments"), options.pop("key_segments")
    options["cu_seqlens"] = None if segments[0] is None else segments
    for name in ("bias", "sinks", "decay", "alibi"):
        options[name] = untracked(options[name])
    options["window"] = tuple(options["window"])
    options["seed"] = seed_number(options["seed"])
    for name in ("sparse_mask", "score_mod"):
        if options[name] is not None:
            value = held(name, options[name])
            options[name] = value() if callable(value) else value  # a callable makes the object on demand
    options["threads"] = torch.get_num_threads()
    return options


@torch.library.custom_op("heed::attention", mutates_args=(),
                         schema=f"({INPUTS}, {TENSORS}, {SETTINGS}, str need, SymInt top_k) -> Tensor[]")
def _attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> list[Tensor]:
    """[output, lse, the results in `need` (separated by commas), the indices and weights of the top k]."""
    *options, need, top_k = rest
    names = need.split(",") if need else []
    result = _heed.attention(q.detach(), k.detach(), v.detach(), need=["lse", *names], top_k=top_k, **_options(options))
    return [getattr(result, name) for name in _results(need, top_k)]


def _results(need: str, top_k: int) -> list[str]:
    """The names of the operator's results."""
    names = ["output", "lse", *(need.split(",") if need else [])]
    return [*names, "top_k_index", "top_k_weight"] if top_k else names


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> list[Tensor]:
    *_, need, top_k = rest
    rows, keys = q.shape[:-1], k.shape[-2]
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32

    def one(name: str) -> Tensor:
        if name == "output":
            return q.new_empty((*rows, v.shape[-1]))
        if name == "top_k_index":
            return q.new_empty((*rows, top_k), dtype=torch.int64)
        if name == "top_k_weight":
            return q.new_empty((*rows, top_k), dtype=dtype)
        if name in _heed.ROW_RESULTS:
            return q.new_empty(rows, dtype=dtype)
        return q.new_empty((*rows[:-1], keys) if name == "received" else (*rows, keys), dtype=dtype)

    return [one(name) for name in _results(need, top_k)]


@torch.library.custom_op("heed::attention_backward", mutates_args=(), schema=(
    f"(Tensor grad, Tensor? grad_lse, Tensor? grad_weights, {INPUTS}, Tensor output, Tensor lse, {TENSORS}, {SETTINGS}, "
    "bool[] needed) -> Tensor[]"))
def _attention_backward(grad: Tensor, grad_lse: Tensor | None, grad_weights: Tensor | None, q: Tensor, k: Tensor,
                        v: Tensor, output: Tensor, lse: Tensor, *rest: Any) -> list[Tensor]:
    """The gradients of those of (q, k, v, bias, sinks, decay) that are `needed`, in this order."""
    *values, needed = rest
    options = _options(values)
    inputs = (q, k, v, options["bias"], options["sinks"], options["decay"])
    into = [torch.empty(x.shape, dtype=x.dtype, device="cpu") if x is not None and wanted else None
            for x, wanted in zip(inputs, needed)]
    _heed.attention_backward_into(q.detach(), k.detach(), v.detach(), output.detach(), lse.detach(), grad.detach(),
                                  None if grad_lse is None else grad_lse.detach(),
                                  None if grad_weights is None else grad_weights.detach(),
                                  into[0], into[1], into[2], into[3], into[4], into[5], options)
    return [gradient for gradient in into if gradient is not None]


@_attention_backward.register_fake
def _(grad: Tensor, grad_lse: Tensor | None, grad_weights: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
      output: Tensor, lse: Tensor, mask: Tensor | None, bias: Tensor | None, sinks: Tensor | None,
      decay: Tensor | None, *rest: Any) -> list[Tensor]:
    return [x.new_empty(x.shape) for x, wanted in zip((q, k, v, bias, sinks, decay), rest[-1])
            if x is not None and wanted]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    *options, need, top_k = inputs
    count = 3 + len(_names(TENSORS))
    names = _results(need, top_k)
    ctx.save_for_backward(output[0], output[1], *options[:count])
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(x for name, x in zip(names, output) if name not in DIFFERENTIABLE))
    ctx.settings = options[count:]
    ctx.kept = kept(options[count - 2]), kept(options[count - 1])  # the owners of sparse_mask and score_mod
    ctx.weights = names.index("weights") if "weights" in names else None


def _is_batched(tensor: Tensor | None) -> bool:
    return tensor is not None and bool(torch._C._functorch.is_legacy_batchedtensor(tensor))


def _one_by_one(ctx: Any, gradients: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The backward pass with is_grads_batched=True: one pass per entry of the axis that PyTorch's vmap hides."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    if level != 1:
        raise RuntimeError(f"gradients of heed's attention are batched {level} times; once is expected")
    shown = [torch._remove_batch_dim(x, level, 0, 0) if _is_batched(x) else None for x in gradients]
    count = next(len(x) for x in shown if x is not None)
    entries = [[given] * count if x is None else x.unbind() for x, given in zip(shown, gradients)]
    found = [_backward(ctx, list(one)) for one in zip(*entries)]
    return tuple(None if x[0] is None else torch._add_batch_dim(torch.stack(x), 0, level) for x in zip(*found))


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    if any(_is_batched(x) for x in gradients):
        return _one_by_one(ctx, gradients)
    output, lse, q, k, v, *tensors = ctx.saved_tensors
    wanted = [ctx.needs_input_grad[place] for place in (0, 1, 2, 4, 5, 6)]  # q, k, v, bias, sinks, decay
    found: list[Tensor | None] = [None] * 6
    grad, grad_lse = gradients[0], gradients[1]
    grad_weights = None if ctx.weights is None else gradients[ctx.weights]
    if any(wanted) and not (grad is None and grad_lse is None and grad_weights is None):
        if grad is None:
            grad = output.new_zeros(()).expand(output.shape)
        computed = iter(torch.ops.heed.attention_backward(
            grad, grad_lse, grad_weights, q, k, v, output, lse, *tensors, *ctx.settings, wanted))
        found = [next(computed) if one else None for one in wanted]
    return (*found[:3], None, *found[3:], *(None,) * (len(ctx.needs_input_grad) - 7))


def _no_second(ctx: Any, gradients: list[Tensor | None]) -> Any:
    raise RuntimeError("a second derivative of heed's attention is requested, which it does not compute: expected "
                       "create_graph=False, or attention written with PyTorch's operators")


_attention_backward.register_autograd(_no_second)


_attention.register_autograd(_backward, setup_context=_setup_context)


def in_short(results: Any) -> str:
    """The repr of a named tuple of tensors, with their shapes."""
    named = zip(results._fields, results)
    return f"{type(results).__name__}({', '.join(f'{name} {list(x.shape)}' for name, x in named if x is not None)})"


class Attended(NamedTuple):
    """The results of heed.torch.attention; results that were not requested are None.

    Gradients flow through output, lse and weights. The other results have requires_grad False."""

    output: Tensor
    lse: Tensor
    max_score: Tensor | None = None
    entropy: Tensor | None = None
    distance: Tensor | None = None
    masked_mass: Tensor | None = None
    received: Tensor | None = None
    weights: Tensor | None = None
    scores: Tensor | None = None
    top_k_index: Tensor | None = None
    top_k_weight: Tensor | None = None

    def __repr__(self) -> str:
        return in_short(self)


def autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Casts inputs as torch.autocast does for scaled_dot_product_attention, if enabled: all but f64."""
    if not torch.is_autocast_enabled("cpu"):
        return q, k, v
    dtype = torch.get_autocast_dtype("cpu")
    q, k, v = (x.to(dtype) if x.is_cpu and x.is_floating_point() and x.dtype != torch.float64 else x for x in (q, k, v))
    return q, k, v


def draw_seed(dropout: float) -> Tensor | None:
    """A seed from PyTorch's generator, controlled by torch.manual_seed."""
    return torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64, device="cpu") if dropout > 0 else None


def _segments(given: Any, device: Any) -> tuple[Tensor | None, Tensor | None]:
    """cu_seqlens of queries and of keys, from one for both or a pair."""
    if given is None:
        return None, None
    pair = isinstance(given, (tuple, list)) and len(given) == 2 and not isinstance(given[0], int)
    query, key = given if pair else (given, given)
    return whole_numbers("cu_seqlens", query, device), whole_numbers("cu_seqlens", key, device)


def whole_numbers(name: str, given: Any, device: Any) -> Tensor | None:
    """Lists and arrays of whole numbers as a tensor. Tensors are returned unchanged."""
    if given is None or isinstance(given, Tensor):
        return given
    try:
        found = torch.tensor(given, device=device)
        whole = found.numel() == 0 or not (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    except (TypeError, ValueError, RuntimeError):
        whole = False
    if not whole:
        raise ValueError(f"{name} has numbers that are not whole, or too large; whole numbers are expected")
    return found.to(torch.int64)


def slopes(name: str, given: Any, device: Any) -> Tensor | None:
    """Lists and arrays of slopes as a tensor. Tensors are returned unchanged."""
    if given is None or isinstance(given, Tensor):
        return given
    try:
        return torch.tensor(given, dtype=torch.float64, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} is {given!r}; numbers are expected") from None


def refuse_gradient(function: str, name: str, given: Any) -> None:
    """Refuses slopes whose gradient PyTorch would record."""
    if isinstance(given, Tensor) and given.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{function}: {name} requires a gradient, which heed does not compute; {name}.detach() is expected")


def window_sides(name: str, given: Any) -> list[int]:
    """Both sides; None is open."""
    if given is None:
        return [-1, -1]
    if not isinstance(given, (Sequence, Tensor, np.ndarray)) or isinstance(given, str) or len(given) != 2:
        raise TypeError(f"{name} is {given!r}; (left, right), each a whole number, or None or -1 for an open side, is "
                        "expected")
    return [-1 if side is None else whole(f"{name}[{place}]", side) for place, side in enumerate(given)]


def _needed(given: Any) -> list[str]:
    """The names in need, each once."""
    if given is not None and not isinstance(given, Iterable):
        raise TypeError(f"need is {given!r}; a name or several is expected")
    names = list(dict.fromkeys([given] if isinstance(given, str) else given or ()))
    for name in names:
        if name not in NEED:
            raise (ValueError if isinstance(name, str) else TypeError)(
                f"need is {name!r}; {' or '.join(map(repr, NEED))} is expected")
    return names


def _alignment(given: Any) -> Align:
    names: tuple[Align, Align] = "top-left", "bottom-right"
    for name in names:
        if given is None or given == name:
            return name
    raise (ValueError if isinstance(given, str) else TypeError)(
        f"align is {given!r}; 'top-left' or 'bottom-right' is expected")


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | SparseMask | None = None,
    sparse_mask: SparseMask | Tensor | None = None,
    score_mod: ScoreMod | None = None,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
    decay: Tensor | None = None,
    alibi: Tensor | Sequence[float] | None = None,
    kv_lengths: Tensor | Sequence[int] | None = None,
    cu_seqlens: Tensor | Sequence[int] | tuple[Tensor, Tensor] | None = None,
    causal: bool | None = False,
    window: Sequence[int | None] | None = (-1, -1),
    softcap: float | None = 0.0,
    scale: float | None = None,
    align: Align | None = "top-left",
    query_offset: int | None = None,
    dropout: float | None = 0.0,
    need: str | Sequence[str] | None = (),
    top_k: int | None = 0,
) -> Attended:
    """heed.attention with gradients, for tensors [B, H, L, D], [H, L, D] or [L, D].

    Options and results are those of heed.attention. sparse_mask is a heed.SparseMask, or a tensor from mask_tensor;
    mask may be a heed.SparseMask, too. There are gradients of q, k, v, bias, sinks and decay, through output, lse and
    weights. Under torch.autocast, q, k and v are cast as for torch.nn.functional.scaled_dot_product_attention.
    """
    refuse_gradient("attention", "alibi", alibi)
    if isinstance(mask, _heed.SparseMask):
        if sparse_mask is not None:
            raise ValueError("attention: mask is a SparseMask and sparse_mask is given; one of the two is expected (masks "
                             "combine with &)")
        mask, sparse_mask = None, mask
    check_given("attention", q=q, k=k, v=v)
    check("attention", q=q, mask=mask, bias=bias, sinks=sinks, decay=decay)
    alibi, kv_lengths = slopes("alibi", alibi, q.device), whole_numbers("kv_lengths", kv_lengths, q.device)
    segments = _segments(cu_seqlens, q.device)
    check("attention", q=q, alibi=alibi, kv_lengths=kv_lengths, cu_seqlens=segments[0], cu_seqlens_of_keys=segments[1])
    refuse_transforms(q, k, v, bias, sinks, decay)
    q, k, v = autocast(q, k, v)
    if not torch.jit.is_tracing() and q.shape[-1] == 0 == k.shape[-1]:  # all scores are 0
        q, k, scale = functional.pad(q, (0, 1)), functional.pad(k, (0, 1)), 1.0
    names = [name for name in _needed(need) if name != "lse"]
    causal, align = False if causal is None else truth("causal", causal), _alignment(align)
    window = window_sides("window", window)
    softcap, dropout = (0.0 if value is None else real(name, value)
                        for name, value in (("softcap", softcap), ("dropout", dropout)))
    scale = None if scale is None else real("scale", scale)
    query_offset = None if query_offset is None else whole("query_offset", query_offset)
    top_k = 0 if top_k is None else whole("top_k", top_k)
    if _formula.is_exporting():
        _formula.refuse_rest(decay=decay, alibi=alibi, kv_lengths=kv_lengths, cu_seqlens=segments[0],
                             sparse_mask=sparse_mask, score_mod=score_mod, dropout=dropout, top_k=top_k,
                             **{f"need={name!r}": True for name in names if name != "weights"})
        output, lse, weights = _formula.attend(
            q, k, v, mask=mask, bias=bias, sinks=sinks, softcap=softcap, scale=scale, causal=causal, window=window,
            align=align, query_offset=query_offset)
        return Attended(output, lse, weights=weights if names else None)
    drops_all = dropout == 1
    dropout = 0.0 if drops_all else dropout
    found = torch.ops.heed.attention(
        q, k, v, mask, bias, sinks, decay, alibi, kv_lengths, *segments, draw_seed(dropout),
        as_handle("attention", sparse_mask), score_handle(score_mod), causal, window, softcap, scale, align, query_offset,
        dropout, ",".join(names), top_k)
    if drops_all:
        found[0] = found[0].masked_fill(torch.ones((), dtype=torch.bool, device=found[0].device), 0.0)
    return Attended(**dict(zip(_results(",".join(names), top_k), found)))


def untracked(tensor: Tensor | None) -> Tensor | None:
    """Detaches a tensor that requires a gradient, because the extension refuses those."""
    return tensor.detach() if tensor is not None and tensor.requires_grad else tensor


def seed_number(seed: Tensor | None) -> int | None:
    """The seed as the non-negative number that heed.attention takes."""
    return None if seed is None else int(seed) & 0xFFFFFFFFFFFFFFFF
