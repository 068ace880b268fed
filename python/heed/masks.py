"""Named masks in memory that grows linearly with the length: heed.attention(…, mask=heed.masks.documents([…]))."""

from ._heed import (SparseMask, bigbird, dilated, documents, lightning_indexer, prefix_lm, shared_question,
                    sinks_and_window, sliding_window)

__all__ = ["SparseMask", "bigbird", "dilated", "documents", "lightning_indexer", "prefix_lm", "shared_question",
           "sinks_and_window", "sliding_window"]
