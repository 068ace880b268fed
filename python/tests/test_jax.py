"""JAX arrays on the CPU."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import heed  # noqa: E402


def test_arrays_come_back_as_arrays_of_jax():
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 8), dtype=np.float32)
    expected = heed.attention(x, x, x, need="lse", top_k=2)
    result = heed.attention(*[jax.numpy.asarray(x)] * 3, need="lse", top_k=2)
    for field in ("output", "lse", "top_k_index", "top_k_weight"):
        got = getattr(result, field)
        assert isinstance(got, jax.Array)
        assert np.array_equal(got, getattr(expected, field))


def test_bfloat16_stays_bfloat16():
    x = jax.numpy.ones((1, 2, 5, 8), jax.numpy.bfloat16)
    output = heed.attention(x, x, x)
    assert output.dtype == jax.numpy.bfloat16 and bool((output == 1).all())
