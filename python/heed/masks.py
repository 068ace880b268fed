"""Named masks in memory that grows linearly with the length: heed.attention(…, mask=heed.masks.documents([…]))."""

from ._heed import (SparseMask, axial, bigbird, dilated, documents, lightning_indexer, neighbourhood, prefix_lm,
                    shared_question, sinks_and_window, sliding_window)

__all__ = ["SparseMask", "axial", "bigbird", "dilated", "documents", "lightning_indexer", "neighbourhood", "prefix_lm", "shared_question",
           "sinks_and_window", "sliding_window"]
