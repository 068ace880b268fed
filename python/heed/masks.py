"""Named masks in memory that grows linearly with the length: heed.attention(…, mask=heed.masks.documents([…]))."""

from . import _heed
from ._heed.masks import *  # noqa: F403 (masks.pyi has their types)

__all__ = [name for name in dir(_heed.masks) if not name.startswith("_")]
