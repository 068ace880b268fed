"""Named masks in memory that grows linearly with the length: heed.attention(…, mask=heed.masks.documents([…]))."""

from ._heed.masks import *  # noqa: F403 (masks.pyi has their types)
