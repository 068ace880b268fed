"""Layers for NumPy: the parameters are arrays, initialised as PyTorch initialises its own.

A layer is called with an array [L, D] or [B, L, D] of the dtype of its parameters, and, where it attends, with the
options of heed.attention. It gives its output, or, where more was asked for, a LayerResult.

The arrays that parameters() gives are the layer's own memory: they stay so after load(), and live on without the layer.
Threads may call, save and load a layer at the same time; who writes into its arrays sees to it that none does meanwhile.
"""

from ._missing import NEEDS_BLAS

try:
    from ._heed import Embedding, Generator, LayerResult, Linear, MultiHeadAttention, SelfAttention
except ImportError:
    raise ImportError(NEEDS_BLAS.format("nn")) from None

__all__ = ["Embedding", "Generator", "LayerResult", "Linear", "MultiHeadAttention", "SelfAttention"]
