"""torch.nn.attention.flex_attention's BlockMask as a heed.SparseMask."""

from __future__ import annotations

import concurrent.futures
import contextlib
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from .. import _heed
from .._torch_tensors import is_traced

MOST_PAIRS = 1 << 21  # most pairs per call of mask_mod; each needs several 8-byte numbers
ANY_LENGTH = 1 << 30  # the block size of PyTorch's mask for any length
INDICES = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")

# For each BlockMask: its lengths, weak references to its parts, and its SparseMask.
_converted: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def _refuse(message: str) -> None:
    raise ValueError("block_mask " + message)


def serves_any_length(mask: Any) -> bool:
    """Whether this is the mask that PyTorch's flex_attention creates if none is given."""
    return tuple(mask.BLOCK_SIZE) == (ANY_LENGTH, ANY_LENGTH)


def was_sliced(mask: Any) -> bool:
    """Whether mask[…] made this mask, whose mask_mod then only raises."""
    return mask.mask_mod is getattr(flex, "_sliced_mask_mod_error", None)


def _same(mask: Any, made_of: tuple[Any, ...]) -> bool:
    mask_mod, *tensors = made_of
    return mask_mod() is mask.mask_mod and all(
        (reference is None if tensor is None else reference is not None and reference() is tensor)
        and (tensor is None or version == _version(tensor))
        for (reference, version), tensor in zip(tensors, (getattr(mask, name) for name in INDICES)))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _made_of(mask: Any) -> tuple[Any, ...]:
    """Weak references to the mask's parts, because mask_mod may refer back to the mask."""
    tensors = (getattr(mask, name) for name in INDICES)
    return (weakref.ref(mask.mask_mod),
            *((None, 0) if tensor is None else (weakref.ref(tensor), _version(tensor)) for tensor in tensors))


def _kept(mask: Any, queries: int, keys: int) -> _heed.SparseMask | None:
    found = _converted.get(mask)
    return found[2] if found is not None and found[0] == (queries, keys) and _same(mask, found[1]) else None


def convert(mask: Any, queries: int, keys: int) -> _heed.SparseMask:
    """The mask as a SparseMask. It is cached as long as the mask lives, and renewed if its tensors or mask_mod
    change."""
    converted = _kept(mask, queries, keys)
    if converted is None:
        converted = _convert(mask, queries, keys)
        with contextlib.suppress(TypeError):  # a mask_mod without weak references
            _converted[mask] = ((queries, keys), _made_of(mask), converted)
    return converted


def convert_within_operator(mask: Any, queries: int, keys: int) -> _heed.SparseMask:
    """convert() in another thread, because PyTorch has disabled vmap in this one."""
    converted = _kept(mask, queries, keys)
    if converted is None:
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            converted = other.submit(convert, mask, queries, keys).result()
    return converted


def _convert(mask: Any, queries: int, keys: int) -> _heed.SparseMask:
    if is_traced():
        _refuse("is a BlockMask that heed reads while PyTorch traces a graph, which would freeze it as a constant; the "
                "mask that heed.torch.from_block_mask made before is expected")
    if was_sliced(mask):
        _refuse("was sliced, which removes its mask_mod; a BlockMask whose mask_mod was set again is expected")
    indices = {name: getattr(mask, name) for name in INDICES}
    for name, tensor in indices.items():
        if tensor is not None and tensor.device.type != "cpu":
            _refuse(f"has {name} on {tensor.device}; the CPU is expected")
    size = min(mask.BLOCK_SIZE[0], max(queries, 1)), min(mask.BLOCK_SIZE[1], max(keys, 1))
    partial = None
    if mask.mask_mod is not flex.noop_mask:
        with torch.no_grad():
            partial = _partial(mask, size, queries, keys)
    return _heed.SparseMask.block_mask(**{name: None if tensor is None else tensor.detach().contiguous()
                                          for name, tensor in indices.items()},
                                       partial=partial, block_size=size, queries=queries, keys=keys)


def _partial(mask: Any, size: tuple[int, int], queries: int, keys: int) -> Tensor:
    """The keys that mask_mod allows in partial blocks, bool [N, query block, key block].

    N runs over batch entry, head, block row and the block's index in the list."""
    counts, indices = mask.kv_num_blocks, mask.kv_indices
    while indices.dim() < 4:
        counts, indices = counts[None], indices[None]
    b, h, row, place = (torch.arange(indices.shape[-1]) < counts[..., None]).nonzero(as_tuple=True)
    column = indices[b, h, row, place].long()
    # Beyond the last query or key, mask_mod gets the last one, because its tensors have no further entries.
    i = (row[:, None] * size[0] + torch.arange(size[0])).clamp_(max=max(queries - 1, 0))
    j = (column[:, None] * size[1] + torch.arange(size[1])).clamp_(0, max(keys - 1, 0))
    allowed = torch.empty(len(b), *size, dtype=torch.bool)
    rows = max(1, min(size[0], MOST_PAIRS // size[1]))
    blocks = max(1, MOST_PAIRS // (rows * size[1]))
    evaluate = _over_blocks(mask.mask_mod)
    for at in range(0, len(b), blocks):
        some = slice(at, at + blocks)
        for first in range(0, size[0], rows):
            part = slice(first, first + rows)
            allowed[some, part] = evaluate(b[some], h[some], i[some, part], j[some])
    return allowed


def _over_blocks(mask_mod: Any) -> Any:
    """mask_mod, a function of four numbers, vectorised over b and h [n], i [n, rows], j [n, columns] to [n, rows,
    columns]."""
    for axes in ((None, None, None, 0), (None, None, 0, None), (0, 0, 0, 0)):
        mask_mod = torch.vmap(mask_mod, in_dims=axes)

    def evaluate(*numbers: Tensor) -> Tensor:
        # Mirrors PyTorch's create_mask; otherwise vmap refuses document[i].
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

        with TransformGetItemToIndex():
            allowed: Tensor = mask_mod(*numbers)
        if allowed.dtype != torch.bool:
            _refuse(f"has a mask_mod that returns {allowed.dtype}; bool (True where a key may be attended) is expected")
        return allowed

    return evaluate


def from_block_mask(block_mask: Any) -> _heed.SparseMask:
    """Converts a BlockMask to a heed.SparseMask, in memory proportional to its blocks.

    mask_mod is evaluated once per BlockMask, on partial blocks only. The data that it reads must not change.
    """
    if not isinstance(block_mask, flex.BlockMask):
        _refuse(f"is of type {type(block_mask).__name__}; torch.nn.attention.flex_attention.BlockMask is expected")
    if serves_any_length(block_mask):
        _refuse("is PyTorch's for any lengths; a BlockMask made for given lengths is expected")
    return convert(block_mask, *block_mask.seq_lengths)
