"""scaled_dot_product_attention with the arguments of torch.nn.functional's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _heed
from .._counted import counted
from .._torch_tensors import check, check_given, is_nested, is_plain, real
from ._names import errors_name
from ._ops import attention, autocast, draw_seed, seed_number, untracked
from ._packed import nested_attention
from ._summary import SUMMARY, Summary, summarised


def _refuse(message: str) -> None:
    raise ValueError("scaled_dot_product_attention: " + message)


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool, grouped: bool) -> None:
    check_given("scaled_dot_product_attention", query=query, key=key, value=value)
    check("scaled_dot_product_attention", query=query, attn_mask=attn_mask)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() < 2:
            _refuse(f"{name} has shape {list(tensor.shape)}; at least 2 axes, (..., L, E), are expected")
        if grouped and tensor.dim() < 3:
            _refuse(f"{name} has {tensor.dim()} axes; with enable_gqa at least 3, (..., H, L, E), are expected")
    if attn_mask is None:
        return
    if is_causal:
        _refuse("attn_mask is given and is_causal is True; one of the two is expected")
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        _refuse(f"attn_mask has dtype {attn_mask.dtype}; bool (True where a key may be attended) or a floating dtype "
                f"(added to the scores) is expected")


def _repeat_heads(tensor: Tensor, heads: int, name: str) -> Tensor:
    if tensor.shape[-3] == 0 or heads % tensor.shape[-3] != 0:
        _refuse(f"{name} has {counted(tensor.shape[-3], 'head')} and query {heads}; with enable_gqa a divisor is expected")
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3)


def _broadcast(query: Tensor, key: Tensor, value: Tensor, kept: int) -> tuple[Tensor, Tensor, Tensor]:
    """Broadcasts all axes before the last `kept`, with strides of 0."""
    fronts = [tensor.shape[:-kept] for tensor in (query, key, value)]
    if fronts[0] == fronts[1] == fronts[2]:
        return query, key, value
    try:
        front = torch.broadcast_shapes(*fronts)
    except RuntimeError:
        _refuse(f"query, key and value have shapes {list(query.shape)}, {list(key.shape)} and {list(value.shape)}; "
                "axes that broadcast in front of (L, E) are expected" + (" (enable_gqa=True lets several query heads "
                "share a key head)" if kept == 2 else ""))
    query, key, value = (tensor.expand(*front, *tensor.shape[-kept:]) for tensor in (query, key, value))
    return query, key, value


def _flatten(tensor: Tensor, kept: int) -> Tensor:
    """Merges all axes before the last `kept`."""
    return tensor.flatten(0, -kept - 1)  # reshape(-1, …) refuses an axis of 0


@errors_name("scaled_dot_product_attention", dropout="dropout_p", causal="is_causal", mask="attn_mask", bias="attn_mask")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    return_weights: bool = False,
    return_summary: bool = False,
    top_k: int = 8,
) -> Any:
    """torch.nn.functional.scaled_dot_product_attention on the CPU, with access to its weights.

    query (..., Hq, L, E), key (..., H, S, E), value (..., H, S, Ev); leading axes broadcast. Values and gradients are
    the same, except for the weights that dropout chooses. A query whose mask allows no key has output 0 and gradient 0.

    Nested tensors of layout torch.jagged, [B, H, j, E], are computed packed, without attn_mask. Their results are
    nested, too.

    Returns the output (..., Hq, L, Ev). With return_weights, returns a tuple of it and the weights (..., Hq, L, S)
    before dropout; gradients flow through them, too. return_summary appends a Summary. Its size does not grow with S,
    and gradients flow only through its lse.
    """
    dropout_p = real("dropout_p", dropout_p)
    if return_summary:
        top_k = summarised("scaled_dot_product_attention", top_k)
    if is_nested(query) or is_nested(key) or is_nested(value):
        return nested_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, return_weights,
                                return_summary, top_k)
    _check(query, key, value, attn_mask, is_causal, enable_gqa)
    query, key, value = autocast(query, key, value)
    if enable_gqa:
        if key.shape[-3] != value.shape[-3]:
            key = _repeat_heads(key, query.shape[-3], "key")
            value = _repeat_heads(value, query.shape[-3], "value")
        query, key, value = _broadcast(query, key, value, 3)
    else:
        query, key, value = _broadcast(query, key, value, 2)
    front = query.shape[:-2]
    if query.dim() > 4:
        if attn_mask is not None and attn_mask.dim() > 2:
            try:
                attn_mask = _flatten(attn_mask.expand(*front, *attn_mask.shape[-2:]), 3)
            except RuntimeError:
                _refuse(f"attn_mask has shape {list(attn_mask.shape)}; a shape that broadcasts to "
                        f"{[*front, query.shape[-2], key.shape[-2]]} is expected")
        query, key, value = (_flatten(tensor, 3) for tensor in (query, key, value))
    bias = attn_mask if attn_mask is not None and attn_mask.dtype != torch.bool else None
    mask = attn_mask if bias is None else None

    asked = return_weights or return_summary
    if not asked and dropout_p < 1 and query.shape[-1] and is_plain(query, key, value, attn_mask):
        output: Tensor = _heed.attention(
            untracked(query), untracked(key), untracked(value), mask=mask, bias=untracked(bias), causal=is_causal,
            scale=scale, dropout=dropout_p, seed=seed_number(draw_seed(dropout_p)), threads=torch.get_num_threads())
        return output if output.dim() == len(front) + 2 else output.reshape(*front, *output.shape[-2:])

    need = (("weights",) if return_weights else ()) + (SUMMARY if return_summary else ())
    found = attention(query, key, value, mask=mask, bias=bias, causal=is_causal, scale=scale, dropout=dropout_p,
                      need=need, top_k=top_k if return_summary else 0)

    def shaped(tensor: Tensor | None, last: int) -> Tensor:
        assert tensor is not None
        return tensor if len(front) <= 2 else tensor.reshape(*front, *tensor.shape[tensor.dim() - last:])

    results: list[Any] = [shaped(found.output, 2)]
    if return_weights:
        results.append(shaped(found.weights, 2))
    if return_summary:
        results.append(Summary(shaped(found.lse, 1), shaped(found.max_score, 1), shaped(found.entropy, 1),
                               shaped(found.top_k_index, 2), shaped(found.top_k_weight, 2)))
    return tuple(results) if asked else results[0]
