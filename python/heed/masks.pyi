"""Named masks in memory that grows linearly with the length: heed.attention(…, mask=heed.masks.documents([…]))."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._heed import SparseMask as SparseMask

def lightning_indexer(
    query: Any,
    key: Any,
    weights: Any,
    top_k: int,
    *,
    causal: bool = True,
    query_offset: int = 0,
    threads: int | None = None,
) -> npt.NDArray[np.int32]: ...
def prefix_lm(prefix: int, queries: int, keys: int) -> SparseMask: ...
def documents(lengths: Sequence[int], *, causal: bool = True) -> SparseMask: ...
def sliding_window(left: int, right: int, queries: int, keys: int) -> SparseMask: ...
def sinks_and_window(sinks: int, window: int, queries: int, keys: int) -> SparseMask: ...
def dilated(reach: int, step: int, queries: int, keys: int) -> SparseMask: ...
def shared_question(question: int, answers: Sequence[int]) -> SparseMask: ...
def bigbird(
    block: int, global_blocks: int, window: int, random: int, seed: int, queries: int, keys: int
) -> SparseMask: ...
def neighbourhood(
    grid: Sequence[int],
    window: int | Sequence[int],
    *,
    dilation: int | Sequence[int] = 1,
    causal: bool | Sequence[bool] = False,
    first_query: int = 0,
    queries: int | None = None,
    keys: int | None = None,
) -> SparseMask: ...
def axial(
    grid: Sequence[int],
    axis: int | None = None,
    *,
    first_query: int = 0,
    queries: int | None = None,
    keys: int | None = None,
) -> SparseMask: ...
