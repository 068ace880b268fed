"""Attention as a formula of PyTorch operators, for export to ONNX, which has no operator of heed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def is_exporting() -> bool:
    """Whether torch.onnx.export (either kind) is calling the model."""
    return (torch.jit.is_tracing() or torch.compiler.is_compiling()) and bool(torch.onnx.is_in_onnx_export())


def refuse_rest(**options: Any) -> None:
    """Raises ValueError for options that this formula does not support."""
    for name, value in options.items():
        if value is not None and (isinstance(value, Tensor) or value):
            raise ValueError(f"attention: {name} is given while torch.onnx.export exports the model, but heed cannot "
                             f"export it to ONNX; a model without {name} is expected (mask, bias, sinks, causal, "
                             f"window, softcap and scale are "
                             "exported)")


def _repeated(x: Tensor, heads: int) -> Tensor:
    """[..., Hkv, L, D] to [..., H, L, D]: repeats each key head for the query heads that share it."""
    if x.shape[-3] == heads:
        return x
    shape = (*x.shape[:-2], heads // x.shape[-3], *x.shape[-2:])
    return x.unsqueeze(-3).expand(shape).flatten(-4, -3)


def _allowed(queries: int, keys: int, mask: Tensor | None, causal: bool, window: Sequence[int], align: str,
             query_offset: int | None) -> Tensor | None:
    """The allowed keys of each row, bool, broadcastable to [..., Lq, Lk]; None if all are allowed."""
    offset = query_offset if query_offset is not None else keys - queries if align == "bottom-right" else 0
    away = torch.arange(keys)[None] - (torch.arange(queries) + offset)[:, None]
    left, right = window
    rules = [] if mask is None else [mask]
    rules += [away <= 0] if causal else []
    rules += [away >= -left] if left >= 0 else []
    rules += [away <= right] if right >= 0 else []
    allowed = rules[0] if rules else None
    for rule in rules[1:]:
        allowed = allowed & rule
    return allowed


def attend(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, bias: Tensor | None, sinks: Tensor | None,
           softcap: float, scale: float | None, **rules: Any) -> tuple[Tensor, Tensor, Tensor]:
    """(output, lse, weights). Rows that may attend to nothing have output 0 and lse -inf."""
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    if q.dim() > 2:
        k, v = _repeated(k, q.shape[-3]), _repeated(v, q.shape[-3])
    scores = (q.to(dtype) * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.to(dtype).transpose(-1, -2)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:  # -inf forbids a key, whatever its score
        bias = bias.to(dtype)
        scores = torch.where(bias == float("-inf"), float("-inf"), scores + bias)
    allowed = _allowed(q.shape[-2], k.shape[-2], mask, **rules)
    if allowed is not None:
        scores = torch.where(allowed, scores, float("-inf"))
    most = scores.amax(-1, keepdim=True)
    sink = None if sinks is None else sinks.to(dtype).reshape(-1, 1, 1)
    if sink is not None:
        most = torch.maximum(most, sink)
    most = torch.where(most == float("-inf"), 0.0, most)
    exponentials = torch.exp(scores - most)
    total = exponentials.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.where(sink == most, 1.0, torch.exp(sink - most))  # 1 for a sink of inf, too
    weights = exponentials / torch.where(total == 0, 1.0, total)
    return _sums(weights, scores != float("-inf"), v.to(dtype)).to(q.dtype), (torch.log(total) + most).squeeze(-1), weights


def _sums(weights: Tensor, seen: Tensor, v: Tensor) -> Tensor:
    """weights @ v, to which values that a row does not see add nothing, not even NaN. A row that sees a value that is not
    finite is NaN."""
    broken = ~torch.isfinite(v).all(-1, keepdim=True)
    output = weights @ torch.where(broken, 0.0, v)
    return torch.where(seen.to(v.dtype) @ broken.to(v.dtype) > 0, float("nan"), output)
