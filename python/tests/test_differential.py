"""heed.differential_attention on NumPy arrays and PyTorch tensors, compared with PyTorch in f64."""

import numpy as np
import pytest

import heed

torch = pytest.importorskip("torch")


def formula(q, k, v, lam, causal):
    """The output and the signed weights. Each half of H heads has its own keys, or both read the same."""
    batch, twice, rows, width = q.shape
    group = twice // 2 // v.shape[1]
    halves = []
    for half in (0, 1):
        keys = k if k.shape[1] == v.shape[1] else k[:, half::2]
        scores = q[:, half::2] @ keys.repeat_interleave(group, 1).mT * width ** -0.5
        if causal:
            scores = scores.masked_fill(torch.ones(rows, k.shape[2]).tril(k.shape[2] - rows) == 0, -torch.inf)
        halves.append(scores.softmax(-1))
    weights = halves[0] - (lam[:, None, None] if lam.ndim == 1 else lam[..., None]) * halves[1]
    return weights @ v.repeat_interleave(group, 1), weights


@pytest.fixture(params=["own keys", "one key"])
def call(request):
    rng = np.random.default_rng(3)
    draw = lambda *shape: rng.standard_normal(shape)  # noqa: E731
    return {"q": draw(2, 8, 5, 16), "k": draw(2, 4 if request.param == "own keys" else 2, 9, 16), "v": draw(2, 2, 9, 12)}


def lam_of(kind):
    return np.random.default_rng(4).standard_normal((4,) if kind == "heads" else (2, 4, 5))


@pytest.mark.parametrize("kind", ["heads", "rows"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("array", [np.asarray, torch.from_numpy])
def test_results_and_gradients_are_those_of_pytorch(call, kind, causal, array):
    given = {name: array(one) for name, one in call.items()}
    lam = lam_of(kind)
    options = {"causal": causal, "align": "bottom-right"}
    result = heed.differential_attention(**given, lam=array(lam), need=["weights", "entropy"], **options)
    theirs = {name: torch.from_numpy(one).requires_grad_() for name, one in {**call, "lam": lam}.items()}
    output, weights = formula(**theirs, causal=causal)
    assert isinstance(result.output, type(given["q"])) and result.first.entropy.shape == (2, 4, 5)
    for got, expected in ((result.output, output), (result.weights, weights)):
        np.testing.assert_allclose(np.asarray(got), expected.detach(), atol=1e-12)
    by_output = np.random.default_rng(5).standard_normal((2, 4, 5, 12))
    output.backward(torch.from_numpy(by_output))
    gradients = heed.differential_attention_backward(**given, lam=array(lam), result=result, grad_output=array(by_output), **options)
    for got, (name, expected) in zip(gradients, theirs.items(), strict=True):
        np.testing.assert_allclose(np.asarray(got), expected.grad, atol=1e-11, err_msg=name)


def test_sums_over_rows_are_signed(call):
    lam = lam_of("heads")
    result = heed.differential_attention(**call, lam=lam, need=["received", "weights"], received_last=2, map=(5, 9))
    np.testing.assert_allclose(result.received, result.weights.sum(2), atol=1e-12)
    np.testing.assert_allclose(result.received_last, result.weights[:, :, -2:].sum(2), atol=1e-12)
    np.testing.assert_allclose(result.map, result.weights, atol=1e-12)
    assert (result.weights < 0).any()
    with pytest.raises(ValueError, match=r"map is asked for with lam of shape \(2, 4, 5\); \(4,\) is expected"):
        heed.differential_attention(**call, lam=lam_of("rows"), map=(2, 2))


def test_caches_hold_keys_of_both_halves(call):
    given = {name: one.astype(np.float32) for name, one in call.items()}
    key, lam = given["k"], lam_of("heads")
    if key.shape[1] == 4:
        key = np.concatenate([key[:, 0::2], key[:, 1::2]], axis=-1)
    cache = heed.KvCache(batch=2, kv_heads=2, key_dim=key.shape[-1], value_dim=12, capacity=9)
    cache.append(key, given["v"])
    expected = heed.differential_attention(**given, lam=lam, causal=True, align="bottom-right")
    got = heed.differential_attention(given["q"], cache, lam=lam, causal=True)
    np.testing.assert_allclose(got.output, expected.output, atol=5e-6)


def test_what_is_wrong_is_said(call):
    for change, message in (({"q": call["q"][:, :3]}, r"q has shape \(2, 3, 5, 16\); \[B, 2 H, Lq, D\]"),
                            ({"k": call["v"][:, :1]}, "k has 1 head; 2 as v, or 4, are expected"),
                            ({"lam": np.zeros(3)}, r"lam has shape \(3,\); \(4,\) or \(2, 4, 5\) is expected")):
        with pytest.raises(ValueError, match=message):
            heed.differential_attention(**{"lam": lam_of("heads"), **call, **change})


def test_lists_and_a_number_are_taken(call):
    given = {name: one.astype(np.float32) for name, one in call.items()}
    expected = heed.differential_attention(**given, lam=np.full(4, 0.5, np.float32))
    gradients = heed.differential_attention_backward(**given, lam=np.full(4, 0.5, np.float32), result=expected,
                                                     grad_output=expected.output)
    for array in (np.asarray, torch.from_numpy):
        q = array(given["q"])
        for lam in (0.5, np.float32(0.5), [0.5] * 4, torch.full((4,), 0.5), torch.tensor(0.5), np.full(4, 0.5)):
            got = heed.differential_attention(q, given["k"].tolist(), given["v"].tolist(), lam=lam)
            np.testing.assert_allclose(np.asarray(got.output), expected.output, atol=1e-6)
            by_lists = heed.differential_attention_backward(q, array(given["k"]), array(given["v"]), lam, got,
                                                            expected.output.tolist())
            np.testing.assert_allclose(np.asarray(by_lists.dq), gradients.dq, atol=1e-5)
    exact = heed.differential_attention(**call, lam=np.full(4, 0.1))
    np.testing.assert_array_equal(heed.differential_attention(**call, lam=0.1).output, exact.output)


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
def test_the_factors_gradient_is_summed_in_f64(dtype):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
    rng = np.random.default_rng(6)
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in ((1, 2, 1000, 8), (1, 1, 16, 8), (1, 1, 16, 8)))
    v = abs(v)  # no term cancels another
    lam = np.ones(1, np.float32)
    result = heed.differential_attention(q, k, v, lam=lam)
    dlam = heed.differential_attention_backward(q, k, v, lam, result, np.ones_like(result.output)).dlam
    np.testing.assert_allclose(dlam, -result.second.output.astype(np.float64).sum(keepdims=True)[0, 0, 0], rtol=1e-6)
    by_whole = heed.differential_attention_backward(q, k, v, np.ones(1, int), result, np.ones_like(result.output)).dlam
    np.testing.assert_array_equal(by_whole, dlam)


def test_dropout_drops_the_same_pairs_in_both_halves(call):
    """Of identity values the output is the weights."""
    v = np.broadcast_to(np.eye(9), (2, 2, 9, 9))
    result = heed.differential_attention(call["q"], call["k"], v, lam=0.5, dropout=0.5)
    np.testing.assert_array_equal(result.first.output == 0, result.second.output == 0)


def test_what_would_mean_two_things_is_refused(call):
    result = heed.differential_attention(**call, lam=0.5)
    with pytest.raises(ValueError, match="out is given for differential attention; its output is a new array"):
        heed.differential_attention(**call, lam=0.5, out=np.empty_like(result.output))
    for name, value in (("gradients", "dq"), ("grad_lse", result.first.lse), ("grad_weights", result.first.lse)):
        with pytest.raises(ValueError, match=f"{name} is given for differential attention; dq, dk, dv and dlam"):
            heed.differential_attention_backward(**call, lam=0.5, result=result, grad_output=result.output, **{name: value})
    with pytest.raises(TypeError, match="v is a NoneType"):
        heed.differential_attention(call["q"], call["k"], lam=0.5)
    for name, wrong in (("k", None), ("q", "a"), ("lam", None), ("v", [[1], [1, 2]])):
        with pytest.raises(TypeError, match=f"{name} is a .*; an array or nested lists of numbers are expected"):
            heed.differential_attention(**{**call, "lam": 0.5, name: wrong})
    narrow = {name: np.float32(call[name]) for name in "qkv"}
    for name, large in (("lam", 1e39), ("v", [[-1e39]])):
        with pytest.raises(ValueError, match=f"{name} has lists with the number -?1e.39, which float32 cannot hold"):
            heed.differential_attention(**{**narrow, "lam": 0.5, name: large})


def as_jax(array):
    return pytest.importorskip("jax").numpy.asarray(array)


@pytest.mark.parametrize("array", [as_jax, memoryview])
def test_every_kind_of_array_that_attention_takes_is_taken(call, array):
    given = {name: one.astype(np.float32) for name, one in call.items()}
    theirs = {name: array(one) for name, one in given.items()}
    kind = type(heed.attention(*[theirs["v"]] * 3))
    expected, got = heed.differential_attention(**given, lam=0.5), heed.differential_attention(**theirs, lam=0.5)
    assert type(got.output) is kind
    np.testing.assert_array_equal(got.output, expected.output)
    wanted = heed.differential_attention_backward(**given, lam=0.5, result=expected, grad_output=expected.output)
    gradients = heed.differential_attention_backward(**theirs, lam=0.5, result=got, grad_output=array(np.asarray(got.output)))
    for name, gradient, one in zip(gradients._fields, gradients, wanted, strict=True):
        assert name == "dlam" or type(gradient) is kind, name
        np.testing.assert_array_equal(gradient, one, err_msg=name)
    lam = array(np.full(4, 0.5, np.float32))
    assert type(heed.differential_attention_backward(**theirs, lam=lam, result=got, grad_output=got.output).dlam) is kind
    key = given["k"]
    if key.shape[1] == 4:
        key = np.concatenate([key[:, 0::2], key[:, 1::2]], axis=-1)
    cache = heed.KvCache(batch=2, kv_heads=2, key_dim=key.shape[-1], value_dim=12, capacity=9)
    cache.append(key, given["v"])
    over_cache = heed.differential_attention(theirs["q"], cache, lam=0.5).output
    assert type(over_cache) is kind
    np.testing.assert_array_equal(over_cache, heed.differential_attention(given["q"], cache, lam=0.5).output)


@pytest.mark.parametrize("lam", [np.ones(4), 0.5])
def test_factors_that_want_a_gradient_or_are_complex_are_named(call, lam):
    wrong = torch.full((4,), 0.5, requires_grad=True)
    tensors = {name: torch.from_numpy(one) for name, one in call.items()}
    for given in (call, tensors):
        result = heed.differential_attention(**given, lam=lam)
        back = {**given, "result": result, "grad_output": result.output}
        for function, arguments in ((heed.differential_attention, given), (heed.differential_attention_backward, back)):
            with pytest.raises(ValueError, match=r"^lam requires a gradient, which autograd does not compute here; "
                                                 r"lam.detach\(\) is expected$"):
                function(**arguments, lam=wrong)
            for numbers in (np.array([1j] * 4), torch.full((4,), 1j)):
                with pytest.raises(ValueError, match=r"^lam has dtype (torch\.)?complex(64|128); a floating dtype is expected$"):
                    function(**arguments, lam=numbers)


def test_a_call_without_rows_has_gradients(call):
    given = {**call, "q": call["q"][:, :, :0]}
    result = heed.differential_attention(**given, lam=0.5)
    gradients = heed.differential_attention_backward(**given, lam=0.5, result=result, grad_output=result.output)
    assert gradients.dq.shape == given["q"].shape and not gradients.dk.any() and not gradients.dlam.any()


def test_a_missing_result_and_arrays_of_other_axes_are_named(call):
    result = heed.differential_attention(**call, lam=0.5)
    with pytest.raises(TypeError, match="^result is a NoneType; the DifferentialResult of the forward call is expected$"):
        heed.differential_attention_backward(**call, lam=0.5, result=None, grad_output=result.output)
    for name, shape in (("k", call["k"][0]), ("k", call["k"][0, 0, 0]), ("v", call["v"][0])):
        with pytest.raises(ValueError, match=rf"^{name} has shape .*; 4 axes, \[B, H, Lk, D\], are expected$"):
            heed.differential_attention(**{**call, name: shape}, lam=0.5)
