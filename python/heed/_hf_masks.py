"""transformers' masks as intervals, derived from the functions that compose a mask.

transformers composes a mask from small functions of (batch, head, query, key) and passes the result to the mask
function of the attention implementation. `heed_mask` recognises those functions by their code and reads their settings
from their closures. It builds the runs of visible keys for every row, so memory grows linearly with the length. An
unknown function is evaluated, some rows at a time. Only masks with more than MOST_RUNS runs in a row become matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import masking_utils
from transformers.masking_utils import causal_mask_function

from ._hf_row_mask import RowMask, say_once
from ._hf_versions import is_tracing, sdpa_mask

MOST_RUNS = 8  # per row
CHUNK = 2**22  # pairs of queries and keys per evaluation of an unknown function
FAR = 2**62  # the position of empty runs, after all others

# Runs are integers [B, Lq, n, 2]: the keys [begin, end) of each. B or Lq is 1 if all entries are equal. Positions
# count as kv_idx in a mask function and are not clipped to the existing keys.


class Undescribed(Exception):
    """A mask, or a part of it, that cannot be described by few runs. The message names it."""


def tidy(runs: Tensor) -> Tensor:
    """Sorts the runs, merges overlaps, moves empty runs last, and drops unused run slots."""
    begin, end = runs.unbind(-1)
    empty = begin >= end
    if runs.shape[-2] == 1:
        return runs.masked_fill(empty[..., None], FAR)
    begin, order = begin.masked_fill(empty, FAR).sort(-1)
    end = end.masked_fill(empty, FAR).gather(-1, order).cummax(-1).values
    # A run begins where no earlier run reaches. It ends where the last run before the next beginning ends.
    fresh = torch.ones_like(empty)
    fresh[..., 1:] = begin[..., 1:] > end[..., :-1]
    fresh &= begin < FAR
    place = (fresh.cumsum(-1) - 1).clamp(min=0)
    held = begin < FAR
    count = int(fresh.sum(-1).max()) if fresh.numel() else 0
    found = runs.new_full((*runs.shape[:-2], runs.shape[-2], 2), FAR)
    found[..., 0].scatter_reduce_(-1, place, torch.where(held, begin, FAR), "amin")
    ends = torch.full_like(end, -FAR).scatter_reduce_(-1, place, torch.where(held, end, -FAR), "amax")
    found[..., 1] = torch.where(ends == -FAR, FAR, ends)
    return found[..., :max(1, count), :]


def both(a: Tensor, b: Tensor) -> Tensor:
    """The intersection of two masks."""
    if a.shape[-2] * b.shape[-2] > MOST_RUNS**2:
        raise Undescribed("a mask with too many runs")
    begin = torch.maximum(a[..., :, None, 0], b[..., None, :, 0])
    end = torch.minimum(a[..., :, None, 1], b[..., None, :, 1])
    return tidy(torch.stack((begin, end), -1).flatten(-3, -2))


def either(a: Tensor, b: Tensor) -> Tensor:
    """The union of two masks."""
    shape = torch.broadcast_shapes(a.shape[:2], b.shape[:2])
    return tidy(torch.cat((a.expand(*shape, -1, -1), b.expand(*shape, -1, -1)), -2))


def span(begin: Tensor, end: Tensor) -> Tensor:
    """One run per row, from begins and ends [B, Lq]."""
    return torch.stack(torch.broadcast_tensors(begin, end), -1)[..., None, :]


def runs_of(allowed: Tensor) -> Tensor | None:
    """The runs [B, Lq, n, 2] of True in a matrix [B, Lq, Lk]; None if a row has more than MOST_RUNS."""
    begins = allowed.clone()
    begins[..., 1:] &= ~allowed[..., :-1]
    count = begins.sum(-1)
    most = int(count.max()) if count.numel() else 0
    if most > MOST_RUNS:
        return None
    ends = allowed.clone()
    ends[..., :-1] &= ~allowed[..., 1:]
    runs = torch.full((count.numel(), max(1, most), 2), FAR, dtype=torch.int64)
    rows = torch.arange(count.numel()).repeat_interleave(count.flatten())
    place = torch.arange(len(rows)) - (count.flatten().cumsum(0) - count.flatten())[rows]
    runs[rows, place, 0] = begins.nonzero()[:, -1]
    runs[rows, place, 1] = ends.nonzero()[:, -1] + 1
    return runs.unflatten(0, count.shape)


def equal_runs(given: Tensor, rows: Tensor, first: int, last: int, least: int | None, what: str) -> Tensor:
    """Keys [first, last) whose number in `given` [B, N] equals the row's number and is at least `least`."""
    if last > given.shape[1] or int(rows.max()) >= given.shape[1] or first < 0 or int(rows.min()) < 0:
        raise Undescribed(what)
    found = []
    for numbers, row in zip(given, rows.expand(given.shape[0], -1), strict=True):
        value, length = numbers[first:last].unique_consecutive(return_counts=True)
        end = first + length.cumsum(0)
        if least is not None:
            value, length, end = (x[value >= least] for x in (value, length, end))
        # Group the runs by number: [numbers, most runs of one number, 2].
        value, order = value.sort(stable=True)
        known, count = value.unique_consecutive(return_counts=True)
        most = int(count.max()) if count.numel() else 1
        if most > MOST_RUNS:
            raise Undescribed(what)
        table = torch.full((len(known) + 1, most, 2), FAR, dtype=torch.int64)  # the last row: no keys
        group = torch.arange(len(known)).repeat_interleave(count)
        place = torch.arange(len(value)) - (count.cumsum(0) - count)[group]
        table[group, place] = torch.stack((end - length, end), -1)[order]
        number = numbers[row].contiguous()
        at = torch.searchsorted(known, number)
        at = torch.where((at < len(known)) & (torch.cat((known, known.new_zeros(1)))[at] == number), at, len(known))
        found.append(table[at])
    most = max(runs.shape[1] for runs in found)
    return torch.stack([torch.nn.functional.pad(x, (0, 0, 0, most - x.shape[1]), value=FAR) for x in found])


def name_of(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"


def settings(function: Any) -> dict[str, Any]:
    """The variables in a function's closure, by name."""
    return dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))


class Reader:
    """Reads mask functions for rows at the positions `rows` [B or 1, Lq] and keys [first, last)."""

    def __init__(self, rows: Tensor, first: int, last: int) -> None:
        self.rows, self.first, self.last = rows, first, last

    def read(self, function: Any) -> Tensor:
        if function is causal_mask_function:
            return span(torch.full_like(self.rows, self.first), self.rows + 1)
        if function is getattr(masking_utils, "bidirectional_mask_function", None):
            if int(self.rows.min()) < 0:
                raise Undescribed(name_of(function))
            return self.keys(self.first, self.last)
        read = KNOWN.get(getattr(function, "__code__", None))
        if read is None:
            raise Undescribed(name_of(function))
        return read(self, function, **settings(function))

    def keys(self, first: int, last: int) -> Tensor:
        return torch.tensor([[[[first, last]]]])

    def and_mask(self, function: Any, mask_functions: Any) -> Tensor:
        packed = [part for part in mask_functions if is_made_by("packed_sequence_mask_function", part)]
        runs = self.keys(self.first, self.last)
        for part in mask_functions:
            if is_made_by("remap_positions_for_packed_sequence", part):
                runs = both(runs, self.remapped(part, packed, **settings(part)))
            else:
                runs = both(runs, self.read(part))
        return runs

    def or_mask(self, function: Any, mask_functions: Any) -> Tensor:
        runs = self.keys(FAR, FAR)
        for part in mask_functions:
            runs = either(runs, self.read(part))
        return runs

    def window(self, function: Any, sliding_window: Any) -> Tensor:
        return span(self.rows - int(sliding_window) + 1, torch.full_like(self.rows, self.last))

    def window_of_both_sides(self, function: Any, sliding_window: Any) -> Tensor:
        return span(self.rows - int(sliding_window), self.rows + int(sliding_window) + 1)

    def chunks(self, function: Any, chunk_size: Any, left_padding: Tensor) -> Tensor:
        padding = left_padding[:, None]
        begin = (self.rows - padding) // int(chunk_size) * int(chunk_size) + padding
        return span(begin, begin + int(chunk_size))

    def blocks(self, function: Any, block_sequence_ids: Tensor) -> Tensor:
        return equal_runs(block_sequence_ids, self.rows, self.first, self.last, 0, name_of(function))

    def packed(self, function: Any, packed_sequence_mask: Tensor) -> Tensor:
        return equal_runs(packed_sequence_mask, self.rows, self.first, self.last, None, name_of(function))

    def padding(self, function: Any, padding_mask: Tensor) -> Tensor:
        if padding_mask.dtype != torch.bool or self.last > padding_mask.shape[1] or self.first < 0:
            raise Undescribed(name_of(function))
        runs = runs_of(padding_mask[:, None, self.first:self.last])
        if runs is None:
            raise Undescribed(name_of(function))
        return torch.where(runs == FAR, FAR, runs + self.first)

    def remapped(self, function: Any, packed: list[Any], mask_function: Any, position_ids: Tensor) -> Tensor:
        """A mask function of the positions within each packed sequence. `packed` defines the sequences."""
        if len(packed) != 1:
            raise Undescribed(name_of(function))
        sequence = settings(packed[0])["packed_sequence_mask"]
        same = sequence[:, 1:] == sequence[:, :-1]
        # Each sequence must be one run, with positions that increase by one. Otherwise key places cannot be derived
        # from positions.
        if (sequence.shape != position_ids.shape or bool((sequence[:, 1:] < sequence[:, :-1]).any())
                or bool((same & (position_ids[:, 1:] - position_ids[:, :-1] != 1)).any())
                or int(self.rows.min()) < 0 or int(self.rows.max()) >= sequence.shape[1]):
            raise Undescribed(name_of(function))
        rows = self.rows.expand(sequence.shape[0], -1)
        position = position_ids.to(torch.int64)
        found = Reader(position.gather(1, rows), int(position.min()), int(position.max()) + 1).read(mask_function)
        places = torch.arange(sequence.shape[1]) - position  # constant within a sequence
        return torch.where(found == FAR, FAR, found + places.gather(1, rows)[..., None, None])

    def moved(self, function: Any, mask_function: Any, q_offset: Any, kv_offset: Any) -> Tensor:
        q, k = int(q_offset), int(kv_offset)
        found = Reader(self.rows + q, self.first + k, self.last + k).read(mask_function)
        return torch.where(found == FAR, FAR, found - k)


def _made(maker: str) -> Any:
    """The code of the functions that a transformers factory makes; None if this version lacks the factory."""
    make = getattr(masking_utils, maker, None)
    if make is None:
        return None
    return make(*(causal_mask_function,) * make.__code__.co_argcount)  # the factory only stores its arguments


MAKERS: dict[str, Callable[..., Tensor]] = {
    "and_masks": Reader.and_mask,
    "or_masks": Reader.or_mask,
    "sliding_window_overlay": Reader.window,
    "sliding_window_bidirectional_overlay": Reader.window_of_both_sides,
    "chunked_overlay": Reader.chunks,
    "blockwise_overlay": Reader.blocks,
    "packed_sequence_mask_function": Reader.packed,
    "padding_mask_function": Reader.padding,
    "add_offsets_to_mask_function": Reader.moved,
}
CODES = {name: getattr(_made(name), "__code__", None) for name in (*MAKERS, "remap_positions_for_packed_sequence")}
KNOWN = {CODES[name]: read for name, read in MAKERS.items() if CODES[name] is not None}


def is_made_by(maker: str, function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code is CODES[maker]


def evaluated(rows: int, keys: int, batch: int, call: dict[str, Any]) -> Tensor | None:
    """The runs of a mask, found by evaluating it some rows at a time; None if there are too many."""
    step = max(1, CHUNK // max(1, keys * batch))
    found = []
    for first in range(0, rows, step):
        matrix: Any = sdpa_mask(**(call | {"q_length": min(step, rows - first), "q_offset": call["q_offset"] + first,
                                      "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}))
        runs = runs_of(matrix[:, 0]) if matrix.shape[1] == 1 else None
        if runs is None:
            return None
        found.append(runs.to(torch.int64))
    most = max((runs.shape[2] for runs in found), default=1)
    return torch.cat([torch.nn.functional.pad(x, (0, 0, 0, most - x.shape[2]), value=FAR) for x in found], 1)


def described(call: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """(runs [B or 1, Lq or 1, n, 2] counted from key 0, seen [B, Lk] or None). Keys with seen False are hidden from all
    rows."""
    first, keys = int(call["kv_offset"]), call["kv_length"]
    padding = call["attention_mask"]
    seen = None
    if padding is not None:
        seen = padding[:, first:first + keys]
        seen = torch.nn.functional.pad(seen, (0, keys - seen.shape[1]))
        seen = None if bool(seen.all()) else seen
    try:
        rows = torch.arange(call["q_length"])[None] + int(call["q_offset"])
        if not rows.numel():
            return torch.zeros(1, 1, 1, 2, dtype=torch.int64), None
        reader = Reader(rows, first, first + keys)
        found = both(reader.read(call["mask_function"]), reader.keys(first, first + keys))
        found = torch.where(found == FAR, FAR, found - first)
    except Undescribed as unknown:
        found_or_none = evaluated(call["q_length"], keys, call["batch_size"], call | {"attention_mask": None})
        if found_or_none is None:
            raise unknown
        found = found_or_none
    if seen is not None:
        runs = runs_of(seen[:, None])
        if runs is not None and runs.shape[-2] * found.shape[-2] <= MOST_RUNS:
            found, seen = both(found, runs), None
    if found.shape[-2] > MOST_RUNS:
        raise Undescribed(name_of(call["mask_function"]))
    return found, seen


def is_skipped(found: Tensor, call: dict[str, Any]) -> bool:
    """Whether the attention function applies the mask by itself, so that transformers may pass None instead.

    This holds if rows see all keys, or if there are as many queries as keys and each row sees the keys up to
    its own."""
    queries, keys = call["q_length"], call["kv_length"]
    if found.shape[-2] != 1 or bool((found[..., 0] != 0).any()):
        return False
    end = found[..., 0, 1]
    whole = bool((end == keys).all())
    if whole and (call["allow_is_bidirectional_skip"] or call["allow_is_causal_skip"] and queries == 1):
        return True
    return bool(call["allow_is_causal_skip"] and queries == keys and (end == torch.arange(1, queries + 1)).all())


def heed_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: Any = "cpu",
    **kwargs: Any,
) -> Tensor | None:
    """transformers' sdpa_mask as a RowMask.

    Returns None for a plain mask, as sdpa_mask does, except for a cache with free space: if there are fewer queries
    than keys, heed takes them as the last ones. Returns the matrix while a graph is traced, on other devices, and if a
    row has more than MOST_RUNS runs."""
    call = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset,
            "kv_offset": kv_offset, "mask_function": mask_function, "attention_mask": attention_mask,
            "local_size": local_size, "use_vmap": use_vmap, "device": device,
            "allow_is_causal_skip": allow_is_causal_skip and q_length in (1, kv_length),
            "allow_is_bidirectional_skip": allow_is_bidirectional_skip}
    if is_tracing(attention_mask) or is_tracing(q_offset) or torch.device(device).type != "cpu":
        return sdpa_mask(**call)
    if attention_mask is not None and (attention_mask.dim() != 2 or attention_mask.dtype != torch.bool
                                       or attention_mask.shape[0] != batch_size):
        return sdpa_mask(**call)
    try:
        found, seen = described(call)
    except Undescribed as unknown:
        say_once(f"the mask of {unknown} is stored as a matrix because its rows have more than {MOST_RUNS} runs of "
                 f"keys each")
        return sdpa_mask(**(call | {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}))
    if seen is None and is_skipped(found, call):
        return None
    return RowMask.make(found.clamp(0, kv_length).to(torch.int32), seen,
                        (batch_size, 1, q_length, kv_length), int(q_offset) - int(kv_offset))
