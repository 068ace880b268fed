"""The extension module; heed is where its names are public."""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypedDict, TypeVar, overload

Array = TypeVar("Array")

__version__: str

Align = Literal["top-left", "bottom-right"]
NeedName = Literal["lse", "max_score", "entropy", "distance", "received", "weights", "scores"]
Need = NeedName | Sequence[NeedName] | None
KernelName = Literal["automatic", "reference", "fused"]
ScoresStage = Literal["raw", "softcap", "bias"]

class AttentionOptions(TypedDict, total=False):
    """The keyword arguments that say what a call computes; None is the default of each."""

    causal: bool | None
    window: tuple[int | None, int | None] | None
    mask: Any
    bias: Any
    scale: float | None
    softcap: float | None
    alibi: Any
    sinks: Any
    kv_lengths: Any
    cu_seqlens: Any
    align: Align | None
    query_offset: int | None
    dropout: float | None
    seed: int | None
    dropout_offset: int | None
    kernel: KernelName | None
    threads: int | None

class Info(TypedDict):
    version: str
    compiler: str
    build_type: str
    flags: str
    processor: str
    features: list[str]
    kernel: str
    isa: str
    threads: int

class AttentionResult(Generic[Array]):
    """What a call computed; None for what was not asked for."""

    @property
    def output(self) -> Array: ...
    @property
    def weights(self) -> Array: ...
    @property
    def scores(self) -> Array: ...
    @property
    def lse(self) -> Array: ...
    @property
    def max_score(self) -> Array: ...
    @property
    def entropy(self) -> Array: ...
    @property
    def distance(self) -> Array: ...
    @property
    def top_k_index(self) -> Array: ...
    @property
    def top_k_weight(self) -> Array: ...
    @property
    def received(self) -> Array: ...
    @property
    def received_last(self) -> Array: ...
    @property
    def map(self) -> Array: ...
    @property
    def kernel(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...

def info() -> Info: ...
@overload
def attention(
    q: Array,
    k: Any,
    v: Any,
    *,
    causal: bool | None = None,
    window: tuple[int | None, int | None] | None = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi: Any = None,
    sinks: Any = None,
    kv_lengths: Any = None,
    cu_seqlens: Any = None,
    align: Align | None = None,
    query_offset: int | None = None,
    dropout: float | None = None,
    seed: int | None = None,
    dropout_offset: int | None = None,
    need: None = None,
    top_k: None = None,
    received_last: None = None,
    map: None = None,
    scores_stage: ScoresStage | None = None,
    out: Array | None = None,
    output_dtype: Any = None,
    kernel: KernelName | None = None,
    threads: int | None = None,
) -> Array: ...
@overload
def attention(
    q: Array,
    k: Any,
    v: Any,
    *,
    causal: bool | None = None,
    window: tuple[int | None, int | None] | None = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi: Any = None,
    sinks: Any = None,
    kv_lengths: Any = None,
    cu_seqlens: Any = None,
    align: Align | None = None,
    query_offset: int | None = None,
    dropout: float | None = None,
    seed: int | None = None,
    dropout_offset: int | None = None,
    need: Need = None,
    top_k: int | None = None,
    received_last: int | None = None,
    map: tuple[int, int] | None = None,
    scores_stage: ScoresStage | None = None,
    out: Array | None = None,
    output_dtype: Any = None,
    kernel: KernelName | None = None,
    threads: int | None = None,
) -> AttentionResult[Array]: ...
