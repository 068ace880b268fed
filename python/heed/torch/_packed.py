"""Packed sequences: varlen_attention with FlashAttention's arguments, and PyTorch's nested tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _heed
from .._counted import counted
from .._torch_tensors import check_given, is_nested, is_plain, real, whole
from ._names import errors_name
from ._ops import (Attended, attention, autocast, draw_seed, refuse_gradient, seed_number, slopes, untracked, whole_numbers,
                   window_sides)
from ._summary import SUMMARY, Summary, summarised


def _refuse(message: str) -> None:
    raise ValueError(message)


def _heads_first(tensor: Tensor) -> Tensor:
    """[T, H, D] to [1, H, T, D]."""
    return tensor.transpose(0, 1).unsqueeze(0)


def _tokens_first(tensor: Tensor) -> Tensor:
    """[1, H, T, …] to contiguous [T, H, …]."""
    return tensor.squeeze(0).transpose(0, 1).contiguous()


def attend(query: Tensor, key: Tensor, value: Tensor, offsets: tuple[Tensor, Tensor], *, need: Sequence[str] = (),
           top_k: int = 0, asked: bool = True, alibi: Tensor | None = None, sinks: Tensor | None = None,
           dropout: float = 0.0, **options: Any) -> Attended:
    """Attends within packed sequences: query [Tq, H, D], key [Tk, Hkv, D], value [Tk, Hkv, Dv].

    Results have tokens first, [Tq, H, …]. Unless `asked`, only the output is valid."""
    query, key, value = autocast(query, key, value)
    q, k, v = (_heads_first(tensor) for tensor in (query, key, value))
    if not asked and dropout < 1 and query.shape[-1] and is_plain(query, key, value, alibi, sinks, *offsets):
        output = query.new_empty(query.shape[0], query.shape[1], value.shape[2])
        _heed.attention(untracked(q), untracked(k), untracked(v), cu_seqlens=offsets,
                        alibi=untracked(alibi), sinks=untracked(sinks), dropout=dropout, seed=seed_number(draw_seed(dropout)),
                        threads=torch.get_num_threads(), out=_heads_first(output), **options)
        return Attended(output, output.new_empty(0))
    found = attention(q, k, v, cu_seqlens=offsets, alibi=alibi, sinks=sinks, dropout=dropout, need=need, top_k=top_k,
                      **options)
    return Attended(*(None if tensor is None else _tokens_first(tensor) for tensor in found))


def _offsets(what: str, given: Any, tokens: int, most: int | None, device: Any) -> Tensor:
    """cu_seqlens_q or cu_seqlens_k as a tensor. While a graph is traced its numbers are unknown; the call checks
    them."""
    name = f"cu_seqlens_{what}"
    tensor = whole_numbers(f"varlen_attention: {name}", given, device)
    if tensor is None:
        raise TypeError(f"varlen_attention: {name} is None; whole numbers are expected")
    if tensor.dim() != 1 or tensor.shape[0] < 1 or tensor.dtype not in (torch.int32, torch.int64):
        _refuse(f"varlen_attention: {name} has dtype {tensor.dtype} and shape {list(tensor.shape)}; int32 or int64 and "
                "[sequences + 1] are expected")
    if not is_plain(tensor):
        return tensor
    numbers = tensor.tolist()
    lengths = [end - begin for begin, end in zip(numbers, numbers[1:])]
    fall = next((place for place, length in enumerate(lengths) if length < 0), None)
    if numbers[0] != 0 or numbers[-1] != tokens or fall is not None:
        runs = (f"runs from {numbers[0]} to {numbers[-1]}" if fall is None else
                f"falls from {numbers[fall]} to {numbers[fall + 1]} at place {fall + 1}")
        _refuse(f"varlen_attention: {name} {runs}; non-decreasing numbers from 0 to "
                f"{tokens}, the tokens of {'query' if what == 'q' else 'key'}, are expected")
    if most is not None and max(lengths, default=0) > whole(f"varlen_attention: max_seqlen_{what}", most):
        _refuse(f"varlen_attention: max_seqlen_{what} is {most}; {max(lengths)}, the length of the longest sequence, "
                "or more is expected")
    return tensor


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    check_given("varlen_attention", query=query, key=key, value=value)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 3:
            _refuse(f"varlen_attention: {name} has shape {list(tensor.shape)}; 3 axes, [tokens, H, D], are expected")


@errors_name("varlen_attention", dropout="dropout_p", alibi="alibi_slopes", window="window_size")
def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor | Sequence[int],
    cu_seqlens_k: Tensor | Sequence[int] | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    causal: bool = False,
    window_size: Sequence[int | None] | None = (-1, -1),
    scale: float | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | Sequence[float] | None = None,
    sinks: Tensor | None = None,
    dropout_p: float = 0.0,
    return_lse: bool = False,
    return_summary: bool = False,
    top_k: int = 8,
) -> Any:
    """Attention within packed sequences, like FlashAttention's flash_attn_varlen_func.

    It also matches torch.nn.attention.varlen.varlen_attn, runs on the CPU, and has gradients.

    query [Tq, H, D], key [Tk, Hkv, D], value [Tk, Hkv, Dv]. Sequence n has the queries cu_seqlens_q[n] … cu_seqlens_q[n
    + 1] - 1 and the keys of cu_seqlens_k (None: the same offsets). Its last query is aligned with its last key, as in
    both functions. causal, window_size (left, right; -1 or None is open) and alibi_slopes [H] use this alignment, so
    window_size=(-1, 0) is causal, too. The arguments max_seqlen_… are checked but have no effect.

    Returns the output [Tq, H, Dv]. With return_lse, returns a tuple of it and lse [Tq, H]. return_summary appends a
    Summary of [Tq, H] or [Tq, H, top_k] each, whose indices are rows of `key`. Gradients flow through output and lse.
    """
    _check(query, key, value)
    dropout_p = real("dropout_p", dropout_p)
    if return_summary:
        top_k = summarised("varlen_attention", top_k)
    offsets = (_offsets("q", cu_seqlens_q, query.shape[0], max_seqlen_q, query.device),
               _offsets("k", cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k, key.shape[0], max_seqlen_k,
                        query.device))
    if offsets[0].shape[0] != offsets[1].shape[0]:
        _refuse(f"varlen_attention: cu_seqlens_k has {counted(offsets[1].shape[0], 'number')}; {offsets[0].shape[0]}, as in "
                "cu_seqlens_q, are expected")
    window = window_sides("varlen_attention: window_size", window_size)
    if min(window) < -1:
        _refuse(f"varlen_attention: window_size is {window_size}; (left, right), each -1 (open) or more, is expected")
    refuse_gradient("varlen_attention", "alibi_slopes", alibi_slopes)
    alibi_slopes = slopes("varlen_attention: alibi_slopes", alibi_slopes, query.device)
    asked = return_lse or return_summary
    found = attend(query, key, value, offsets, causal=causal, window=tuple(window), scale=scale,
                   softcap=softcap, alibi=alibi_slopes, sinks=sinks, dropout=dropout_p, align="bottom-right",
                   need=SUMMARY if return_summary else (), top_k=top_k if return_summary else 0, asked=asked)
    results: list[Any] = [found.output]
    if return_lse:
        results.append(found.lse)
    if return_summary:
        results.append(Summary(*(getattr(found, name) for name in Summary._fields)))
    return tuple(results) if asked else found.output


def _packed(name: str, tensor: Tensor) -> tuple[Tensor, Tensor]:
    """[tokens, H, D] and the offsets of a nested tensor [B, H, j, D] or [B, j, D]."""
    if not is_nested(tensor):
        check_given("scaled_dot_product_attention", **{name: tensor})
    if not tensor.is_nested or tensor.layout != torch.jagged:
        found = f"a nested tensor of layout {tensor.layout}" if tensor.is_nested else "a plain tensor"
        _refuse(f"scaled_dot_product_attention: {name} is {found}; nested tensors of layout torch.jagged are expected "
                f"for all three, or plain tensors")
    ragged = getattr(tensor, "_ragged_idx")
    if tensor.dim() not in (3, 4) or ragged != tensor.dim() - 2:
        _refuse(f"scaled_dot_product_attention: {name} is a nested tensor of {tensor.dim()} axes, ragged in axis "
                f"{ragged}; [B, H, j, E], ragged in axis 2, or [B, j, E] is expected (transpose(1, 2) makes it from "
                f"[B, j, H, E])")
    if tensor.lengths() is not None:
        _refuse(f"scaled_dot_product_attention: {name} is a nested tensor with holes between its rows; a tensor "
                f"without holes is expected (contiguous() makes one)")
    if tensor.dim() == 3:
        return tensor.values().unsqueeze(1), tensor.offsets()
    return tensor.transpose(1, 2).values(), tensor.offsets()


def _within(index: Tensor, offsets: tuple[Tensor, Tensor]) -> Tensor:
    """Converts key indices [Tq, H, K] to positions within the sequence of each query."""
    starts = offsets[1][:-1].repeat_interleave(offsets[0].diff(), output_size=index.shape[0])
    return torch.where(index < 0, index, index - starts[:, None, None])


def nested_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout: float, causal: bool,
                     scale: float | None, grouped: bool, weights: bool, summary: bool, top_k: int) -> Any:
    """scaled_dot_product_attention for nested tensors."""
    if attn_mask is not None:
        _refuse("scaled_dot_product_attention: attn_mask is given with nested tensors; only is_causal is expected")
    if weights:
        _refuse("scaled_dot_product_attention: return_weights is True with nested tensors; False is expected because "
                "weights ragged in two axes are not a nested tensor (return_summary=True returns those of the top k keys)")
    (q, offsets_q), (k, offsets_k), (v, offsets_v) = (
        _packed(name, tensor) for name, tensor in (("query", query), ("key", key), ("value", value)))
    one = offsets_v is offsets_k
    if torch.compiler.is_compiling() and not one and offsets_k.shape[0] == offsets_v.shape[0]:
        torch._assert_async((offsets_k == offsets_v).all(), "scaled_dot_product_attention: key and value are nested "
                            "tensors of different lengths; equal lengths are expected")
        one = True  # the compiled function compares the numbers
    if offsets_q.shape[0] != offsets_k.shape[0] or k.shape[0] != v.shape[0] or not (one or torch.equal(offsets_k, offsets_v)):
        _refuse(f"scaled_dot_product_attention: query, key and value are nested tensors of {offsets_q.shape[0] - 1}, "
                f"{offsets_k.shape[0] - 1} and {offsets_v.shape[0] - 1} sequences, key and value of {k.shape[0]} and "
                f"{v.shape[0]} tokens; equal numbers of sequences, and equal lengths of key and value, are expected")
    if not grouped and q.shape[1] != k.shape[1]:
        _refuse(f"scaled_dot_product_attention: query has {counted(q.shape[1], 'head')} and key {k.shape[1]}; the same number is "
                "expected (enable_gqa=True lets several query heads share a key head)")
    offsets = offsets_q, offsets_k
    found = attend(q, k, v, offsets, causal=causal, scale=scale, dropout=dropout, need=SUMMARY if summary else (),
                   top_k=top_k if summary else 0, asked=summary)

    def nested(tensor: Tensor | None) -> Tensor:
        assert tensor is not None
        if query.dim() == 3:
            return torch.nested.nested_tensor_from_jagged(tensor.squeeze(1), offsets_q)
        return torch.nested.nested_tensor_from_jagged(tensor, offsets_q).transpose(1, 2)

    if not summary:
        return nested(found.output)
    assert found.top_k_index is not None
    found = found._replace(top_k_index=_within(found.top_k_index, offsets))
    return nested(found.output), Summary(*(nested(getattr(found, name)) for name in Summary._fields))
