"""heed for PyTorch, on the CPU.

    heed.torch.scaled_dot_product_attention   as torch.nn.functional's, with gradients and torch.compile
    heed.torch.attention                      all that heed.attention computes, the same way
    heed.torch.MultiheadAttention             drop-in for torch.nn.MultiheadAttention
"""

from .. import _missing

_missing.need("torch", "heed.torch", "torch")

from ._multihead import MultiheadAttention  # noqa: E402
from ._ops import Attended, attention  # noqa: E402
from ._sdpa import Summary, scaled_dot_product_attention  # noqa: E402

__all__ = ["Attended", "MultiheadAttention", "Summary", "attention", "scaled_dot_product_attention"]
