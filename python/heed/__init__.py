"""Attention that shows its weights."""

from ._heed import AttentionResult, __version__, attention, info

__all__ = ["AttentionResult", "__version__", "attention", "info"]
