"""Summary: per-row statistics of the weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from .._torch_tensors import whole
from ._ops import in_short

SUMMARY = ("lse", "max_score", "entropy")  # requested from heed.torch.attention, beside the top k


class Summary(NamedTuple):
    """Per-row statistics of the weights, at any length; K is top_k.

    Gradients flow through lse. The other fields have requires_grad False."""

    lse: Tensor  #: [..., H, L]: log of the softmax denominator
    max_score: Tensor  #: [..., H, L]: the largest score
    entropy: Tensor  #: [..., H, L]: entropy of the weights, in nats
    top_k_index: Tensor  #: [..., H, L, K]: the most attended keys, -1 beyond the allowed ones
    top_k_weight: Tensor  #: [..., H, L, K]: their weights

    def __repr__(self) -> str:
        return in_short(self)


def summarised(function: str, top_k: Any) -> int:
    """The number of keys that a summary lists."""
    count: int = whole(f"{function}: top_k", top_k)
    if count < 1:
        raise ValueError(f"{function}: top_k is {count}; 1 or more is expected with return_summary")
    return count
