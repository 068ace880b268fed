"""Objects of heed as arguments of operators, which accept only tensors and numbers."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _heed

# A tensor [1] of i64 represents an object: its number is the object's key here. The tensor's memory is an array that
# holds the object. So whatever keeps the tensor (an autograd graph, a checkpoint, a compiled function, the caller)
# keeps the object, and nothing else does, because the tables are weak. An object has one key as long as a tensor
# represents it, so two traces of a function are equal. Keys are random, so none is drawn again, not even by a forked
# process. A tensor that outlives its memory (a copy, or one from another process) is therefore an error, and never
# another object. torch.compile treats the tensor as an input. If it meets the object itself, it treats the tensor as a
# constant and guards on that object; see mask_tensor.


class _Key(np.ndarray[Any, Any]):
    """[1], i64; `held` is the object."""

    held: Any


_table: weakref.WeakValueDictionary[int, _Key] = weakref.WeakValueDictionary()
_table_by_id: weakref.WeakValueDictionary[int, _Key] = weakref.WeakValueDictionary()  # ids are not reused while kept


def hold(value: object) -> Tensor:
    """A tensor that represents the value and keeps it alive."""
    key = _table_by_id.get(id(value))
    if key is None:
        number = secrets.randbits(62)
        key = np.array([number], np.int64).view(_Key)
        key.held = value
        _table[number] = _table_by_id[id(value)] = key
    return torch.from_numpy(key)


def held(name: str, tensor: Tensor) -> Any:
    """The object that the tensor represents."""
    key = _table.get(int(tensor)) if tensor.dtype == torch.int64 and tensor.numel() == 1 else None
    if key is None:
        raise ValueError(f"{name} is a tensor of dtype {tensor.dtype} and shape {list(tensor.shape)} that stands for "
                         f"no mask of this process; the tensor from heed.torch.mask_tensor, not a copy, is expected")
    return key.held


def kept(tensor: Tensor | None) -> object:
    """The owner of a tensor's object. Keep it if hooks may save only a copy of the tensor."""
    return _table.get(int(tensor)) if tensor is not None and type(tensor) is Tensor else None


def call_while_tracing(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.compiler.assume_constant_result: the function is called with real objects while a graph is traced.

    The graph is then valid only for these objects. Importing torch._dynamo would take longer than all of heed.torch."""
    setattr(function, "_dynamo_marked_constant", True)
    return function


@call_while_tracing
def _hold_while_tracing(value: _heed.SparseMask | _heed.ScoreMod) -> Tensor:
    return hold(value)


def mask_tensor(mask: _heed.SparseMask) -> Tensor:
    """A tensor [1] that represents the mask as sparse_mask= or block_mask= of heed.torch's functions.

    Use it in functions compiled by torch.compile, which compile anew for each SparseMask. They take this tensor as an
    input, for any mask. The tensor keeps the mask alive; a copy of the tensor does not.
    """
    if not isinstance(mask, _heed.SparseMask):
        raise ValueError(f"mask_tensor: mask is of type {type(mask).__name__}; a heed.SparseMask is expected")
    return hold(mask)


def as_handle(function: str, mask: _heed.SparseMask | Tensor | None) -> Tensor | None:
    """The tensor for a sparse_mask, also while a graph is traced."""
    if mask is None or isinstance(mask, Tensor):
        return mask
    if not isinstance(mask, _heed.SparseMask):
        raise ValueError(f"{function}: sparse_mask is of type {type(mask).__name__}; a heed.SparseMask is expected")
    return _hold_while_tracing(mask) if torch.compiler.is_compiling() else hold(mask)


def score_handle(mod: _heed.ScoreMod | Tensor | None) -> Tensor | None:
    """The tensor for a score_mod, also while a graph is traced."""
    if mod is None or isinstance(mod, Tensor):
        return mod
    if not isinstance(mod, _heed.ScoreMod):
        raise ValueError(f"attention: score_mod is of type {type(mod).__name__}; a heed.ScoreMod is expected")
    return _hold_while_tracing(mod) if torch.compiler.is_compiling() else hold(mod)
