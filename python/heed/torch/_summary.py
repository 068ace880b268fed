"""Summary: what the weights look like, row by row."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ._ops import in_short

SUMMARY = ("lse", "max_score", "entropy")  # what heed.torch.attention is asked for, beside the top k


class Summary(NamedTuple):
    """What the weights look like, row by row, at any length; K is top_k. Gradients flow through lse; the others have
    none (requires_grad is False)."""

    lse: Tensor  #: [..., H, L]: log of the softmax denominator
    max_score: Tensor  #: [..., H, L]: the largest score
    entropy: Tensor  #: [..., H, L]: of the weights, in nats
    top_k_index: Tensor  #: [..., H, L, K]: the most attended keys, -1 beyond the allowed ones
    top_k_weight: Tensor  #: [..., H, L, K]: their weights

    def __repr__(self) -> str:
        return in_short(self)
