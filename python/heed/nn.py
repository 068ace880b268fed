"""Layers for NumPy, with arrays as parameters and PyTorch's initialisation.

A layer takes an array [L, D] or [B, L, D] of its parameters' dtype. Attention layers also take the options of
heed.attention. A layer returns its output, or a LayerResult if further results were requested.

parameters() returns arrays in the layer's own memory. They stay valid after load(), and after the layer is deleted.
Threads may call, save and load a layer at the same time. No other thread may use a layer while its arrays are modified.
"""

from ._missing import NOT_BUILT

try:
    from ._heed import Embedding, Generator, LayerResult, Linear, MultiHeadAttention, SelfAttention
except ImportError:
    raise ImportError(NOT_BUILT.format("nn")) from None

__all__ = ["Embedding", "Generator", "LayerResult", "Linear", "MultiHeadAttention", "SelfAttention"]
