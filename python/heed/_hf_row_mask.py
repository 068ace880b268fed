"""A boolean mask [B, 1, Lq, Lk] that stores, for each row, the runs of visible keys."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._heed import SparseMask

logger = logging.getLogger("heed.transformers")
aten = torch.ops.aten
_said: set[str] = set()


def say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        logger.warning(message)


class RowMask(Tensor):  # type: ignore[misc]
    """The mask that transformers' models pass from heed's mask function to heed's attention function.

    Models see a bool tensor. They may read its shape, slice it and expand it without materialising it. Any other
    operation gets the matrix."""

    runs: Tensor  #: int32 [B or 1, Lq or 1, n, 2]: keys [begin, end)
    seen: Tensor | None  #: bool [B, Lk]: False for keys that no row sees
    position: int  #: of the first row among the keys
    _sparse: SparseMask | None

    @staticmethod
    def make(runs: Tensor, seen: Tensor | None, shape: Sequence[int], position: int) -> RowMask:
        mask: RowMask = Tensor._make_wrapper_subclass(
            RowMask, tuple(shape), dtype=torch.bool, device=runs.device)
        mask.runs, mask.seen, mask.position, mask._sparse = runs, seen, position, None
        return mask

    def __deepcopy__(self, memo: dict[int, Any]) -> RowMask:
        return RowMask.make(self.runs, self.seen, self.shape, self.position)  # shares runs, which never change

    def __reduce_ex__(self, protocol: Any) -> Any:
        return RowMask.make, (self.runs, self.seen, tuple(self.shape), self.position)

    def sparse(self) -> SparseMask:
        """The mask for heed.attention, made once for all layers."""
        if self._sparse is None:
            queries, keys = self.shape[2:]
            runs = self.runs.expand(-1, queries, -1, -1)[:, None]
            self._sparse = SparseMask.rows(runs.contiguous(), keys)
            if self.seen is not None:
                hidden = torch.zeros(self.seen.shape[0], 1, keys, 2, dtype=torch.int32)
                hidden[..., 1] = (~self.seen[:, None]) * queries
                self._sparse = self._sparse & SparseMask.columns(hidden, queries)
        return self._sparse

    def dense(self) -> Tensor:
        """The matrix, one byte per pair."""
        key = torch.arange(self.shape[3], dtype=torch.int32)
        begin, end = self.runs[..., None].unbind(-2)  # [B, Lq, n, 1]
        allowed = torch.zeros((), dtype=torch.bool)
        for run in range(self.runs.shape[-2]):
            allowed = allowed | (key >= begin[:, :, run]) & (key < end[:, :, run])
        if self.seen is not None:
            allowed = allowed & self.seen[:, None]
        return allowed[:, None].expand(self.shape)

    def rows(self, first: int, last: int) -> RowMask:
        runs = self.runs if self.runs.shape[1] == 1 else self.runs[:, first:last]
        return RowMask.make(runs, self.seen, (*self.shape[:2], last - first, self.shape[3]), self.position + first)

    def keys(self, first: int, last: int) -> RowMask:
        runs = (self.runs - first).clamp(0, last - first)
        seen = None if self.seen is None else self.seen[:, first:last]
        return RowMask.make(runs, seen, (*self.shape[:3], last - first), self.position - first)

    def entries(self, first: int, last: int) -> RowMask:
        runs = self.runs if self.runs.shape[0] == 1 else self.runs[first:last]
        seen = self.seen if self.seen is None or self.seen.shape[0] == 1 else self.seen[first:last]
        return RowMask.make(runs, seen, (last - first, *self.shape[1:]), self.position)

    def is_causal(self) -> bool:
        """Whether no row sees a key after its own position."""
        end = torch.where(self.runs[..., 0] < self.runs[..., 1], self.runs[..., 1], 0).amax(-1)
        return bool((end <= torch.arange(self.shape[2]) + self.position + 1).all())

    def same(self, shape: Sequence[int]) -> RowMask | None:
        """The mask expanded to more batch entries or heads; None for any other change of shape."""
        if len(shape) != 4:
            return None
        wanted = [old if new == -1 else new for new, old in zip(shape, self.shape, strict=True)]
        if wanted[2:] != list(self.shape[2:]) or any(old not in (1, new) for new, old in zip(wanted, self.shape)):
            return None
        return RowMask.make(self.runs, self.seen, wanted, self.position)

    def cut(self, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> RowMask | None:
        dim, length = dim % 4, self.shape[dim]
        first, last, step = slice(start, end, step).indices(length)
        last = max(first, last)
        if step != 1 or (dim == 1 and (first, last) != (0, length)):
            return None
        return (self.entries, lambda *_: self.same(self.shape), self.rows, self.keys)[dim](first, last)

    def __repr__(self) -> str:
        return f"RowMask({list(self.shape)}, runs {self.runs.shape[-2]})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = None
        if args and isinstance(args[0], RowMask):
            found = args[0]._small(func, args[1:], kwargs)
        elif func is aten.cat.default and all(isinstance(x, RowMask) for x in args[0]) and args[1:] in ((-1,), (3,)):
            found = beside(args[0])
        if found is not None:
            return found
        if func._schema.is_mutable and any(isinstance(x, RowMask) for x in args[:1]):
            raise RuntimeError(f'{func} writes to a mask of attn_implementation="heed", which stores no matrix: '
                               "expected an operation that makes a new mask")
        say_once(f"a model applies {func} to its mask, so the mask becomes a matrix")
        plain = torch.utils._pytree.tree_map_only(RowMask, RowMask.dense, (args, kwargs))
        return func(*plain[0], **plain[1])

    def _all_seen(self) -> Tensor:
        """`seen`, or all True if it is None."""
        return torch.ones(1, self.shape[3], dtype=torch.bool) if self.seen is None else self.seen

    def _small(self, func: Any, args: Any, kwargs: dict[str, Any]) -> RowMask | None:
        """The results of operations that need no matrix; None for others."""
        if func in (aten.detach.default, aten.alias.default, aten.clone.default):
            return self.same(self.shape)
        if func is aten._to_copy.default and kwargs.get("dtype", torch.bool) in (None, torch.bool):
            return self.same(self.shape)
        if func is aten.slice.Tensor:
            return self.cut(*args, **kwargs)
        if func in (aten.expand.default, aten.view.default):
            return self.same(args[0])
        return None


def beside(masks: Sequence[RowMask]) -> RowMask | None:
    """Concatenates masks for the same rows along the keys; None if their shapes do not fit."""
    first, *others = masks
    runs, seen, keys = first.runs, first._all_seen(), first.shape[3]
    for mask in others:
        if mask.shape[:3] != first.shape[:3]:
            return None
        shape = torch.broadcast_shapes(runs.shape[:2], mask.runs.shape[:2])
        runs = torch.cat((runs.expand(*shape, -1, -1), (mask.runs + keys).expand(*shape, -1, -1)), -2)
        batch = max(seen.shape[0], mask._all_seen().shape[0])
        seen = torch.cat((seen.expand(batch, -1), mask._all_seen().expand(batch, -1)), 1)
        keys += mask.shape[3]
    return RowMask.make(runs, None if bool(seen.all()) else seen, (*first.shape[:3], keys), first.position)
