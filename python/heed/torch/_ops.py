"""The operators: heed's forward and backward pass as PyTorch sees them (autograd, meta tensors, torch.compile)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import _heed

ROWS = ("lse", "max_score", "entropy", "distance")  # of heed.attention's results those [..., Lq]


def _options(
    mask: Tensor | None,
    bias: Tensor | None,
    sinks: Tensor | None,
    causal: bool,
    window: Sequence[int],
    softcap: float,
    scale: float | None,
    query_offset: int | None,
    dropout: float,
    seed: Tensor | None,
) -> dict[str, Any]:
    """As heed.attention takes them."""
    return {
        "mask": mask,
        "bias": untracked(bias),
        "sinks": untracked(sinks),
        "causal": causal,
        "window": tuple(window),
        "softcap": softcap,
        "scale": scale,
        "query_offset": query_offset,
        "dropout": dropout,
        "seed": seed_number(seed),
        "threads": torch.get_num_threads(),
    }


@torch.library.custom_op("heed::attention", mutates_args=())
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor],
    bias: Optional[Tensor],
    sinks: Optional[Tensor],
    causal: bool,
    window: Sequence[int],
    softcap: float,
    scale: Optional[float],
    query_offset: Optional[int],
    dropout: float,
    seed: Optional[Tensor],
    need: str,
    top_k: int,
) -> list[Tensor]:
    """[output, lse, then what `need` names (with commas between), then the indices and weights of the top k]."""
    names = need.split(",") if need else []
    options = _options(mask, bias, sinks, causal, window, softcap, scale, query_offset, dropout, seed)
    result = _heed.attention(q.detach(), k.detach(), v.detach(), need=["lse", *names], top_k=top_k,  # type: ignore
                             **options)
    found = [result.output, result.lse, *(getattr(result, name) for name in names)]
    return [*found, result.top_k_index, result.top_k_weight] if top_k else found


@_attention.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor],
    bias: Optional[Tensor],
    sinks: Optional[Tensor],
    causal: bool,
    window: Sequence[int],
    softcap: float,
    scale: Optional[float],
    query_offset: Optional[int],
    dropout: float,
    seed: Optional[Tensor],
    need: str,
    top_k: int,
) -> list[Tensor]:
    rows, keys = q.shape[:-1], k.shape[-2]
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32

    def one(name: str) -> Tensor:
        if name in ROWS:
            return q.new_empty(rows, dtype=dtype)
        return q.new_empty((*rows[:-1], keys) if name == "received" else (*rows, keys), dtype=dtype)

    found = [q.new_empty((*rows, v.shape[-1])), one("lse"), *(one(name) for name in need.split(",") if name)]
    if top_k:
        found += [q.new_empty((*rows, top_k), dtype=torch.int64), q.new_empty((*rows, top_k), dtype=dtype)]
    return found


@torch.library.custom_op("heed::attention_backward", mutates_args=())
def _attention_backward(
    grad: Tensor,
    grad_lse: Optional[Tensor],
    grad_weights: Optional[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    output: Tensor,
    lse: Tensor,
    mask: Optional[Tensor],
    bias: Optional[Tensor],
    sinks: Optional[Tensor],
    causal: bool,
    window: Sequence[int],
    softcap: float,
    scale: Optional[float],
    query_offset: Optional[int],
    dropout: float,
    seed: Optional[Tensor],
    needed: Sequence[bool],
) -> list[Tensor]:
    """The gradients of those of (q, k, v, bias, sinks) that are `needed`, in this order."""
    options = _options(mask, bias, sinks, causal, window, softcap, scale, query_offset, dropout, seed)
    inputs = (q, k, v, bias, sinks)
    into = [torch.empty(x.shape, dtype=x.dtype) if x is not None and wanted else None
            for x, wanted in zip(inputs, needed)]
    _heed.attention_backward_into(q.detach(), k.detach(), v.detach(), output.detach(), lse.detach(), grad.detach(),
                             None if grad_lse is None else grad_lse.detach(),
                             None if grad_weights is None else grad_weights.detach(),
                             into[0], into[1], into[2], into[3], into[4], options)
    return [gradient for gradient in into if gradient is not None]


@_attention_backward.register_fake
def _(
    grad: Tensor,
    grad_lse: Optional[Tensor],
    grad_weights: Optional[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    output: Tensor,
    lse: Tensor,
    mask: Optional[Tensor],
    bias: Optional[Tensor],
    sinks: Optional[Tensor],
    causal: bool,
    window: Sequence[int],
    softcap: float,
    scale: Optional[float],
    query_offset: Optional[int],
    dropout: float,
    seed: Optional[Tensor],
    needed: Sequence[bool],
) -> list[Tensor]:
    return [x.new_empty(x.shape) for x, wanted in zip((q, k, v, bias, sinks), needed) if x is not None and wanted]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    q, k, v, mask, bias, sinks, *shape, seed, need, _ = inputs
    ctx.save_for_backward(q, k, v, output[0], output[1], mask, bias, sinks, seed)
    ctx.set_materialize_grads(False)
    ctx.options = shape  # causal, window, softcap, scale, query_offset, dropout
    ctx.weights = need.split(",").index("weights") + 2 if "weights" in need.split(",") else None


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    q, k, v, output, lse, mask, bias, sinks, seed = ctx.saved_tensors
    wanted = [ctx.needs_input_grad[place] for place in (0, 1, 2, 4, 5)]  # q, k, v, bias, sinks
    found: list[Tensor | None] = [None] * 5
    grad, grad_lse = gradients[0], gradients[1]
    grad_weights = None if ctx.weights is None else gradients[ctx.weights]
    if any(wanted) and not (grad is None and grad_lse is None and grad_weights is None):
        if grad is None:
            grad = output.new_zeros(()).expand(output.shape)
        computed = iter(torch.ops.heed.attention_backward(
            grad, grad_lse, grad_weights, q, k, v, output, lse, mask, bias, sinks, *ctx.options, seed, wanted))
        found = [next(computed) if one else None for one in wanted]
    return (*found[:3], None, *found[3:], *(None,) * 9)


_attention.register_autograd(_backward, setup_context=_setup_context)


class Attended(NamedTuple):
    """What heed.torch.attention computed; None for what was not asked for. Gradients flow through output, lse and
    weights."""

    output: Tensor
    lse: Tensor
    max_score: Tensor | None = None
    entropy: Tensor | None = None
    distance: Tensor | None = None
    received: Tensor | None = None
    weights: Tensor | None = None
    scores: Tensor | None = None
    top_k_index: Tensor | None = None
    top_k_weight: Tensor | None = None


def draw_seed(dropout: float) -> Tensor | None:
    """From PyTorch's generator, so that torch.manual_seed decides."""
    return torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64) if dropout > 0 else None


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    scale: float | None = None,
    query_offset: int | None = None,
    dropout: float = 0.0,
    need: Sequence[str] = (),
    top_k: int = 0,
) -> Attended:
    """heed.attention with gradients, for tensors [B, H, L, D] (or [H, L, D], [L, D]); options and results as there."""
    names = [name for name in need if name != "lse"]
    found = torch.ops.heed.attention(q, k, v, mask, bias, sinks, causal, window, softcap, scale, query_offset, dropout,
                                     draw_seed(dropout), ",".join(names), top_k)
    fields = dict(zip(["output", "lse", *names, "top_k_index", "top_k_weight"], found))
    return Attended(**fields)


def untracked(tensor: Tensor | None) -> Tensor | None:
    """For the extension, which takes no tensor that requires a gradient."""
    return tensor.detach() if tensor is not None and tensor.requires_grad else tensor


def seed_number(seed: Tensor | None) -> int | None:
    """As heed.attention takes it: not negative."""
    return None if seed is None else int(seed) & 0xFFFFFFFFFFFFFFFF


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether PyTorch has nothing to see here: no gradient to track, no graph to trace, no transform at work."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() != 0:
        return False
    tracked = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in (Tensor, torch.nn.Parameter) or not tensor.is_cpu:
            return False
        if tracked and tensor.requires_grad:
            return False
    return torch._C._functorch.peek_interpreter_stack() is None
