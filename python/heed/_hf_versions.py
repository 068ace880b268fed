"""Differences between the versions of transformers, from 4.57 on."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import masking_utils
from transformers.cache_utils import DynamicLayer
from transformers.utils import import_utils

BY_POSITIONS = "cache_position" in inspect.signature(masking_utils.sdpa_mask).parameters  # rows by position
CROP_KEEPS = "max_length" in inspect.signature(DynamicLayer.crop).parameters  # crop() takes the length to keep

try:
    from transformers.utils import output_capturing
except ImportError:
    output_capturing = None

if hasattr(import_utils, "is_tracing"):
    is_tracing = import_utils.is_tracing
else:
    def is_tracing(tensor: Any = None) -> bool:
        """Whether a graph is being traced."""
        from torch._subclasses.fake_tensor import FakeTensor

        return torch.compiler.is_compiling() or torch.jit.is_tracing() or isinstance(tensor, FakeTensor)


def sdpa_mask(**call: Any) -> Tensor | None:
    """transformers' sdpa_mask, for rows given by number and offset."""
    if BY_POSITIONS:
        call["cache_position"] = torch.arange(call.pop("q_length")) + call.pop("q_offset")
        for name in ("use_vmap", "device"):
            call.pop(name, None)
    found: Tensor | None = masking_utils.sdpa_mask(**call)
    return found


def collects_weights() -> bool:
    """Whether the model collects its layers' weights. Before version 5 the layers receive the flag themselves."""
    if output_capturing is None:
        return False
    collector = output_capturing._active_collector
    collected = collector.global_var if torch.compiler.is_compiling() else collector.get()
    return collected is not None and any("attentions" in key for key in collected)


def mask_function(function: Any) -> Any:
    """heed's mask function with this version's arguments: rows by number and offset, or by positions."""
    if not BY_POSITIONS:
        return function

    def by_positions(batch_size: int, cache_position: Tensor, kv_length: int, kv_offset: int = 0, **call: Any) -> Any:
        offset = int(cache_position[0]) if len(cache_position) and not is_tracing(cache_position) else 0
        return function(batch_size, len(cache_position), kv_length, offset, kv_offset, **call)

    return by_positions


def rows_of(queries: int | Tensor) -> int:
    """The number of queries that a cache is given: a number, or their positions."""
    return len(queries) if isinstance(queries, Tensor) else queries


def to_take_back(tokens: int, length: int) -> int:
    """The argument of crop() as a non-positive number of tokens to remove. Older versions may pass the length to
    keep."""
    return min(0, tokens - length) if CROP_KEEPS and tokens > 0 else tokens

