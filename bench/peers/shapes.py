"""The calls that bench/peers/compare.py times: their shapes, inputs and reference."""

import dataclasses
import math

UNCACHED_BYTES = 1 << 30  # keys and values of all copies together: caches of 480 MiB exist
ARITHMETIC_ONLY = 64  # flops per byte of keys and values above which caches do not matter


@dataclasses.dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    query_length: int
    key_length: int
    head_dim: int
    dtype: str = "f32"
    causal: bool = False

    @property
    def flops(self):
        full = 4 * self.heads * self.query_length * self.key_length * self.head_dim
        return full / 2 if self.causal else full

    @property
    def key_value_bytes(self):
        return 2 * self.kv_heads * self.key_length * self.head_dim * (2 if self.dtype == "bf16" else 4)

    @property
    def copies(self):
        """The number of copies. If one copy could stay in a cache, each call reads another."""
        if self.flops / self.key_value_bytes >= ARITHMETIC_ONLY:
            return 1
        return UNCACHED_BYTES // self.key_value_bytes + 1

    def __str__(self):
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads} ({self.kv_heads} kv)"
        text = f"{heads}, {self.query_length}, {self.key_length}, {self.head_dim} {self.dtype}"
        return text + " causal" if self.causal else text


class Unsupported(Exception):
    """The library does not support this call."""


def random_inputs(shape):
    """Query, and one key-value pair per copy: NumPy, f32, [1, heads, length, dim]."""
    import numpy

    rng = numpy.random.default_rng(0)
    query = rng.standard_normal((1, shape.heads, shape.query_length, shape.head_dim), dtype=numpy.float32)
    size = (1, shape.kv_heads, shape.key_length, shape.head_dim)
    key = rng.standard_normal(size, dtype=numpy.float32)
    value = rng.standard_normal(size, dtype=numpy.float32)
    return query, [(key.copy(), value.copy()) for _ in range(shape.copies)]


def reference(shape):
    """Attention in f64 on the same inputs: the first and the last query of each head, [heads, 2, dim]."""
    import numpy

    query, pairs = random_inputs(shape)
    key, value = (
        numpy.repeat(x[0].astype(numpy.float64), shape.heads // shape.kv_heads, 0) for x in pairs[0]
    )
    rows = numpy.array([0, shape.query_length - 1])
    scores = query[0][:, rows].astype(numpy.float64) @ key.transpose(0, 2, 1) / math.sqrt(shape.head_dim)
    if shape.causal:
        scores[:, rows[:, None] < numpy.arange(shape.key_length)[None, :]] = -numpy.inf
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return rows, weights / weights.sum(-1, keepdims=True) @ value
