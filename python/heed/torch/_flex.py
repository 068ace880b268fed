"""flex_attention with the arguments of torch.nn.attention.flex_attention."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from .. import _heed
from .._counted import counted
from .._torch_tensors import check_given, is_plain
from ._block_mask import convert, convert_within_operator, serves_any_length, was_sliced
from ._held import call_while_tracing, hold
from ._names import errors_name
from ._ops import attention, autocast, untracked
from ._summary import SUMMARY, Summary, summarised

if TYPE_CHECKING:
    from .._heed import ScoreMod


def _refuse(message: str) -> None:
    raise ValueError("flex_attention: " + message)


def _check(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> None:
    check_given("flex_attention", query=query, key=key, value=value)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4:
            _refuse(f"{name} has shape {list(tensor.shape)}; 4 axes, [B, H, L, E], are expected")
    if not grouped and query.shape[1] != key.shape[1]:
        _refuse(f"query has {counted(query.shape[1], 'head')} and key {key.shape[1]}; the same number is expected "
                "(enable_gqa=True lets several query heads share a key head)")


def _check_score_mod(score_mod: Any) -> None:
    if score_mod is not None and not isinstance(score_mod, _heed.ScoreMod):
        _refuse(f"score_mod is of type {type(score_mod).__name__}; a heed.ScoreMod is expected, such as "
                "heed.ScoreMod.expression('s - 0.1 * abs(i - j)') because heed calls no Python function for a score")


def _check_block_mask(mask: Any, query: Tensor, key: Tensor) -> None:
    if isinstance(mask, (_heed.SparseMask, Tensor)):
        return  # the call checks it
    if not isinstance(mask, flex.BlockMask):
        _refuse(f"block_mask is of type {type(mask).__name__}; torch.nn.attention.flex_attention.BlockMask is expected")
    if was_sliced(mask):
        _refuse("block_mask was sliced, which removes its mask_mod; a BlockMask whose mask_mod was set again is expected")
    lengths = query.shape[2], key.shape[2]
    if not serves_any_length(mask) and tuple(mask.seq_lengths) != lengths:
        _refuse(f"block_mask is for {mask.seq_lengths[0]} queries and {mask.seq_lengths[1]} keys; {lengths[0]} and "
                f"{lengths[1]} are expected (create_block_mask with these lengths, or, for its upper left corner, "
                "block_mask._adjust)")
    counts = mask.kv_num_blocks
    for axis, name, size in ((-3, "batch entries", query.shape[0]), (-2, "heads", query.shape[1])):
        own = counts.shape[axis] if counts.dim() >= -axis else 1
        if own not in (1, size):
            _refuse(f"block_mask is for {own} {name}; 1 or {size} are expected")


def _as_sparse(mask: Any, queries: int, keys: int) -> Any:
    """The mask in a form that heed's calls accept."""
    return convert(mask, queries, keys) if isinstance(mask, flex.BlockMask) else mask


@call_while_tracing
def _hold_while_tracing(mask: Any, queries: int, keys: int) -> Tensor:
    """The tensor for a mask while a graph is traced. The compiled function converts the mask again if it has
    changed."""
    convert(mask, queries, keys)
    return hold(functools.partial(convert_within_operator, mask, queries, keys))


@errors_name("flex_attention", sparse_mask="block_mask")
def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
    return_weights: bool = False,
    return_summary: bool = False,
    top_k: int = 8,
) -> Any:
    """torch.nn.attention.flex_attention.flex_attention on the CPU, with gradients and without an L x S matrix.

    query [B, Hq, L, E], key [B, H, S, E], value [B, H, S, Ev]. block_mask is PyTorch's BlockMask, a heed.SparseMask, or
    a tensor from mask_tensor. Full blocks of a BlockMask allow everything. mask_mod is evaluated on the other blocks,
    once per BlockMask, and the data that it reads must not change. score_mod is a heed.ScoreMod. kernel_options have no
    effect.

    Returns the output [B, Hq, L, Ev]. With return_lse or return_aux (an AuxRequest), returns a tuple of it and lse [B,
    Hq, L] or an AuxOutput. return_weights appends the weights [B, Hq, L, S], and return_summary appends a Summary. A
    query whose mask allows no key has output 0 and gradient 0.
    """
    _check(query, key, value, enable_gqa)
    _check_score_mod(score_mod)
    if return_aux is not None and not (hasattr(return_aux, "lse") and hasattr(return_aux, "max_scores")):
        raise TypeError(f"flex_attention: return_aux is of type {type(return_aux).__name__}; an AuxRequest is expected")
    if return_summary:
        top_k = summarised("flex_attention", top_k)
    if return_lse and return_aux is not None:
        _refuse("return_lse is True and return_aux is given; one of the two is expected")
    if block_mask is not None:
        _check_block_mask(block_mask, query, key)
        if query.shape[0] != key.shape[0] == 1:  # as in PyTorch, only with a mask
            key, value = (tensor.expand(query.shape[0], -1, -1, -1) for tensor in (key, value))
    query, key, value = autocast(query, key, value)
    asked = return_lse or return_aux is not None or return_weights or return_summary
    if not asked and query.shape[-1] and not isinstance(block_mask, Tensor) and is_plain(query, key, value):
        return _heed.attention(
            untracked(query), untracked(key), untracked(value), scale=scale, threads=torch.get_num_threads(),
            score_mod=score_mod, sparse_mask=_as_sparse(block_mask, query.shape[2], key.shape[2]))

    if torch.compiler.is_compiling() and isinstance(block_mask, flex.BlockMask):
        mask: Any = _hold_while_tracing(block_mask, query.shape[2], key.shape[2])
    else:
        mask = _as_sparse(block_mask, query.shape[2], key.shape[2])
    need = (("weights",) if return_weights else ()) + (SUMMARY if return_summary else ())
    if return_aux is not None and return_aux.max_scores and not return_summary:
        need += ("max_score",)
    found = attention(query, key, value, sparse_mask=mask, score_mod=score_mod, scale=scale, need=need,
                      top_k=top_k if return_summary else 0)
    results: list[Any] = [found.output]
    if return_lse:
        results.append(found.lse)
    if return_aux is not None:
        results.append(flex.AuxOutput(lse=found.lse if return_aux.lse else None,
                                      max_scores=found.max_score if return_aux.max_scores else None))
    if return_weights:
        results.append(found.weights)
    if return_summary:
        results.append(Summary(*(getattr(found, name) for name in Summary._fields)))
    return tuple(results) if asked else found.output
