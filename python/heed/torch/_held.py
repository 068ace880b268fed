"""Objects of heed as arguments of operators, which take tensors and numbers only."""

from __future__ import annotations

import itertools
import secrets
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _heed

# A tensor [1] of i64 stands for an object: the number is its key here. The tensor's memory is an array that holds the
# object, so whatever keeps the tensor (a graph of autograd, a checkpoint, a compiled function, the caller) keeps the
# object, and nothing else does: the tables are weak. An object has one key as long as a tensor stands for it, so two
# traces of a function are equal. A key never comes again, so a tensor that outlived its memory (a copy, one from another
# process) is an error and never another object. torch.compile
# sees a tensor as any other: as a constant where it meets the object itself (it guards on which object that is; see
# mask_tensor), else as an input.
_keys = itertools.count(secrets.randbits(62))  # at random: keys of another process are none here


class _Key(np.ndarray[Any, Any]):
    """[1], i64; `held` is the object."""

    held: Any


_table: weakref.WeakValueDictionary[int, _Key] = weakref.WeakValueDictionary()
_table_by_id: weakref.WeakValueDictionary[int, _Key] = weakref.WeakValueDictionary()  # no id comes again while it is kept


def hold(value: object) -> Tensor:
    """A tensor that stands for the value and keeps it."""
    key = _table_by_id.get(id(value))
    if key is None:
        number = next(_keys)
        key = np.array([number], np.int64).view(_Key)
        key.held = value
        _table[number] = _table_by_id[id(value)] = key
    return torch.from_numpy(key)


def held(name: str, tensor: Tensor) -> Any:
    """What the tensor stands for."""
    key = _table.get(int(tensor)) if tensor.dtype == torch.int64 and tensor.numel() == 1 else None
    if key is None:
        raise ValueError(f"{name} is a tensor of dtype {tensor.dtype} and shape {list(tensor.shape)} that stands for "
                         "no mask that is kept in this process; one of heed.torch.mask_tensor, not a copy of it, is "
                         "expected")
    return key.held


def kept(tensor: Tensor | None) -> object:
    """What keeps the value of a tensor that stands for one, for when hooks save a copy of the tensor."""
    return _table.get(int(tensor)) if tensor is not None and type(tensor) is Tensor else None


def call_while_tracing(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.compiler.assume_constant_result: it is called with objects themselves while a graph is traced, which is one
    for these objects. (Its import of torch._dynamo takes longer than all of heed.torch's.)"""
    setattr(function, "_dynamo_marked_constant", True)
    return function


@call_while_tracing
def _hold_while_tracing(value: _heed.SparseMask | _heed.ScoreMod) -> Tensor:
    return hold(value)


def mask_tensor(mask: _heed.SparseMask) -> Tensor:
    """A tensor [1] that stands for the mask as sparse_mask= or block_mask= of heed.torch's functions, and keeps it.

    For functions that torch.compile compiles, where each other SparseMask compiles the function anew: it takes this
    tensor, of any mask, as an input. A copy of the tensor does not keep the mask.
    """
    if not isinstance(mask, _heed.SparseMask):
        raise ValueError(f"mask_tensor: mask is of type {type(mask).__name__}; a heed.SparseMask is expected")
    return hold(mask)


def as_handle(function: str, mask: _heed.SparseMask | Tensor | None) -> Tensor | None:
    """Of a sparse_mask; also while a graph is traced."""
    if mask is None or isinstance(mask, Tensor):
        return mask
    if not isinstance(mask, _heed.SparseMask):
        raise ValueError(f"{function}: sparse_mask is of type {type(mask).__name__}; a heed.SparseMask is expected")
    return _hold_while_tracing(mask) if torch.compiler.is_compiling() else hold(mask)


def score_handle(mod: _heed.ScoreMod | Tensor | None) -> Tensor | None:
    """Of a score_mod; also while a graph is traced."""
    if mod is None or isinstance(mod, Tensor):
        return mod
    if not isinstance(mod, _heed.ScoreMod):
        raise ValueError(f"attention: score_mod is of type {type(mod).__name__}; a heed.ScoreMod is expected")
    return _hold_while_tracing(mod) if torch.compiler.is_compiling() else hold(mod)
