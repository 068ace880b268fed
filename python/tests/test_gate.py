"""heed.moved_norms and gates on the output, compared with NumPy in float64."""

import numpy as np
import pytest

import heed

BATCH, HEADS, KV_HEADS, ROWS, KEYS, WIDTH, OUTPUTS = 2, 4, 2, 5, 7, 6, 9


def draws():
    rng = np.random.default_rng(1)
    value = rng.standard_normal((BATCH, KV_HEADS, KEYS, WIDTH))
    gate = 1 / (1 + np.exp(-rng.standard_normal((BATCH, HEADS, ROWS, WIDTH))))
    return value, rng.standard_normal((HEADS, WIDTH, OUTPUTS)), gate, rng


def vectors(value, projection, gate):
    """What each key adds to the stream, for each row: [B, H, Lq, Lk, M]."""
    value = value.repeat(HEADS // KV_HEADS, 1)
    return np.einsum("bhijd,hdm->bhijm", gate[:, :, :, None] * value[:, :, None], projection)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["channels", "rows", None])
def test_norms_are_those_of_the_vectors(dtype, kind):
    value, projection, gate, _ = (array.astype(dtype) if hasattr(array, "astype") else array for array in draws())
    gate = {"channels": gate, "rows": -gate[..., :1], None: np.ones((BATCH, HEADS, 1, 1), dtype)}[kind]
    norms = heed.moved_norms(value, projection, None if kind is None else gate, threads=1)
    assert norms.dtype == np.float32 and norms.shape == (BATCH, HEADS, 1 if kind is None else ROWS, KEYS)
    wide = [array.astype(np.float64) for array in (value, projection, gate)]
    np.testing.assert_allclose(norms, np.linalg.norm(vectors(*wide), axis=-1), rtol=1e-6)  # roundings to float32


def test_shares_are_of_what_a_row_adds():
    value, projection, gate, rng = draws()
    q, k = rng.standard_normal((BATCH, HEADS, ROWS, 3)), rng.standard_normal((BATCH, KV_HEADS, KEYS, 3))
    result = heed.attention(q, k, value, need="weights")
    added = result.weights[..., None] * vectors(value, projection, gate)
    stream = np.einsum("bhid,hdm->bhim", result.output * gate, projection)
    np.testing.assert_allclose(added.sum(3), stream, atol=1e-12)  # roundings of float64: the vectors are those of the gate
    sizes = np.linalg.norm(added, axis=-1)
    shares = heed.attention(q, k, value, bias=np.log(heed.moved_norms(value, projection, gate)), need=("weights", "received"))
    want = sizes / sizes.sum(-1, keepdims=True)
    np.testing.assert_allclose(shares.weights, want, atol=1e-6)  # the norms are float32
    np.testing.assert_allclose(shares.received, want.sum(2), atol=1e-5)


def test_tensors_of_pytorch_give_such_tensors():
    torch = pytest.importorskip("torch")
    value, projection, gate, _ = draws()
    layer = torch.from_numpy(projection.transpose(2, 0, 1).reshape(OUTPUTS, -1).copy())  # a Linear's weight
    norms = heed.moved_norms(torch.from_numpy(value), layer.T.reshape(HEADS, WIDTH, OUTPUTS), torch.from_numpy(gate))
    assert isinstance(norms, torch.Tensor)
    np.testing.assert_array_equal(norms.numpy(), heed.moved_norms(value, projection, gate))


def test_what_is_wrong_is_said():
    value, projection, gate, _ = draws()
    for arguments, message in (((value[0], projection), r"value has shape \[2, 7, 6\]; \[B, Hkv, Lk, Dv\] is expected"),
                               ((value, projection[:3]), r"projection has shape \[3, 6, 9\]; \[H, 6, M\] with H a multiple of 2"),
                               ((value, projection, gate[:, :1]), r"gate has shape \[2, 1, 5, 6\]; \[2, 4, Lq, 6\] or \[2, 4, Lq, 1\]")):
        with pytest.raises(ValueError, match=message):
            heed.moved_norms(*arguments)


def test_a_missing_array_is_named():
    q = np.ones((1, 2, 4, 3), np.float32)
    for name, call in (("v", lambda: heed.moved_norms(None, q[0])), ("projection", lambda: heed.moved_norms(q, None)),
                       ("q", lambda: heed.grid_distance(None, q, (2, 2))), ("k", lambda: heed.grid_map(q, None, (2, 2), (2, 2)))):
        with pytest.raises(TypeError, match=f"^{name} is a NoneType; an array that supports DLPack or the buffer protocol"):
            call()
