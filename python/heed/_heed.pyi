"""The extension module. Its public names are in heed."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypedDict, TypeVar, overload

import numpy as np
import numpy.typing as npt

Array = TypeVar("Array")

__version__: str

Align = Literal["top-left", "bottom-right"]
NeedName = Literal["lse", "max_score", "entropy", "distance", "masked_mass", "received", "weights", "scores"]
Need = NeedName | Sequence[NeedName] | None
ROW_RESULTS: tuple[str, ...]  # of shape [B, H, Lq]
GradientName = Literal["dq", "dk", "dv", "dbias", "dsinks", "ddecay"]
KernelName = Literal["automatic", "reference", "fused"]
ScoresStage = Literal["raw", "softcap", "bias"]

SliceKind = Literal["full", "causal", "inverse_causal", "both_causal", 0, 1, 2, 3]

class SparseMask:
    """The keys that each query may attend to: attention(mask=…).

    Memory grows linearly with the length. Masks combine with &."""

    def __init__(self) -> None: ...
    @staticmethod
    def rows(intervals: Any, keys: int) -> SparseMask: ...
    @staticmethod
    def columns(intervals: Any, queries: int) -> SparseMask: ...
    @staticmethod
    def key_lists(
        indices: Any, keys: int, counts: Any = None, *, gather: Literal["automatic", "never", "always"] = "automatic"
    ) -> SparseMask: ...
    @staticmethod
    def flash(startend_row_indices: Any, *, causal: bool, queries: int) -> SparseMask: ...
    @staticmethod
    def slices(
        slices: Sequence[tuple[tuple[int, int], tuple[int, int], SliceKind]], queries: int, keys: int
    ) -> SparseMask: ...
    @staticmethod
    def blocks(offsets: Any, indices: Any, *, block_size: tuple[int, int], queries: int, keys: int) -> SparseMask: ...
    @staticmethod
    def block_mask(
        kv_num_blocks: Any,
        kv_indices: Any,
        full_kv_num_blocks: Any = None,
        full_kv_indices: Any = None,
        *,
        partial: Any = None,
        block_size: tuple[int, int] = (128, 128),
        queries: int,
        keys: int,
    ) -> SparseMask: ...
    @staticmethod
    def expression(text: str, queries: int, keys: int, **arrays: Any) -> SparseMask: ...
    def __and__(self, other: SparseMask, /) -> SparseMask: ...
    @property
    def shape(self) -> tuple[int, int, int, int]: ...
    @property
    def nbytes(self) -> int: ...
    def dense(self) -> npt.NDArray[np.bool_]: ...
    def runs(self, batch: int, head: int, row: int) -> list[tuple[int, int]]: ...

class ScoreMod:
    """A change of the scores, after scale and softcap and before the bias."""

    @staticmethod
    def expression(text: str, **arrays: Any) -> ScoreMod: ...

class AttentionOptions(TypedDict, total=False):
    """The keyword arguments that define a call; the default of each is None."""

    causal: bool | None
    window: tuple[int | None, int | None] | None
    mask: Any
    sparse_mask: SparseMask | None
    bias: Any
    scale: float | None
    softcap: float | None
    score_mod: ScoreMod | None
    alibi: Any
    decay: Any
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
    """The results of a call; results that were not requested are None."""

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
    def masked_mass(self) -> Array: ...
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
    @property
    def recomputed_rows(self) -> int: ...

CacheLayout = Literal["contiguous", "paged", "ring"]
CacheFormat = Literal["f32", "bf16", "f16", "int8", "int4", "fp8"]
PageOrder = Literal["hnd", "nhd"]

class KvCacheStats(TypedDict):
    """Sizes of a cache.

    rows: stored rows over all sequences; a shared row counts once per sequence. capacity: rows that fit in the
    allocated memory. Three entries add up to the total memory. bytes: keys, values and scales. tail_bytes: rows whose
    quantisation group is incomplete. table_bytes: all tables."""

    rows: int
    capacity: int
    pages: int
    free_pages: int
    shared_pages: int
    bytes: int
    tail_bytes: int
    table_bytes: int

class KvCache:
    """Keys and values that are computed once and attended to by later calls: attention(q, cache)."""

    def __init__(
        self,
        *,
        batch: int = 1,
        kv_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        capacity: int = 0,
        layout: CacheLayout = "contiguous",
        page_size: int = 16,
        page_order: PageOrder = "hnd",
        sinks: int = 0,
        window: int = 0,
        format: CacheFormat = "f32",
        group: int = 32,
        rotate: bool = False,
        values_in_keys: bool = False,
    ) -> None: ...
    @staticmethod
    def over(key: Any, value: Any, lengths: Any, *, writable: bool = False) -> KvCache: ...
    @staticmethod
    def over_block_table(
        key_pool: Any,
        value_pool: Any,
        block_table: Any,
        lengths: Any,
        *,
        page_order: PageOrder = "nhd",
        writable: bool = False,
    ) -> KvCache: ...
    @staticmethod
    def over_page_indices(
        key_pool: Any,
        value_pool: Any,
        indptr: Any,
        indices: Any,
        last_page_len: Any,
        *,
        page_order: PageOrder = "nhd",
        writable: bool = False,
    ) -> KvCache: ...
    @staticmethod
    def load(path: str | os.PathLike[str]) -> KvCache:
        """The cache that save() wrote."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file, which load() and `heed attend --cache` read."""

    def append(self, key: Any, value: Any = None, offsets: Any = None, sequences: Any = None) -> None: ...
    def truncate(self, sequence: int, length: int) -> None: ...
    def fork(self, sequence: int) -> int: ...
    def release(self, sequence: int) -> None: ...
    def clear(self, sequence: int) -> None: ...
    def evict(self, sequence: int, positions: Any) -> None: ...
    def reserve(self, rows: int) -> None: ...
    def add_received(self, received: Any, decay: float = 1.0, sequences: Any = None) -> None: ...
    def positions(self, sequence: int) -> npt.NDArray[np.int64]: ...
    def keys(self, sequence: int) -> npt.NDArray[np.float32]: ...
    def values(self, sequence: int) -> npt.NDArray[np.float32]: ...
    def received(self, sequence: int) -> npt.NDArray[np.float32]: ...
    def stats(self) -> KvCacheStats: ...
    @property
    def lengths(self) -> npt.NDArray[np.int64]: ...
    @property
    def rows(self) -> npt.NDArray[np.int64]: ...
    @property
    def batch(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def key_dim(self) -> int: ...
    @property
    def value_dim(self) -> int: ...
    @property
    def page_size(self) -> int: ...
    @property
    def rotate(self) -> bool: ...
    @property
    def values_in_keys(self) -> bool: ...
    @property
    def format(self) -> CacheFormat: ...
    @property
    def layout(self) -> CacheLayout: ...

class Target(TypedDict):
    name: str
    description: str
    required: list[str]
    available: bool
    chosen: bool
    why: str

def info() -> Info: ...
def targets() -> list[Target]: ...
def set_target(name: str) -> None: ...
def target() -> str:
    """The name of the target in use."""

def set_leak_warnings(value: bool, /) -> None: ...
@overload
def attention(
    q: Array,
    k: KvCache,
    v: None = None,
    *,
    sequences: Any = None,
    tree_parents: Any = None,
    tree_mask: Any = None,
    causal: bool | None = None,
    window: tuple[int | None, int | None] | None = None,
    mask: Any = None,
    sparse_mask: SparseMask | None = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: ScoreMod | None = None,
    alibi: Any = None,
    decay: Any = None,
    sinks: Any = None,
    cu_seqlens: Any = None,
    align: Literal["bottom-right"] | None = None,
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
    k: KvCache,
    v: None = None,
    *,
    sequences: Any = None,
    tree_parents: Any = None,
    tree_mask: Any = None,
    causal: bool | None = None,
    window: tuple[int | None, int | None] | None = None,
    mask: Any = None,
    sparse_mask: SparseMask | None = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: ScoreMod | None = None,
    alibi: Any = None,
    decay: Any = None,
    sinks: Any = None,
    cu_seqlens: Any = None,
    align: Literal["bottom-right"] | None = None,
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
@overload
def attention(
    q: Array,
    k: Any,
    v: Any,
    *,
    causal: bool | None = None,
    window: tuple[int | None, int | None] | None = None,
    mask: Any = None,
    sparse_mask: SparseMask | None = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: ScoreMod | None = None,
    alibi: Any = None,
    decay: Any = None,
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
    sparse_mask: SparseMask | None = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: ScoreMod | None = None,
    alibi: Any = None,
    decay: Any = None,
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

class AttentionGradients(Generic[Array]):
    """The results of a backward call; gradients that were not requested are None."""

    @property
    def dq(self) -> Array: ...
    @property
    def dk(self) -> Array: ...
    @property
    def dv(self) -> Array: ...
    @property
    def dbias(self) -> Array: ...
    @property
    def dsinks(self) -> Array: ...
    @property
    def ddecay(self) -> Array: ...
    @property
    def kernel(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def recomputed_rows(self) -> int: ...

def attention_backward(
    q: Array,
    k: Any,
    v: Any,
    output: Any,
    lse: Any,
    grad_output: Any,
    *,
    grad_lse: Any = None,
    grad_weights: Any = None,
    gradients: GradientName | Sequence[GradientName] | None = None,
    causal: bool | None = None,
    window: tuple[int | None, int | None] | None = None,
    mask: Any = None,
    sparse_mask: SparseMask | None = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: ScoreMod | None = None,
    alibi: Any = None,
    decay: Any = None,
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
    output_dtype: Any = None,
    kernel: KernelName | None = None,
    threads: int | None = None,
) -> AttentionGradients[Array]: ...
def plan_attention(q: Any, k: Any, v: Any, **options: Any) -> dict[str, Any]: ...
def plan_attention_backward(
    q: Any, k: Any, v: Any, output: Any, lse: Any, grad_output: Any, **options: Any
) -> dict[str, Any]: ...
def attention_backward_into(
    q: Any,
    k: Any,
    v: Any,
    output: Any,
    lse: Any,
    grad_output: Any,
    grad_lse: Any,
    grad_weights: Any,
    grad_q: Any,
    grad_k: Any,
    grad_v: Any,
    grad_bias: Any,
    grad_sinks: Any,
    grad_decay: Any,
    options: object,
) -> None:
    """Writes the gradients into the arrays grad_…; None skips one."""

class ReportData:
    @property
    def batch(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def keys(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def value_dim(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def query_tokens(self) -> list[str]: ...
    @property
    def key_tokens(self) -> list[str]: ...
    @property
    def query_token_ids(self) -> list[int]: ...
    @property
    def key_token_ids(self) -> list[int]: ...
    @property
    def options(self) -> list[tuple[str, str]]: ...
    @property
    def layers(self) -> list[tuple[str, int]]: ...
    @property
    def calls(self) -> int: ...
    @property
    def arrays(self) -> dict[str, Any]: ...
    @property
    def summaries(self) -> list[Any]: ...
    @property
    def cost(self) -> list[Any]: ...
    @property
    def retrieval(self) -> list[Any] | None: ...
    def tiles(self, rows: tuple[int, int], keys: tuple[int, int], /) -> list[tuple[Any, Any]]: ...
    def save(self, path: str, /) -> None: ...
    def write_html(
        self, path: str, title: str, about: str, most_bytes: int, patches: tuple[bytes, int, int, int] | None
    ) -> str: ...

def make_report(
    q: Any,
    k: Any,
    v: Any,
    tokens: tuple[list[str], list[str], list[int], list[int]],
    top_k: int,
    cost: bool,
    cells: int,
    bins: int,
    options: object,
    /,
) -> ReportData: ...
def report_of_weights(
    weights: Any,
    allowed: Any,
    tokens: tuple[list[str], list[str], list[int], list[int]],
    layers: list[tuple[str, int]],
    top_k: int,
    cells: int,
    bins: int,
) -> ReportData: ...
def join_reports(layers: list[tuple[str, ReportData]], /) -> ReportData: ...
def open_report(path: str, /) -> ReportData: ...
def merge_summaries(reports: list[ReportData], /) -> list[Any]: ...
def grid_distance(
    q: Array, k: Any, grid: Sequence[int], first: int = 0, **options: Any
) -> Array: ...
def grid_map(
    q: Array, k: Any, grid: Sequence[int], cells: Sequence[int], first: int = 0, **options: Any
) -> Array: ...
def moved_norms(
    v: Array, projection: Any, gate: Any = None, *, threads: int | None = None
) -> Array: ...
def attention_tile(
    q: Any, k: Any, lse: Any, rows: tuple[int, int], keys: tuple[int, int], batch: int, head: int, options: object, /
) -> Any: ...

Floats = npt.NDArray[np.floating[Any]]

class Generator:
    """A random generator with the same numbers as PyTorch's on a CPU for the same seed."""

    def __init__(self, seed: int = ...) -> None: ...
    def rand(self, shape: Sequence[int], dtype: Any = "float32") -> Floats: ...
    def randn(self, shape: Sequence[int], dtype: Any = "float32") -> Floats: ...
    def randint(self, low: int, high: int, shape: Sequence[int]) -> npt.NDArray[np.int64]: ...
    def randperm(self, n: int) -> npt.NDArray[np.int64]: ...

class _Layer:
    def parameters(self) -> dict[str, Floats]:
        """The parameters by name, in the layer's own memory."""
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the parameters to a safetensors file."""
    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads a file into the existing parameters. It also accepts files of torch.nn.MultiheadAttention."""

class Embedding(_Layer):
    """torch.nn.Embedding: ids [...] to vectors [..., dim]."""

    def __init__(self, count: int, dim: int, generator: Generator | int | None = None, dtype: Any = "float32") -> None: ...
    def forward(self, ids: Any) -> Floats: ...
    def __call__(self, ids: Any) -> Floats: ...

class Linear(_Layer):
    """torch.nn.Linear: x [..., in_features] to [..., out_features]."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        generator: Generator | int | None = None,
        dtype: Any = "float32",
    ) -> None: ...
    def forward(self, x: Any) -> Floats: ...
    def __call__(self, x: Any) -> Floats: ...

class LayerResult:
    """The results and intermediate values of an attention layer."""

    @property
    def output(self) -> Any: ...
    @property
    def query(self) -> Any: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def attention(self) -> AttentionResult[Any]: ...

class SelfAttention(_Layer):
    """One head without biases or output projection."""

    def __init__(
        self,
        dim: int,
        key_dim: int,
        value_dim: int,
        generator: Generator | int | None = None,
        dtype: Any = "float32",
    ) -> None: ...
    def forward(self, x: Any, **options: Any) -> Any: ...
    def __call__(self, x: Any, **options: Any) -> Any: ...

class MultiHeadAttention(_Layer):
    """torch.nn.MultiheadAttention, batch first. By default kv_heads is heads, head_dim is dim / heads, value_dim is
    head_dim and context_dim is dim."""

    def __init__(
        self,
        dim: int,
        heads: int,
        kv_heads: int = 0,
        head_dim: int = 0,
        value_dim: int = 0,
        context_dim: int = 0,
        bias: bool = True,
        output_projection: bool = True,
        generator: Generator | int | None = None,
        dtype: Any = "float32",
    ) -> None: ...
    def forward(self, x: Any, context: Any = None, **options: Any) -> Any: ...
    def __call__(self, x: Any, context: Any = None, **options: Any) -> Any: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...

class Tokenizer:
    def encode(self, text: bytes, add_special: bool, /) -> tuple[list[int], list[tuple[int, int]]]: ...
    def decode(self, ids: list[int], skip_special: bool, /) -> str: ...
    def shown(self, ids: list[int], /) -> list[str]: ...
    def size(self) -> int: ...
    def token(self, id: int, /) -> str | None: ...
    def id(self, token: str, /) -> int | None: ...
    def is_special(self, id: int, /) -> bool: ...

def read_tokenizer(path: str, /) -> Tokenizer: ...
def tokenizer_from(text: str, name: str, /) -> Tokenizer: ...

class TrainedModelData:
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def symbols(self) -> bool: ...
    def page(self, path: str, name: str, text: str, /) -> None: ...
    def save(self, folder: str, /) -> None: ...

class ModelCache:
    """The keys and values of the tokens that a model has read."""

    @property
    def length(self) -> int: ...
    def clear(self) -> None: ...

class ModelData:
    @property
    def info(self) -> dict[str, Any]: ...
    @property
    def notes(self) -> list[str]: ...
    def tokenizer(self) -> Tokenizer | None: ...
    def cache(self, format: str) -> ModelCache: ...
    def token_ids(self, text: str, /) -> list[int]: ...
    def tokens(self, text: str, /) -> list[str]: ...
    def chat_text(self, messages: list[tuple[str, str]], add_generation_prompt: bool, /) -> str: ...
    def chat_ids(self, messages: list[tuple[str, str]], add_generation_prompt: bool, /) -> list[int]: ...
    def hidden_states(self, ids: Any, cache: ModelCache | None, threads: int) -> Floats: ...
    def logits(self, hidden: Any, threads: int) -> Floats: ...
    def streams(self, ids: Any, threads: int) -> Floats: ...
    def weights(self, ids: Any, layer: int | None, threads: int) -> Floats: ...
    def look(
        self, ids: Any, text: str | None, needle: str | None, by_norm: bool, layer: int | None, top_k: int, keep: bool,
        threads: int,
    ) -> ReportData: ...

_CauseOptions = tuple[int | None, int | None, int, int]

def ablate(model: ModelData, ids: Any, heads: list[tuple[int, int]], to: str, options: _CauseOptions, /) -> dict[str, Any]: ...
def patch(model: ModelData, ids: Any, other: Any, heads: list[tuple[int, int]], options: _CauseOptions, /) -> dict[str, Any]: ...
def attribute(model: ModelData, ids: Any, options: _CauseOptions, /) -> dict[str, Any]: ...
def lens(
    model: ModelData, ids: Any, options: _CauseOptions, /
) -> tuple[int, int, list[tuple[list[tuple[int, float]], float, int]]]: ...
def rollout(model: ModelData, ids: Any, rows: list[int], threads: int, /) -> Floats: ...
def why(
    model: ModelData,
    ids: Any,
    rows: list[int],
    keys: list[int],
    head: tuple[int, int] | None,
    threads: int,
) -> dict[str, Any]: ...
def circuit(
    model: ModelData,
    ids: Any,
    target: tuple[int | None, int | None, int | None],
    edges: int,
    patch: bool,
    threads: int,
    /,
) -> dict[str, Any]: ...
def paths(
    model: ModelData, ids: Any, head: tuple[int, int], target: tuple[int | None, int | None, int | None], threads: int, /
) -> dict[str, Any]: ...
def composition(model: ModelData, threads: int, /) -> tuple[Floats, Floats, Floats, float]: ...
def examples(
    model: ModelData,
    texts: list[list[int]],
    head: tuple[int, int] | None,
    best: int,
    habits: int,
    threads: int,
) -> list[tuple[Any, ...]]: ...
def lost(model: ModelData, ids: Any, first: int, last: int, threads: int, /) -> Floats: ...
def texts_of(model: ModelData, ids: list[int], text: str | None) -> list[str]: ...
def write_on(
    model: ModelData,
    text: str | None,
    ids: list[int],
    tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    cache: str,
    watch: int,
    head: tuple[int, int] | None,
    add: Callable[[str], object] | None,
    /,
) -> list[dict[str, Any]]: ...
def expected_after(model: ModelData, text: str, count: int, /) -> list[tuple[str, float]]: ...
def model_folder(name: str, /) -> str: ...
def load_pretrained(folder: str, fast: bool, /) -> ModelData: ...
def load_model(folder: str, /) -> TrainedModelData: ...
def train(
    folder: str,
    text: str | None,
    resume: bool,
    checkpoint_every: int,
    stop_at: int | None,
    threads: int,
    progress: Callable[[int, float], object] | None,
    settings: object,
    /,
) -> None: ...
