"""What differs between the versions of transformers, from 4.57 on."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import masking_utils
from transformers.cache_utils import DynamicLayer
from transformers.utils import import_utils

BY_POSITIONS = "cache_position" in inspect.signature(masking_utils.sdpa_mask).parameters  # how masks name their rows
CROP_KEEPS = "max_length" in inspect.signature(DynamicLayer.crop).parameters  # crop() is told how many tokens stay

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
    """transformers' own, of rows by their number and offset."""
    if BY_POSITIONS:
        call["cache_position"] = torch.arange(call.pop("q_length")) + call.pop("q_offset")
        for name in ("use_vmap", "device"):
            call.pop(name, None)
    found: Tensor | None = masking_utils.sdpa_mask(**call)
    return found


def collects_weights() -> bool:
    """Whether what layers return is collected; before 5 the layers are told so themselves."""
    if output_capturing is None:
        return False
    collector = output_capturing._active_collector
    collected = collector.global_var if torch.compiler.is_compiling() else collector.get()
    return collected is not None and any("attentions" in key for key in collected)


def mask_function(function: Any) -> Any:
    """heed's mask function as this version calls it: rows by their number and offset, or by positions."""
    if not BY_POSITIONS:
        return function

    def by_positions(batch_size: int, cache_position: Tensor, kv_length: int, kv_offset: int = 0, **call: Any) -> Any:
        offset = int(cache_position[0]) if len(cache_position) and not is_tracing(cache_position) else 0
        return function(batch_size, len(cache_position), kv_length, offset, kv_offset, **call)

    return by_positions


def rows_of(queries: int | Tensor) -> int:
    """How many queries a cache is told of: a number, or their positions."""
    return len(queries) if isinstance(queries, Tensor) else queries


def to_take_back(tokens: int, length: int) -> int:
    """How many of so many tokens crop() takes back, as a number below 0; older versions may say how many stay."""
    return min(0, tokens - length) if CROP_KEEPS and tokens > 0 else tokens

