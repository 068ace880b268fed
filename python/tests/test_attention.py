"""heed.attention on NumPy arrays, compared with attention in NumPy and f64."""

import threading

import attention_oracle
import ml_dtypes
import numpy as np
import pytest

import heed

NEEDS = attention_oracle.NEEDS
# f32 sums of 16 products and 24 weights of numbers around 1: about 50 roundings of 2^-24.
TOLERANCE = 4e-6


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def inputs(rng, batch=2, heads=4, kv_heads=2, queries=9, keys=13, dim=16, value_dim=12, dtype=np.float32):
    shapes = (batch, heads, queries, dim), (batch, kv_heads, keys, dim), (batch, kv_heads, keys, value_dim)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def assert_close(got, expected, tolerance=TOLERANCE):
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    assert got.shape == expected.shape
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = np.abs(got - expected)
    same = (got == expected) | (difference <= tolerance * (1 + np.abs(expected)))
    assert same.all(), f"largest difference {np.nanmax(difference)}"


CALLS = {
    "plain": {},
    "causal": {"causal": True},
    "bottom right": {"causal": True, "align": "bottom-right"},
    "offset": {"causal": True, "query_offset": 3},
    "window": {"window": (2, 1)},
    "open window": {"window": (None, 0)},
    "scale": {"scale": 0.5},
    "softcap": {"softcap": 2.0},
    "alibi": {"alibi": [0.5, 0.25, 0.125, 0.0625], "causal": True},
    "sinks": {"sinks": [0.0, 1.0, -1.0, 0.5]},
    "lengths": {"kv_lengths": [5, 0]},
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_result_equals_numpys(rng, name, dtype):
    q, k, v = inputs(rng, dtype=dtype)
    call = CALLS[name]
    theirs = dict(call)
    if "kv_lengths" in theirs:
        theirs["kv_lengths"] = np.array(theirs["kv_lengths"])
    if "window" in theirs:
        theirs["window"] = tuple(-1 if side is None else side for side in theirs["window"])
    if "sinks" in theirs:
        theirs["sinks"] = np.array(theirs["sinks"])
    expected = attention_oracle.attention(q, k, v, top_k=3, received_last=4, map_size=(3, 4), **theirs)
    result = heed.attention(q, k, v, need=NEEDS, top_k=3, received_last=4, map=(3, 4), **call)
    assert_close(result.output, expected["out"])
    for field in (*NEEDS, "top_k_weight", "received_last", "map"):
        assert_close(getattr(result, field), expected[field])
    assert (result.top_k_index == expected["top_k_index"]).all()
    assert result.output.dtype == dtype
    assert result.kernel == ("fused" if dtype == np.float32 else "reference")


def test_masks_and_biases_broadcast(rng):
    q, k, v = inputs(rng)
    mask = rng.random((9, 13)) < 0.7
    bias = rng.standard_normal((4, 1, 13)).astype(np.float32)
    expected = attention_oracle.attention(q, k, v, mask=mask, bias=bias)
    assert_close(heed.attention(q, k, v, mask=mask, bias=bias), expected["out"])


def test_packed_sequences_see_their_own_keys_only(rng):
    q, k, v = inputs(rng, batch=1, queries=9, keys=9)
    segments = [0, 4, 4, 9]
    expected = attention_oracle.attention(
        q, k, v, causal=True, segments_q=np.array(segments), segments_k=np.array(segments))
    assert_close(heed.attention(q, k, v, causal=True, cu_seqlens=segments), expected["out"])
    pair = (np.array(segments, np.int32), np.array(segments))
    assert_close(heed.attention(q, k, v, causal=True, cu_seqlens=pair), expected["out"])


def test_only_what_was_asked_for_is_there(rng):
    q, k, v = inputs(rng)
    assert isinstance(heed.attention(q, k, v), np.ndarray)
    result = heed.attention(q, k, v, need="lse")
    assert isinstance(result, heed.AttentionResult)
    assert heed.AttentionResult[np.ndarray]  # as in annotations
    assert result.lse.shape == (2, 4, 9)
    assert result.weights is None and result.top_k_index is None and result.map is None
    assert repr(result).startswith("AttentionResult(output (2, 4, 9, 12), lse (2, 4, 9), fused kernel")


@pytest.mark.parametrize("view", [
    lambda x: x[:, :, ::-1],
    lambda x: x[..., ::2],
    lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
    lambda x: np.broadcast_to(x[:1], x.shape),
    lambda x: np.asfortranarray(x),
    lambda x: x[0],
    lambda x: x[0, 0],
])
def test_strides_are_read_as_they_are(rng, view):
    q, k, v = (view(x) for x in inputs(rng, value_dim=16))
    expected = heed.attention(*(x.copy() for x in (q, k, v)))
    assert (heed.attention(q, k, v) == expected).all()


def test_sizes_of_zero_are_sizes():
    shape = lambda length: np.zeros((1, 2, length, 4), np.float32)
    assert heed.attention(shape(0), shape(3), shape(3)).shape == (1, 2, 0, 4)
    result = heed.attention(shape(3), shape(0), shape(0), need="lse")
    assert (result.output == 0).all() and np.isneginf(result.lse).all()
    bias = np.zeros((1, 2, 0, 3), np.float32)
    forward = heed.attention(shape(0), shape(3), shape(3), bias=bias, need="lse")
    assert heed.attention_backward(shape(0), shape(3), shape(3), forward.output, forward.lse, forward.output, bias=bias,
                                   gradients="dbias").dbias.shape == bias.shape


def test_results_are_written_into_an_array_of_the_callers(rng):
    q, k, v = inputs(rng)
    wide = np.full((2, 9, 4, 12), np.nan, np.float32)
    out = wide.transpose(0, 2, 1, 3)
    assert heed.attention(q, k, v, out=out) is out
    everything = {"need": NEEDS, "top_k": 2, "received_last": 3, "map": (2, 2)}
    expected = heed.attention(q, k, v, **everything)
    assert (wide == expected.output.transpose(0, 2, 1, 3)).all()
    result = heed.attention(q, k, v, out=out, **everything)
    assert result.output is out
    for field in (*NEEDS, "top_k_index", "top_k_weight", "received_last", "map"):
        assert (getattr(result, field) == getattr(expected, field)).all()


@pytest.mark.parametrize("heads", [slice(None), 0], ids=["three axes", "two axes"])
def test_results_beside_the_callers_output_have_its_axes(rng, heads):
    q, k, v = (x[0][heads] for x in inputs(rng, kv_heads=4))
    out = np.empty((*q.shape[:-1], v.shape[-1]), np.float32)
    everything = {"need": NEEDS, "top_k": 2, "received_last": 3, "map": (2, 2)}
    expected, result = heed.attention(q, k, v, **everything), heed.attention(q, k, v, out=out, **everything)
    assert (out == expected.output).all()
    for field in (*NEEDS, "top_k_index", "top_k_weight", "received_last", "map"):
        ours, theirs = getattr(result, field), getattr(expected, field)
        assert ours.shape == theirs.shape and (ours == theirs).all()


def test_halves_of_both_kinds(rng):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    inputs_f32 = inputs(rng)
    for dtype, precision in ((np.dtype(np.float16), 2**-11), (np.dtype(ml_dtypes.bfloat16), 2**-8)):
        q, k, v = (x.astype(dtype) for x in inputs_f32)
        output = heed.attention(q, k, v)
        assert output.dtype == dtype
        expected = attention_oracle.attention(*(x.astype(np.float64) for x in (q, k, v)))["out"]
        assert_close(output.astype(np.float64), expected, 2 * precision)  # weights and output are rounded
        assert_close(heed.attention(q, k, v, output_dtype="float32"), expected, 2 * precision)
        out = np.empty_like(output)
        assert (heed.attention(q, k, v, out=out) == output).all()


def test_dropout_is_a_matter_of_its_seed(rng):
    q, k, v = inputs(rng)
    call = lambda **more: heed.attention(q, k, v, dropout=0.5, **more)
    assert (call(seed=1) == call(seed=1)).all()
    assert (call(seed=1) != call(seed=2)).any()
    assert (call(seed=1) != call(seed=1, dropout_offset=1)).any()
    assert (call() != call()).any()  # without a seed, each call draws a new one


def test_other_buffers_are_arrays_too(rng):
    q, k, v = inputs(rng)
    assert (heed.attention(memoryview(q), memoryview(k), memoryview(v)) == heed.attention(q, k, v)).all()
    q.setflags(write=False)
    assert (heed.attention(q, k, v) == heed.attention(q.copy(), k, v)).all()


class OnlyDlpack:
    """An array that supports only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class VersionedDlpack(OnlyDlpack):
    """Its capsules tell their version, as those of DLPack 1.0 may."""

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(max_version=(1, 0), **arguments)


@pytest.mark.parametrize("speaker", [OnlyDlpack, VersionedDlpack])
def test_dlpack_is_spoken(rng, speaker):
    q, k, v = inputs(rng)
    output = heed.attention(*(speaker(x) for x in (q, k, v)))
    assert isinstance(output, np.ndarray)
    assert (output == heed.attention(q, k, v)).all()


def test_results_outlive_the_call_and_can_be_written(rng):
    result = heed.attention(*inputs(rng), need="weights")
    weights = result.weights
    del result
    weights += 1
    assert (weights >= 1).all()


class NoCapsule:
    """An array of no library."""

    def __dlpack__(self, **options):
        return 5

    def __dlpack_device__(self):
        return 1, 0


MISTAKES = {
    "q is a set; an array": (TypeError, lambda q, k, v: heed.attention({1.0}, k, v)),
    "unexpected keyword argument 'masks'": (TypeError, lambda q, k, v: heed.attention(q, k, v, masks=None)),
    "window is 3; (left, right)": (TypeError, lambda q, k, v: heed.attention(q, k, v, window=3)),
    "scale is 'x'; a number": (TypeError, lambda q, k, v: heed.attention(q, k, v, scale="x")),
    "top_k is 1.5; a whole number": (TypeError, lambda q, k, v: heed.attention(q, k, v, top_k=1.5)),
    "causal is 'no'; True or False": (TypeError, lambda q, k, v: heed.attention(q, k, v, causal="no")),
    "need is 3; a name or several": (TypeError, lambda q, k, v: heed.attention(q, k, v, need=3)),
    "need is 'x'; 'weights' or": (ValueError, lambda q, k, v: heed.attention(q, k, v, need="x")),
    "top_k is -1": (ValueError, lambda q, k, v: heed.attention(q, k, v, top_k=-1)),
    f"top_k is {2**70}": (ValueError, lambda q, k, v: heed.attention(q, k, v, top_k=2**70)),
    "seed is -1; a whole number from 0": (ValueError, lambda q, k, v: heed.attention(q, k, v, seed=-1)),
    "align is 'left'; 'top-left' or": (ValueError, lambda q, k, v: heed.attention(q, k, v, align="left")),
    "threads is -1; 0": (ValueError, lambda q, k, v: heed.attention(q, k, v, threads=-1)),
    "output_dtype is 'f8'; a dtype": (ValueError, lambda q, k, v: heed.attention(q, k, v, output_dtype="f8")),
    "kv_lengths has numbers that are not whole": (ValueError, lambda q, k, v: heed.attention(q, k, v, kv_lengths=[3.7, 9])),
    "kv_lengths has numbers that are not whole, or too large": (
        ValueError, lambda q, k, v: heed.attention(q, k, v, kv_lengths=[2**63, 9])),
    "kv_lengths has other things than numbers, or numbers of more than 64 bits": (
        TypeError, lambda q, k, v: heed.attention(q, k, v, kv_lengths=[2**64, 9])),
    "kv_lengths has lists of different lengths": (ValueError, lambda q, k, v: heed.attention(q, k, v, kv_lengths=[[1], [1, 2]])),
    "cu_seqlens of keys has 3 offsets; 2 as in cu_seqlens of queries": (
        ValueError, lambda q, k, v: heed.attention(q[:1], k[:1], v[:1], cu_seqlens=([0, 9], [0, 4, 13]))),
    "cu_seqlens has numbers that are not whole": (ValueError, lambda q, k, v: heed.attention(q, k, v, cu_seqlens=[0, 3.9, 9])),
    "cu_seqlens of queries runs from 0 to 5": (ValueError, lambda q, k, v: heed.attention(q[:1], k[:1, :, :9], v[:1, :, :9], cu_seqlens=[0, 5])),
    "alibi has lists of other things than numbers": (TypeError, lambda q, k, v: heed.attention(q, k, v, alibi=[None, 2, 1, 1])),
    "q has lists with the number 1e+39, which float32 cannot hold": (ValueError, lambda q, k, v: heed.attention([[1e39]], [[1]], [[1]])),
    "v has lists with the number 1e+39": (ValueError, lambda q, k, v: heed.attention([[1]], [[1]], [[-1e39, float("inf")]])),
    "bias has lists with the number 3.5e+38": (ValueError, lambda q, k, v: heed.attention([[1]], [[1]], [[1]], bias=[[3.5e38]])),
    "key has lists with the number 1e+39": (
        ValueError, lambda q, k, v: heed.KvCache(kv_heads=1, key_dim=1, capacity=4).append([[[[1e39]]]], [[[[1]]]])),
    "sinks has lists of other things than numbers": (TypeError, lambda q, k, v: heed.attention(q, k, v, sinks=["1"] * 4)),
    "indices has numbers that are not whole": (ValueError, lambda q, k, v: heed.SparseMask.key_lists([[0.5], [1.2]], 6)),
    "out has shape [2, 4, 9, 13]": (ValueError, lambda q, k, v: heed.attention(q, k, v, out=np.zeros((2, 4, 9, 13), np.float32))),
    "key has head dimension 3": (ValueError, lambda q, k, v: heed.attention(q, k[..., :3], v)),
    "mask has dtype f64; bool": (ValueError, lambda q, k, v: heed.attention(q, k, v, mask=np.ones((9, 13)))),
    "q has dtype >f4": (ValueError, lambda q, k, v: heed.attention(q.astype(">f4"), k, v)),
    "q has dtype complex64": (ValueError, lambda q, k, v: heed.attention(q.astype(np.complex64), k, v)),
    "q has dtype float8_e4m3fn; float64": (ValueError, lambda q, k, v: heed.attention(q.astype(ml_dtypes.float8_e4m3fn), k, v)),
    "q has dtype datetime64[s]": (ValueError, lambda q, k, v: heed.attention(q.astype(np.int64).astype("M8[s]"), k, v)),
    "q has dtype >f; float64": (ValueError, lambda q, k, v: heed.attention(memoryview(q.astype(">f4")), k, v)),
    "q cannot be read in place: PyCapsule": (ValueError, lambda q, k, v: heed.attention(NoCapsule(), k, v)),
    "q is a masked array with masked elements; a plain array is expected": (
        ValueError, lambda q, k, v: heed.attention(np.ma.masked_less(q, 0), k, v)),
    "mask is a masked array with masked elements": (
        ValueError, lambda q, k, v: heed.attention(q, k, v, mask=np.ma.masked_array(np.ones((9, 13), bool), mask=np.eye(9, 13)))),
    "k is a masked array with masked elements": (
        ValueError, lambda q, k, v: heed.attention(q.tolist(), [np.ma.masked_less(entry, 0) for entry in k], v)),
    "sinks is a masked array with masked elements": (
        ValueError, lambda q, k, v: heed.attention(q, k, v, sinks=np.ma.masked_array(np.ones(4), mask=[1, 0, 0, 0]))),
    "q has 6 axes": (ValueError, lambda q, k, v: heed.attention(q[None, None], k, v)),
    "out cannot be written in place": (
        ValueError, lambda q, k, v: heed.attention(q, k, v, out=np.broadcast_to(np.float32(0), (2, 4, 9, 12)))),
    "out cannot be written in place: buffer source array is read-only": (
        ValueError, lambda q, k, v: heed.attention(*(x.astype(ml_dtypes.bfloat16) for x in (q, k, v)), out=np.broadcast_to(
            ml_dtypes.bfloat16(0), (2, 4, 9, 12)))),
    "q has a stride of 18 bytes": (
        ValueError,
        lambda q, k, v: heed.attention(np.zeros(9, [("a", "f4"), ("b", "i2")])["a"].reshape(3, 3), k, v)),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_is_wrong_is_said_in_one_sentence(rng, message):
    kind, call = MISTAKES[message]
    with pytest.raises(kind) as caught:
        call(*inputs(rng))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_that_holds_itself_is_refused(rng):
    q, _, v = inputs(rng)
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="k has lists of different lengths"):
        heed.attention(q, loop, v)


def test_a_masked_array_without_masked_elements_is_an_array(rng):
    q, k, v = inputs(rng)
    assert (heed.attention(np.ma.masked_array(q), k, v) == heed.attention(q, k, v)).all()


def test_none_is_the_default_of_every_option(rng):
    q, k, v = inputs(rng)
    names = ("causal window mask bias scale softcap alibi decay sinks kv_lengths cu_seqlens align query_offset dropout seed "
             "dropout_offset need top_k received_last map scores_stage out output_dtype kernel threads")
    assert (heed.attention(q, k, v, **dict.fromkeys(names.split())) == heed.attention(q=q, k=k, v=v)).all()


def loss_of_numpy(tensors, gradients, call):
    """The sum of the oracle's results times the incoming gradients, in f64 and without heed."""
    found = attention_oracle.attention(tensors["q"], tensors["k"], tensors["v"], bias=tensors["bias"],
                                       sinks=tensors["sinks"], **call)
    return sum((found[name] * gradient).sum() for name, gradient in gradients.items())


def differences(tensors, gradients, call, name, step=1e-5):
    """The loss's derivative by each number of one tensor, as central differences."""
    found = np.empty_like(tensors[name])
    for place in np.ndindex(found.shape):
        sides = []
        for sign in (1, -1):
            moved = tensors[name].copy()
            moved[place] += sign * step
            sides.append(loss_of_numpy({**tensors, name: moved}, gradients, call))
        found[place] = (sides[0] - sides[1]) / (2 * step)
    return found


BACKWARD_CALLS = {
    "plain": {},
    "causal": {"causal": True, "align": "bottom-right"},
    "window and softcap": {"window": (2, 1), "softcap": 2.0, "scale": 0.7},
    "alibi": {"alibi": np.array([0.5, 0.25])},
    "packed": {"causal": True, "cu_seqlens": ([0, 2, 2, 5], [0, 3, 4, 6])},
}


@pytest.mark.parametrize("name", BACKWARD_CALLS)
@pytest.mark.parametrize("dtype,fields,kernel", [
    (np.float32, ("output", "lse"), "fused"), (np.float32, ("output", "lse", "weights"), "reference"),
    (np.float64, ("output", "lse", "weights"), "reference")], ids=["fused", "of weights too", "f64"])
def test_gradients_equal_differences_of_numpys(rng, name, dtype, fields, kernel):
    q, k, v = inputs(rng, batch=1, heads=2, kv_heads=1, queries=5, keys=6, dim=4, value_dim=3, dtype=dtype)
    bias, sinks = rng.standard_normal((2, 1, 6)).astype(dtype), rng.standard_normal(2).astype(dtype)
    call = BACKWARD_CALLS[name]
    forward = heed.attention(q, k, v, bias=bias, sinks=sinks, need=("lse", "weights"), **call)
    incoming = {field: rng.standard_normal(getattr(forward, field).shape).astype(dtype)
                for field in fields}
    got = heed.attention_backward(
        q, k, v, forward.output, forward.lse, incoming["output"], grad_lse=incoming["lse"],
        grad_weights=incoming.get("weights"), gradients=("dq", "dk", "dv", "dbias", "dsinks"), bias=bias, sinks=sinks,
        **call)
    assert isinstance(got, heed.AttentionGradients)
    assert got.kernel == kernel and got.isa and got.threads >= 1
    theirs = dict(call)
    if "cu_seqlens" in call:
        theirs["segments_q"], theirs["segments_k"] = (np.array(offsets) for offsets in theirs.pop("cu_seqlens"))
    tensors = {name: x.astype(np.float64) for name, x in (("q", q), ("k", k), ("v", v), ("bias", bias), ("sinks", sinks))}
    losses = {{"output": "out"}.get(field, field): gradient for field, gradient in incoming.items()}
    for name in tensors:
        gradient = getattr(got, "d" + name)
        assert gradient.dtype == dtype
        # Error of differences: the third derivative times 1e-10, plus rounding 1e-16 / 1e-5. f32: about 30 roundings
        # of 2^-24.
        assert_close(gradient, differences(tensors, losses, theirs, name), 1e-8 if dtype == np.float64 else 4e-6)


def test_only_the_gradients_that_were_asked_for(rng):
    q, k, v = inputs(rng)
    forward = heed.attention(q, k, v, need="lse")
    call = (q, k, v, forward.output, forward.lse, np.ones_like(forward.output))
    every = heed.attention_backward(*call)
    assert every.dq.shape == q.shape and every.dk.shape == k.shape and every.dv.shape == v.shape
    assert every.dbias is None and every.dsinks is None
    one = heed.attention_backward(*call, gradients="dk")
    assert one.dq is None and one.dv is None and (one.dk == every.dk).all()
    assert repr(one).startswith("AttentionGradients(dk (2, 2, 13, 16), fused kernel")
    # All options of the forward call may be passed.
    same = heed.attention_backward(*call, need=("lse", "weights"), top_k=3, map=(2, 2), received_last=1)
    assert (same.dq == every.dq).all()


def test_gradients_of_what_a_bias_repeats_are_summed(rng):
    q, k, v = inputs(rng)
    row = rng.standard_normal((1, 1, 1, 13)).astype(np.float32)
    forward = heed.attention(q, k, v, bias=row, need="lse")
    grad = rng.standard_normal(forward.output.shape).astype(np.float32)
    gradient = lambda bias: heed.attention_backward(q, k, v, forward.output, forward.lse, grad, bias=bias,
                                                    gradients="dbias").dbias
    whole = gradient(np.repeat(np.repeat(np.repeat(row, 2, 0), 4, 1), 9, 2))
    assert whole.shape == (2, 4, 9, 13)
    for bias in (row, np.broadcast_to(row, (2, 4, 9, 13))):
        assert_close(gradient(bias), whole.astype(np.float64).sum((0, 1, 2), keepdims=True), 2e-5)


BACKWARD_MISTAKES = {
    "gradients has 'dbias', but the call has no bias; a bias is expected": (ValueError, {"gradients": ("dq", "dbias")}),
    "gradients has 'dsinks', but the call has no sinks; sinks are expected": (ValueError, {"gradients": "dsinks"}),
    "gradients has 'ddecay', but the call has no decay; a decay is expected": (ValueError, {"gradients": "ddecay"}),
    "gradients is 'q'; 'dq' or 'dk'": (ValueError, {"gradients": "q"}),
    "gradients is 3; a name or several": (TypeError, {"gradients": 3}),
    "attention_backward() got an unexpected keyword argument 'masks'": (TypeError, {"masks": None}),
    "grad_lse has shape": (ValueError, {"grad_lse": np.zeros((2, 4, 8), np.float32)}),
    "grad_weights is a set; an array": (TypeError, {"grad_weights": {1.0}}),
    "window is 3; (left, right)": (TypeError, {"window": 3}),
    "dropout is given without a seed; the seed of the forward call is expected": (ValueError, {"dropout": 0.5}),
}


@pytest.mark.parametrize("message", BACKWARD_MISTAKES)
def test_what_is_wrong_with_a_backward_call_is_said(rng, message):
    kind, options = BACKWARD_MISTAKES[message]
    q, k, v = inputs(rng)
    forward = heed.attention(q, k, v, need="lse")
    with pytest.raises(kind) as caught:
        heed.attention_backward(q, k, v, forward.output, forward.lse, np.ones_like(forward.output), **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_other_threads_of_python_go_on_meanwhile():
    x = np.ones((1, 8, 1024, 64), np.float64)  # takes the reference kernel some tenths of a second
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    counting = threading.Thread(target=count)
    counting.start()
    try:
        while not counted[0]:
            pass
        before = counted[0]
        heed.attention(x[:, :1], x[:, :1], x[:, :1], kernel="reference")
        assert counted[0] - before > 1000  # if the call held the GIL, it would be a handful
    finally:
        done.set()
        counting.join()


def test_help_tells_of_every_option():
    for name in ("causal window mask bias scale softcap alibi decay sinks kv_lengths cu_seqlens align query_offset dropout "
                 "seed dropout_offset need top_k received_last map scores_stage out output_dtype kernel threads").split():
        assert name + "=" in heed.attention.__doc__, name
    for name in "grad_lse grad_weights gradients".split():
        assert name + "=" in heed.attention_backward.__doc__, name


def test_the_build_tells_of_itself():
    info = heed.info()
    assert info["version"] == heed.__version__
    assert info["isa"] and info["threads"] >= 1


def test_masks_without_a_matrix_are_their_booleans():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1, 4, 100, 16), dtype=np.float32)
    doc = np.repeat([0, 1], [40, 60])
    by_name = heed.masks.documents([40, 60])
    masks = [
        by_name,
        heed.SparseMask.expression("j <= i && doc[i] == doc[j]", 100, 100, doc=doc),
        heed.SparseMask.slices([((0, 40), (0, 40), "causal"), ((40, 100), (40, 100), 1)], 100, 100),
        heed.SparseMask.rows([[[0 if i < 40 else 40, i + 1]] for i in range(100)], 100),
        heed.SparseMask.flash([[40 if j < 40 else 100] for j in range(100)], causal=True, queries=100),
    ]
    dense = (np.arange(100)[None] <= np.arange(100)[:, None]) & (doc[None] == doc[:, None])
    expected = heed.attention(x, x, x, mask=dense, need=["weights", "lse", "masked_mass"])
    for mask in masks:
        assert np.array_equal(mask.dense()[0, 0], dense)
        result = heed.attention(x, x, x, mask=mask, need=["weights", "lse", "masked_mass"])
        for name in ("output", "weights", "lse", "masked_mass"):
            assert np.array_equal(getattr(result, name), getattr(expected, name)), (mask, name)
    assert by_name.runs(0, 0, 50) == [(40, 51)]
    assert by_name.shape == (1, 1, 100, 100) and by_name.nbytes < 10_000
    both = by_name & heed.masks.sliding_window(3, -1, 100, 100)
    assert both.runs(0, 0, 41) == [(40, 42)]
    with pytest.raises(ValueError, match=r"sparse_mask has size \[1, 1, 100, 100\]; \[1, 4, 99, 100\]"):
        heed.attention(x[:, :, :99], x, x, sparse_mask=by_name)
    with pytest.raises(TypeError, match="sparse_mask is of type ndarray; a heed.SparseMask is expected"):
        heed.attention(x, x, x, sparse_mask=dense)


def test_a_score_expression_is_the_bias_that_it_adds():
    x = np.random.default_rng(6).standard_normal((2, 3, 50, 8))
    distance = np.abs(np.arange(50)[:, None] - np.arange(50)[None])
    mod = heed.ScoreMod.expression("s - slope[h] * abs(i - j)", slope=[0.1, 0.2, 0.3])
    expected = heed.attention(x, x, x, bias=-np.array([0.1, 0.2, 0.3])[:, None, None] * distance)
    assert np.allclose(heed.attention(x, x, x, score_mod=mod), expected, atol=1e-12)
    assert repr(mod) == "ScoreMod('s - slope[h] * abs(i - j)')"
    with pytest.raises(ValueError, match="unknown name 'k' at column 5"):
        heed.ScoreMod.expression("s + k")


def test_lists_of_keys_are_a_mask():
    rng = np.random.default_rng(8)
    q, k, v = (rng.standard_normal((2, h, 60, 16), dtype=np.float32) for h in (4, 2, 2))
    lists = np.stack([[rng.permutation(60)[:9] for _ in range(60)] for _ in range(4)]).reshape(2, 2, 60, 9)
    counts = rng.integers(0, 10, (2, 2, 60))
    padded = np.where(np.arange(9) < counts[..., None], lists, -1).astype(np.int32)
    dense = np.zeros((2, 2, 60, 60), bool)
    for at in np.ndindex(2, 2, 60):
        dense[at][lists[at][: counts[at]]] = True
    expected = heed.attention(q, k, v, mask=dense.repeat(2, 1), causal=True)
    for mask in (heed.SparseMask.key_lists(lists, 60, counts), heed.SparseMask.key_lists(padded, 60)):
        assert (mask.dense() == dense).all()
        assert (heed.attention(q, k, v, mask=mask, causal=True) == expected).all()
    gathered = heed.SparseMask.key_lists(padded, 60, gather="always")
    np.testing.assert_allclose(heed.attention(q, k, v, mask=gathered, causal=True), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="^indices lists key 3 twice at \\[1\\]; each key at most once is expected$"):
        heed.SparseMask.key_lists([[0, 1], [3, 3]], 4)
    with pytest.raises(ValueError, match="^gather is 'often'; 'automatic', 'never' or 'always' is expected$"):
        heed.SparseMask.key_lists([[0, 1]], 4, gather="often")


def test_the_lightning_indexer_chooses_the_best_keys():
    rng = np.random.default_rng(9)
    q = rng.integers(-3, 4, (2, 5, 30, 8)).astype(np.float32)  # whole numbers: exact, with ties
    k = rng.integers(-3, 4, (2, 1, 40, 8)).astype(np.float32)
    weights = rng.integers(-2, 4, (2, 5, 30)).astype(np.float32)
    scores = np.einsum("bhi,bhij->bij", weights, np.maximum(np.einsum("bhid,bkjd->bhij", q, k), 0))
    lists = heed.masks.lightning_indexer(q, k, weights, 12, query_offset=10)
    assert lists.dtype == np.int32 and lists.shape == (2, 1, 30, 12)
    for b, i in np.ndindex(2, 30):
        seen = scores[b, i, : i + 11]
        best = np.sort(np.argsort(-seen, kind="stable")[:12])
        assert (lists[b, 0, i] == np.pad(best, (0, 12 - len(best)), constant_values=-1)).all()


@pytest.mark.parametrize("make", [lambda n: heed.masks.prefix_lm(3, n, n), lambda n: heed.masks.documents([n])])
def test_a_mask_of_more_rows_than_memory_holds_is_refused_at_once(make):
    with pytest.raises(MemoryError, match="^not enough memory for the workspace of attention$"):
        make(2**47)
