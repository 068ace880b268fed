"""heed.nn: layers compared with NumPy, their parameters and files."""

import gc
import os
import pathlib
import threading

import numpy as np
import pytest

import heed
from heed import nn


def test_a_linear_layer_is_a_matrix_product():
    layer = nn.Linear(6, 4, generator=1)
    parameters = layer.parameters()
    x = np.random.default_rng(0).standard_normal((2, 3, 6)).astype(np.float32)
    expected = x @ parameters["weight"].T + parameters["bias"]
    assert np.allclose(layer(x), expected, atol=1e-6)  # 6 products of numbers around 1, in f32
    assert np.array_equal(layer(x), layer.forward(x))


def test_parameters_are_the_layers_own_memory():
    layer = nn.Linear(2, 2, bias=False, dtype="float64")
    layer.parameters()["weight"][:] = [[1, 2], [3, 4]]
    assert np.array_equal(layer(np.eye(2)), [[1, 3], [2, 4]])
    weight = layer.parameters()["weight"]
    del layer
    assert weight.sum() == 10


def test_seeds_give_the_same_layer_and_generators_go_on():
    weight = lambda generator: nn.Linear(3, 3, generator=generator).parameters()["weight"].copy()
    assert np.array_equal(weight(7), weight(nn.Generator(7)))
    generator = nn.Generator(7)
    assert not np.array_equal(weight(generator), weight(generator))
    assert nn.Generator(3).randn((2, 3)).dtype == np.float32
    assert sorted(nn.Generator(3).randperm(5)) == [0, 1, 2, 3, 4]
    assert set(nn.Generator(3).randint(0, 2, (50,))) == {0, 1}
    assert nn.Generator(3).rand((4,), dtype=np.float64).dtype == np.float64


def test_an_embedding_looks_its_rows_up():
    layer = nn.Embedding(10, 4, generator=2)
    ids = np.array([[3, 3], [0, 9]])
    assert np.array_equal(layer(ids), layer.parameters()["weight"][ids])
    with pytest.raises(ValueError, match="10"):
        layer(np.array([10]))


def heads_of(x, heads):
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


@pytest.mark.parametrize("cross", [False, True])
def test_many_heads_are_projections_around_attention(cross):
    layer = nn.MultiHeadAttention(8, heads=4, kv_heads=2, generator=5)
    p = layer.parameters()
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 5, 8), dtype=np.float32)
    context = rng.standard_normal((2, 7, 8), dtype=np.float32) if cross else x
    project = lambda what, y: y @ p[what + ".weight"].T + p[what + ".bias"]
    q, k, v = heads_of(project("query", x), 4), heads_of(project("key", context), 2), heads_of(project("value", context), 2)
    z = heed.attention(*(np.ascontiguousarray(y) for y in (q, k, v)), causal=True)
    expected = project("out_proj", z.swapaxes(1, 2).reshape(2, 5, 8))
    output = layer(x, context if cross else None, causal=True)
    assert np.allclose(output, expected, atol=1e-5)  # three matrix products in f32, of 8 numbers around 1 each
    result = layer(x, context if cross else None, causal=True, need="weights")
    assert isinstance(result, nn.LayerResult)
    assert np.array_equal(result.output, output)
    assert result.attention.weights.shape == (2, 4, 5, context.shape[1])
    assert result.query.shape == (2, 4, 5, 2) and result.key.shape[1] == layer.kv_heads == 2 and layer.heads == 4
    assert np.allclose(result.attention.output, z, atol=1e-5)


def test_one_head_has_three_matrices():
    layer = nn.SelfAttention(4, 3, 5, generator=1)
    assert {name: value.shape for name, value in layer.parameters().items()} == {
        "query.weight": (3, 4), "key.weight": (3, 4), "value.weight": (5, 4)}
    assert layer(np.ones((6, 4), np.float32)).shape == (6, 5)
    with pytest.raises(TypeError, match="'out'"):
        layer(np.ones((6, 4), np.float32), out=np.ones((6, 5), np.float32))


@pytest.mark.parametrize("kind", [str, pathlib.Path, os.fsencode])
def test_parameters_are_saved_and_loaded(tmp_path, kind):
    path = kind(tmp_path / "layer.safetensors")
    layer, other = nn.MultiHeadAttention(8, 2, generator=1), nn.MultiHeadAttention(8, 2, generator=2)
    layer.save(path)
    other.load(path)
    for name, value in layer.parameters().items():
        assert np.array_equal(other.parameters()[name], value), name
    with pytest.raises(OSError, match="nowhere"):
        other.load(str(tmp_path / "nowhere"))


def saved(path, layer, **values):
    """Writes a file of the layer after setting its parameters to these values."""
    for name, value in values.items():
        layer.parameters()[name][:] = value
    layer.save(str(path))
    return str(path)


def test_arrays_of_parameters_are_the_layers_memory_after_it_was_loaded_too(tmp_path):
    path = saved(tmp_path / "threes.safetensors", nn.Linear(64, 32), weight=3, bias=1)
    layer = nn.Linear(64, 32, generator=4)
    held = layer.parameters()
    layer.load(path)
    others = [np.full((32, 64), 7, np.float32) for _ in range(64)]  # would reuse the parameters' memory if it were freed
    assert np.all(held["weight"] == 3) and np.all(held["bias"] == 1)
    held["weight"][:] = 2
    assert np.all(layer(np.ones((1, 64), np.float32)) == 2 * 64 + 1)
    weight = held["weight"]
    del layer, held, others
    gc.collect()
    assert np.all(weight == 2)


def test_a_file_that_does_not_fit_changes_no_parameter(tmp_path):
    path = saved(tmp_path / "no_bias.safetensors", nn.Linear(3, 2, bias=False), weight=3)
    layer = nn.Linear(3, 2, generator=4)
    held = layer.parameters()
    before = {name: value.copy() for name, value in held.items()}
    with pytest.raises(OSError, match="has no tensor bias"):
        layer.load(path)
    for name, value in held.items():
        assert np.array_equal(value, before[name]), name


def test_threads_that_load_and_compute_see_one_file_or_the_other(tmp_path):
    size = 700
    layer = nn.Linear(size, size, bias=False)
    files = [saved(tmp_path / f"{value}.safetensors", layer, weight=value) for value in (1, 2)]
    copy = str(tmp_path / "copy.safetensors")
    over = threading.Event()

    def load():
        while not over.is_set():
            for file in files:
                layer.load(file)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        x = np.ones((8, size), np.float32)
        for _ in range(30):
            sums = np.unique(layer(x))
            assert sums.tolist() in ([size], [2 * size]), sums  # whole numbers, exact in any order
            layer.save(copy)
            other = nn.Linear(size, size, bias=False)
            other.load(copy)
            assert np.unique(other.parameters()["weight"]).size == 1
    finally:
        over.set()
        loading.join()
