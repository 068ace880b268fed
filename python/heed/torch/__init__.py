"""heed for PyTorch, on the CPU.

    heed.torch.scaled_dot_product_attention   as torch.nn.functional's, with gradients and torch.compile
    heed.torch.flex_attention                 as torch.nn.attention.flex_attention's, with its BlockMask and gradients
    heed.torch.varlen_attention               packed sequences, as FlashAttention's flash_attn_varlen_func
    heed.torch.attention                      all results of heed.attention, with gradients
    heed.torch.MultiheadAttention             drop-in for torch.nn.MultiheadAttention
"""

from .. import _missing

_missing.need("torch", "heed.torch")

from ._block_mask import from_block_mask  # noqa: E402
from ._flex import flex_attention  # noqa: E402
from ._held import mask_tensor  # noqa: E402
from ._multihead import MultiheadAttention  # noqa: E402
from ._ops import Attended, attention  # noqa: E402
from ._packed import varlen_attention  # noqa: E402
from ._sdpa import scaled_dot_product_attention  # noqa: E402
from ._summary import Summary  # noqa: E402

__all__ = ["Attended", "MultiheadAttention", "Summary", "attention", "flex_attention", "from_block_mask", "mask_tensor",
           "scaled_dot_product_attention", "varlen_attention"]
