"""The extension module of heed.distributed, available if heed was built with MPI."""

from collections.abc import Sequence
from typing import Any, Literal

from . import _heed
from ._heed import Array, Need, ScoresStage

Scheme = Literal["automatic", "ring", "gather", "ulysses", "decode"]

class CallOptions(_heed.AttentionOptions, total=False):
    """All options of heed.attention."""

    need: Need
    top_k: int | None
    received_last: int | None
    map: tuple[int, int] | None
    scores_stage: ScoresStage | None
    out: Any
    output_dtype: Any

class Sharding:
    """The positions of a sequence that each rank holds. A rank's rows are its positions in ascending order."""

    @staticmethod
    def contiguous(length: int, ranks: int) -> Sharding: ...
    @staticmethod
    def zigzag(length: int, ranks: int) -> Sharding: ...
    @staticmethod
    def striped(length: int, ranks: int, stripe: int = 192) -> Sharding: ...
    @staticmethod
    def from_ranges(ranges: Sequence[Sequence[tuple[int, int]]]) -> Sharding: ...
    @property
    def ranks(self) -> int: ...
    @property
    def length(self) -> int: ...
    def rows(self, rank: int) -> int: ...
    def ranges(self, rank: int) -> list[tuple[int, int]]: ...
    def position(self, rank: int, row: int) -> int: ...
    def rank_of(self, position: int) -> int: ...
    def row_of(self, position: int) -> int: ...
    def shard(self, array: Array, axis: int, rank: int) -> Array: ...
    def join(self, shards: Sequence[Array], axis: int) -> Array: ...
    def __eq__(self, arg: object, /) -> bool: ...

class AttentionResult(_heed.AttentionResult[Array]):
    """The results of a call over ranks."""

    @property
    def scheme(self) -> Scheme: ...
    @property
    def bytes_sent(self) -> int: ...

class AttentionGradients(_heed.AttentionGradients[Array]):
    """The results of a backward call over ranks."""

    @property
    def scheme(self) -> Scheme: ...
    @property
    def bytes_sent(self) -> int: ...

def attention(
    comm: int, q: Array, k: Any, v: Any, layout: Any, scheme: str, deterministic: bool, options: object, /
) -> AttentionResult[Array]: ...
def attention_backward(
    comm: int,
    q: Array,
    k: Any,
    v: Any,
    output: Any,
    lse: Any,
    grad_output: Any,
    layout: Any,
    grad_lse: Any,
    grad_weights: Any,
    gradients: Any,
    scheme: str,
    deterministic: bool,
    options: object,
    /,
) -> AttentionGradients[Array]: ...
def library() -> tuple[str, bool]: ...
def use_target(name: str) -> None: ...
