"""Cache: keys and values of transformers' models in heed's KvCache, which heed's attention reads in place."""

from __future__ import annotations

import functools
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from ._heed import KvCache
from ._hf_masks import FAR
from ._hf_row_mask import RowMask, say_once
from ._hf_versions import rows_of, to_take_back
from ._places import require_method, whole

FORMATS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
aten = torch.ops.aten


def hadamard(size: int) -> Tensor:
    """The orthonormal matrix that rotates keys. Its blocks have the largest power of two that divides the size."""
    block = size & -size
    matrix = torch.ones(1, 1)
    while len(matrix) < block:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return torch.block_diag(*[matrix / block**0.5] * (size // block))


class CachedRows(Tensor):  # type: ignore[misc]
    """The keys or values of a layer, [B, Hkv, length, D], as a model passes them to its attention function.

    The model sees a tensor. heed's attention function takes the KvCache instead, and any other operation gets a copy of
    the rows."""

    layer: Layer
    are_keys: bool

    @staticmethod
    def make(layer: Layer, are_keys: bool) -> CachedRows:
        cache = layer.kv
        shape = (len(layer.sequences), cache.kv_heads, layer.length, cache.key_dim if are_keys else cache.value_dim)
        rows: CachedRows = Tensor._make_wrapper_subclass(CachedRows, shape, dtype=layer.dtype)
        rows.layer, rows.are_keys = layer, are_keys
        return rows

    def current(self) -> Layer:
        """The layer. Raises RuntimeError if it has changed since the model got these rows."""
        if self.layer.length != self.shape[2]:
            raise RuntimeError(f"the cache has {self.layer.length} positions, but had {self.shape[2]} when the model "
                               f"received its rows: expected no change in between")
        return self.layer

    def dense(self) -> Tensor:
        layer = self.current()
        if layer.places() is not None:
            raise RuntimeError("rows of the cache were evicted, but the model itself computes with all of them: "
                               'expected attn_implementation="heed" without gradients')
        read = layer.kv.keys if self.are_keys else layer.kv.values
        rows = torch.stack([torch.from_numpy(read(number)) for number in layer.sequences])
        if self.are_keys and layer.kv.rotate:
            rows = rows @ hadamard(rows.shape[3]).T
        return rows.to(self.dtype)

    def spread(self, columns: Tensor) -> Tensor:
        """Expands a result over the stored rows, [B, …, rows], to all positions, [B, …, length], with 0 for evicted
        rows."""
        places = self.layer.places()
        if places is None:
            return columns
        index = places.clamp(max=self.shape[2]).reshape(len(places), *[1] * (columns.dim() - 2), -1)
        whole = columns.new_zeros(*columns.shape[:-1], self.shape[2] + 1)  # the last column collects padding
        return whole.scatter_(-1, index.expand(columns.shape), columns)[..., :-1]

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.dense()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.dense().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return f"CachedRows({list(self.shape)}, {'keys' if self.are_keys else 'values'} of {self.layer.kv})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (aten.detach.default, aten.alias.default):
            return CachedRows.make(args[0].layer, args[0].are_keys)
        say_once(f"a model applies {func} to cached keys or values, so they are copied")
        plain = torch.utils._pytree.tree_map_only(CachedRows, CachedRows.dense, (args, kwargs or {}))
        return func(*plain[0], **plain[1])


class Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer of a Cache. `kv` is its heed.KvCache, or None before the first rows."""

    is_sliding = False
    is_compileable = False
    supports_early_init = False

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.is_croppable = options["layout"] != "ring"
        self.reset()

    def reset(self) -> None:
        self.kv: Any = None
        self.sequences: list[int] = []  #: one sequence of kv per batch entry
        self.length = 0
        self.is_initialized = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        batch, heads, _, dim = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        given = self.options | {"format": self.options["format"] or FORMATS.get(self.dtype, "f32")}
        if given["layout"] == "paged":
            given["capacity"] *= batch
        self.kv = KvCache(batch=batch, kv_heads=heads, key_dim=dim, value_dim=value_states.shape[3], **given)
        self.capacity = given["capacity"]
        self.sequences = list(range(batch))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Appends rows. The first rows, a prompt, attend to each other as given; later rows attend to the stored
        ones."""
        if torch.is_grad_enabled() and (key_states.requires_grad or value_states.requires_grad):
            raise ValueError("keys require gradients, which heed.transformers.Cache does not store: expected "
                             "torch.no_grad()")
        rows, first = key_states.shape[2], self.length == 0
        if not first and self.options["layout"] == "ring" and rows > self.options["window"]:
            raise ValueError(f"{rows} rows arrive in a ring at once; at most its window, {self.options['window']}, "
                             "are expected after the prompt")
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self._make_room(rows)
        self._append(key_states.detach(), value_states.detach())
        self.length += rows
        return (key_states, value_states) if first else (self.keys, self.values)

    def _append(self, key: Tensor, value: Tensor) -> None:
        if self.sequences == list(range(self.kv.batch)):
            self.kv.append(key, value)
            return
        rows = key.shape[2]
        packed = (x.transpose(0, 1).flatten(1, 2)[None] for x in (key, value))
        self.kv.append(*packed, offsets=range(0, rows * len(self.sequences) + 1, rows), sequences=self.sequences)

    def _make_room(self, rows: int) -> None:
        layout = self.options["layout"]
        if layout == "contiguous" and self.length + rows > self.capacity:
            self.capacity = max(self.length + rows, 2 * self.capacity)
            self.kv.reserve(self.capacity)
        elif layout == "paged":
            size, stats = self.kv.page_size, self.kv.stats()
            # Pages per sequence: new rows, and copies of shared pages that are written to.
            needed = len(self.sequences) * ((rows + self.options["group"]) // size + 3)
            if needed > stats["free_pages"]:
                self.kv.reserve((stats["pages"] + max(needed, stats["pages"])) * size)

    @property
    def keys(self) -> Any:
        return CachedRows.make(self, True) if self.length else None

    @property
    def values(self) -> Any:
        return CachedRows.make(self, False) if self.length else None

    def places(self) -> Tensor | None:
        """The positions of the stored rows, [B, most rows], padded with FAR; None if no row was evicted."""
        rows = self.kv.rows[self.sequences]
        if (rows == self.length).all():
            return None
        places = torch.full((len(rows), int(rows.max())), FAR, dtype=torch.int64)
        for b, number in enumerate(self.sequences):
            places[b, :rows[b]] = torch.from_numpy(self.kv.positions(number))
        return places

    def get_mask_sizes(self, query_length: int | Tensor) -> tuple[int, int]:
        """Masks have a column for each position, including evicted ones."""
        return self.length + rows_of(query_length), 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name in 4.57

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the last -tokens_to_remove rows."""
        tokens_to_remove = to_take_back(tokens_to_remove, self.length)
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove is {tokens_to_remove}; 0 or a negative number is expected")
        if not tokens_to_remove or not self.is_initialized:
            return
        if not self.is_croppable and self.places() is not None:
            raise ValueError("a ring has evicted rows, which crop() cannot restore: expected layout='paged' or "
                             "'contiguous'")
        self.length = max(0, self.length + tokens_to_remove)
        for number in self.sequences:
            self.kv.truncate(number, self.length)

    def _select(self, entries: list[int]) -> None:
        """Batch entry i becomes a copy of entry entries[i]. Copies of the same entry share its pages."""
        if not self.is_initialized:
            return
        if len(set(entries)) < len(entries) and self.options["layout"] != "paged":
            raise ValueError(f"layout is {self.options['layout']!r}, but a sequence continues as several; 'paged' is "
                             "expected")
        for number in set(self.sequences) - {self.sequences[entry] for entry in entries}:
            self.kv.release(number)  # the next fork reuses this number
        chosen: list[int] = []
        for entry in entries:
            number = self.sequences[entry]
            chosen.append(self.kv.fork(number) if number in chosen else number)
        self.sequences = chosen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._select(beam_idx.tolist())

    def batch_select_indices(self, indices: Tensor) -> None:
        self._select(torch.arange(len(self.sequences))[indices].tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._select([entry for entry in range(len(self.sequences)) for _ in range(repeats)])

    def offload(self) -> None:
        """Does nothing: rows are always in CPU memory."""

    def prefetch(self) -> None:
        """Does nothing: rows are always in CPU memory."""


class Cache(transformers.Cache):  # type: ignore[misc]
    """A cache for `generate(past_key_values=…)`: keys and values in heed's KvCache.

    attn_implementation="heed" reads the stored rows in place; other implementations get copies.

    config: the model's config. Models with other states than keys and values (such as Mamba) need it.
    layout: "paged" (required for beam search), "contiguous", or "ring", which keeps `sinks` first and `window` last
    rows.
    format: "f32", "bf16", "f16", "int8", "int4" or "fp8"; None uses the model's dtype. Quantised formats use `group`
    and `rotate` as in heed.KvCache.
    capacity: the initial number of rows per sequence; it grows as needed.

    A prompt attends to itself as without a cache; later tokens attend to the stored rows. Rows that are appended
    together see the rows that a ring holds after them. `layers[i].kv` is a layer's KvCache. Masks and `capture` count
    positions, including evicted ones.
    """

    def __init__(self, config: Any = None, *, layout: str = "paged", format: str | None = None, capacity: int = 256,
                 page_size: int = 16, sinks: int = 0, window: int = 0, group: int = 32, rotate: bool = False) -> None:
        if config is not None:
            require_method("config", config, "get_text_config", "a configuration of transformers, or None,")
        options: dict[str, Any] = {"layout": layout, "format": format, "page_size": page_size, "sinks": sinks,
                                   "window": window, "group": group, "rotate": rotate,
                                   "capacity": 0 if layout == "ring" else whole("capacity", capacity)}
        if rotate and format is None:
            raise ValueError("rotate is True without a format; 'int8', 'int4' or 'fp8' is expected with it")
        KvCache(kv_heads=1, key_dim=2, **options | {"format": format or "f32", "capacity": options["capacity"] and 1})
        if options["capacity"] < 1 and layout != "ring":
            raise ValueError(f"capacity is {capacity}; 1 or more is expected")
        if config is None:
            super().__init__(layer_class_to_replicate=functools.partial(Layer, options))  # a lambda cannot be pickled
        else:
            super().__init__(layers=[
                Layer(options) if type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) else layer
                for layer in DynamicCache(config=config).layers])

    def __repr__(self) -> str:
        caches = [layer.kv for layer in self.layers if isinstance(layer, Layer) and layer.kv is not None]
        return f"<Cache: layers {len(self.layers)}, each with {caches[0] if caches else 'nothing yet'}>"


def dense(x: Tensor) -> Tensor:
    return x.dense() if isinstance(x, CachedRows) else x


def of_held(x: Tensor | None, places: Tensor) -> Tensor | None:
    """The columns of the stored rows in a mask or bias [B or 1, H or 1, Lq, length]."""
    if x is None or x.shape[-1] == 1:
        return x
    return torch.take_along_dim(x, places.clamp(max=x.shape[-1] - 1)[:, None, None], 3)


def row_mask_of_held(mask: RowMask | None, places: Tensor) -> RowMask | None:
    """The same for runs: each begins and ends at the first stored row at or after its position."""
    if mask is None:
        return None
    batch, runs = len(places), mask.runs.to(torch.int64)
    runs = runs.expand(batch, -1, -1, -1)
    found = torch.searchsorted(places, runs.reshape(batch, -1).contiguous()).reshape(runs.shape).to(torch.int32)
    seen = mask.seen
    if seen is not None:
        seen = torch.take_along_dim(seen, places.clamp(max=seen.shape[1] - 1), 1)
    return RowMask.make(found, seen, (batch, *mask.shape[1:3], places.shape[1]), mask.position)
