"""com.microsoft.GroupQueryAttention, compared with ONNX Runtime's outputs.

Where its CPU build refuses a call, the schema's formulas in f64 are used: bf16, quantised caches beside f16, batches of
chunks, quantised caches without a past."""

import json
import pathlib
import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import ml_dtypes  # noqa: E402
from group_query_calls import INPUTS, KINDS, OUTPUTS, QUANTISED, Call, by_onnxruntime, compute, draw  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from safetensors import safe_open  # noqa: E402

import heed.onnx  # noqa: E402

GOLDEN = pathlib.Path(__file__).parents[2] / "tests" / "data" / "group_query_attention.safetensors"
FORMATS = [(np.float32, quantised) for quantised in QUANTISED] + [(np.float16, QUANTISED[0])]

# Absolute and relative, for numbers of a few units. f32: sums of products in another order. f16 and bf16 have 11 and
# 8 bits, and are rounded twice: rotated rows, and the output.
TOLERANCE = {"float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}


def ours(call):
    return call.defined(heed.onnx.run_node(call.node(), call.inputs))


def kept_alike(call, outputs, expected):
    """Whether the caches are equal. If a rotated number is at a rounding tie, its code may differ by one."""
    differ = 0
    for name in ("present_key", "present_value"):
        ours, theirs = outputs[name], expected[name]
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        if call.attributes.get("kv_cache_bit_width"):
            differ += (ours != theirs).sum()
        else:
            tolerance = TOLERANCE[ours.dtype.name] if call.attributes.get("do_rotary") and name == "present_key" else 0
            np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=0, atol=tolerance)
    assert differ <= 1, call
    return differ == 0


def hold(call, outputs, expected):
    """Compares all outputs. Returns whether the codes were equal."""
    assert list(outputs) == list(expected)
    if not kept_alike(call, outputs, expected):
        return False
    for name in ("output", "output_qk"):
        if name in outputs:
            assert outputs[name].shape == expected[name].shape, name
            tolerance = TOLERANCE[call.inputs["query"].dtype.name]
            np.testing.assert_allclose(outputs[name].astype(np.float64), expected[name].astype(np.float64), rtol=tolerance,
                                       atol=tolerance, err_msg=f"{name} of {call}")
    return True


def test_it_gives_what_onnxruntime_gave():
    with safe_open(GOLDEN, "np") as file:
        by, tensors = json.loads(file.metadata()["by"]), {name: file.get_tensor(name) for name in file.keys()}
    assert by["onnxruntime"] == "1.32.0"
    assert len(by["calls"]) == len(KINDS) * len(FORMATS)
    for case, attributes in by["calls"].items():
        inputs = {name: tensors[f"{case}/{name}"] for name in INPUTS if f"{case}/{name}" in tensors}
        expected = {name: tensors[f"{case}/{name}"] for name in OUTPUTS if f"{case}/{name}" in tensors}
        call = Call(attributes, inputs)
        assert hold(call, ours(call), expected), case


@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_what_onnxruntime_gives(kind):
    pytest.importorskip("onnxruntime")
    ties = 0
    for seed in range(60):
        call = draw(np.random.default_rng([seed, KINDS.index(kind)]), kind, *FORMATS[seed % len(FORMATS)])
        ties += not hold(call, ours(call), call.defined(by_onnxruntime(call)))
    assert ties <= 2  # about one code in a million is that close to a tie


@pytest.mark.parametrize("quantised", QUANTISED)
def test_it_gives_what_onnxruntime_gives_at_length(quantised):
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(5)
    heads, kv_heads, dim, rows = 4, 2, 32, 7000  # more than two KV splits
    how, bits = quantised
    attributes, inputs = {"num_heads": heads, "kv_num_heads": kv_heads}, {}
    for name, count in (("query", heads), ("key", kv_heads), ("value", kv_heads)):
        inputs[name] = rng.standard_normal((2, 1, count * dim), dtype=np.float32)
    for name in ("past_key", "past_value"):
        inputs[name] = rng.standard_normal((2, kv_heads, rows, dim), dtype=np.float32)
        if bits:
            inputs[name] = rng.integers(0, 256, (2, kv_heads, rows, dim * bits // 8), np.uint8)
            inputs[name] = inputs[name].view(np.int8 if bits == 8 else np.uint8)
    inputs["seqlens_k"] = np.array([rows, rows - 17], np.int32)
    inputs["total_sequence_length"] = np.array(rows + 1, np.int32)
    if bits:
        attributes |= {"k_quant_type": how, "v_quant_type": how, "kv_cache_bit_width": bits}
        size = 1 if how == "PER_TENSOR" else kv_heads * dim
        for name in ("k_scale", "v_scale"):
            inputs[name] = rng.uniform(1, 2, size).astype(np.float32) * np.float32(2.0 ** (1 - bits))
    call = Call(attributes, inputs)
    assert hold(call, ours(call), call.defined(by_onnxruntime(call)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_it_gives_the_schemas_formulas_where_onnxruntime_has_no_such_call(kind, dtype):
    for seed in range(20):
        call = draw(np.random.default_rng([seed, KINDS.index(kind)]), kind, dtype, QUANTISED[seed % 5], beyond_runtime=True)
        expected = call.defined(compute(call)[: len(call.outputs)])
        assert hold(call, ours(call), expected), call


@pytest.mark.parametrize("quantised", [("NONE", 0), ("PER_CHANNEL", 8)])
def test_a_prompt_and_its_tokens_one_by_one_give_the_same(quantised):
    rng = np.random.default_rng(3)
    length, heads, kv_heads, dim = 9, 4, 2, 16
    attributes = {"num_heads": heads, "kv_num_heads": kv_heads, "do_rotary": 1, "local_window_size": 5}
    angles = np.outer(np.arange(length), 100.0 ** -(np.arange(8) / 8))
    fixed = {"cos_cache": np.cos(angles).astype(np.float32), "sin_cache": np.sin(angles).astype(np.float32)}
    if quantised[1]:
        attributes |= {"k_quant_type": quantised[0], "v_quant_type": quantised[0], "kv_cache_bit_width": quantised[1]}
        fixed |= dict.fromkeys(("k_scale", "v_scale"), np.full((1, kv_heads, 1, dim), 0.02, np.float32))
    packed = rng.standard_normal((2, length, (heads + 2 * kv_heads) * dim), dtype=np.float32)

    def step(query, past, first, end):
        inputs = fixed | past | {"query": query, "seqlens_k": np.full(2, end - 1, np.int32),
                                 "total_sequence_length": np.array(end, np.int32)}
        call = Call(attributes, {name: inputs[name] for name in INPUTS if name in inputs})
        output, key, value = heed.onnx.run_node(call.node(), call.inputs)
        return output, {"past_key": key, "past_value": value}

    whole, cache = step(packed, {}, 0, length)
    past = {}
    for at in range(length):
        output, past = step(packed[:, at : at + 1], past, at, at + 1)
        np.testing.assert_allclose(output[:, 0], whole[:, at], rtol=0, atol=1e-5)  # f32 sums in another order
    for name in cache:
        assert np.array_equal(past[name], cache[name])


def test_what_lies_beyond_a_sequence_is_never_read():
    call = draw(np.random.default_rng(4), "decode")
    call.inputs.pop("attention_bias", None)
    before = call.inputs["seqlens_k"].ravel()  # the number of keys without the new token
    room = before.max() + 3
    shape = call.inputs["past_key"].shape
    for name in ("past_key", "past_value"):
        call.inputs[name] = np.full((shape[0], shape[1], room, shape[3]), np.nan, np.float32)
        for b, rows in enumerate(before):
            call.inputs[name][b, :, :rows] = 1
    outputs = heed.onnx.run_node(call.node(), call.inputs)
    for array in outputs:
        assert np.isfinite(array).all()
    assert outputs[1].shape[2] == room  # a past with spare capacity gives a present of the same size


def test_models_run_with_it_among_other_operators(monkeypatch):
    made = []
    attention = heed.onnx._heed.attention
    monkeypatch.setattr(heed.onnx._heed, "attention", lambda *a, **k: made.append(1) or attention(*a, **k))
    call = draw(np.random.default_rng(8), "prompt")
    query = helper.make_node("Mul", ["x", "two"], ["query"])
    inputs = [name for name in call.inputs if name != "query"]
    described = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * 3)]
    described += [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(call.inputs[n].dtype),
                                                [None] * call.inputs[n].ndim) for n in inputs]
    graph = helper.make_graph([query, call.node()], "two", described,
                              [helper.make_tensor_value_info("output", TensorProto.FLOAT, [None] * 3)],
                              [onnx.numpy_helper.from_array(np.array(2, np.float32), "two")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    feeds = {name: call.inputs[name] for name in inputs} | {"x": call.inputs["query"] / np.float32(2)}
    (output,) = heed.onnx.prepare(model).run(feeds)
    assert made == [1]
    assert np.array_equal(output, heed.onnx.run_node(call.node(), call.inputs)[0])


def plain_decode(**changes):
    """A valid call with changes: attributes or inputs by name; None removes an input."""
    call = Call({"num_heads": 4, "kv_num_heads": 2}, {
        "query": np.ones((2, 1, 64), np.float32), "key": np.ones((2, 1, 32), np.float32),
        "value": np.ones((2, 1, 32), np.float32), "past_key": np.ones((2, 2, 5, 16), np.float32),
        "past_value": np.ones((2, 2, 5, 16), np.float32), "seqlens_k": np.array([5, 3], np.int32),
        "total_sequence_length": np.array(6, np.int32)})
    for name, value in changes.items():
        if value is None or isinstance(value, np.ndarray):
            call.inputs[name] = value
        else:
            call.attributes[name] = value
    call.inputs = {name: call.inputs[name] for name in [*INPUTS, "q_norm_weight", "k_norm_weight", "query_seqlens"]
                   if call.inputs.get(name) is not None}
    return call


def floats(*shape):
    return np.zeros(shape, np.float32)


EIGHT = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8,
         "past_key": np.zeros((2, 2, 5, 16), np.int8), "past_value": np.zeros((2, 2, 5, 16), np.int8),
         "k_scale": np.ones(1, np.float32), "v_scale": np.ones(1, np.float32)}
WRONG = [
    ({"sliding_window_cache": 1}, "sliding_window_cache is 1, which heed does not support; 0 is expected"),
    ({"causal": 0}, "causal is 0, which heed does not support; 1 is expected"),
    ({"no_such_thing": 1}, "attribute no_such_thing is given, which heed does not know"),
    ({"value": None}, "only one of key and value is given; both or neither is expected"),
    ({"past_value": None}, "only one of past_key and past_value is given"),
    ({"cos_cache": floats(8, 8)}, "only one of cos_cache and sin_cache is given"),
    ({"num_heads": 3}, "num_heads is 3 and kv_num_heads 2; a multiple of 1 or more is expected"),
    ({"kv_num_heads": 0}, "num_heads is 4 and kv_num_heads 0"),
    ({"query": floats(2, 1, 63)}, "query has shape [2, 1, 63]; [B, S, 4 * D] is expected"),
    ({"query": floats(2, 64)}, "query has shape [2, 64]"),
    ({"key": floats(2, 2, 32)}, "key has shape [2, 2, 32]; [2, 1, 32] or no rows is expected"),
    ({"key": floats(2, 0, 32)}, "key has shape [2, 0, 32] and value [2, 1, 32]; one shape is expected"),
    ({"value": np.ones((2, 1, 32), np.float16)}, "value is float16 and query float32; one dtype is expected"),
    ({"seqlens_k": np.array([5], np.int32)}, "seqlens_k is int32 [1]; integers [2] or [2, 1] is expected"),
    ({"seqlens_k": floats(2)}, "seqlens_k is float32 [2]"),
    ({"seqlens_k": np.array([5, 6], np.int32)}, "seqlens_k is [5, 6] for 1 query and total_sequence_length 6; 0 to 5"),
    ({"seqlens_k": np.array([-1, 5], np.int32)}, "seqlens_k is [-1, 5]"),
    ({"total_sequence_length": np.array([6, 6], np.int32)}, "total_sequence_length is int32 [2]; one integer is expected"),
    ({"past_key": floats(2, 2, 4, 16), "past_value": floats(2, 2, 4, 16)}, "past_key has 4 rows; 5 or more, by seqlens_k"),
    ({"past_key": None, "past_value": None}, "past_key has 0 rows; 5 or more"),
    ({"past_value": floats(2, 2, 5, 8)}, "past_value is float32 [2, 2, 5, 8]; float32 [2, 2, rows, 16] is expected"),
    ({"past_key": np.ones((2, 2, 5, 16), np.float16)}, "past_key is float16 [2, 2, 5, 16]; float32 [2, 2, rows, 16]"),
    ({"seqlens_k": np.array(5, np.int32)}, "seqlens_k is int32 []; integers [2] or [2, 1] is expected"),
    ({"do_rotary": 1}, "do_rotary is 1 without cos_cache and sin_cache; both is expected"),
    ({"do_rotary": 1, "cos_cache": floats(8, 9), "sin_cache": floats(8, 9)}, "cos_cache has shape [8, 9]"),
    ({"do_rotary": 1, "cos_cache": floats(5, 8), "sin_cache": floats(5, 8)}, "positions go from 3 to 5; 0 to 4"),
    ({"do_rotary": 1, "cos_cache": floats(8, 8), "sin_cache": floats(8, 8), "position_ids": np.zeros((1, 1), np.int64)},
     "position_ids has shape [1, 1]; [2, 1] is expected"),
    ({"q_norm_weight": floats(16)}, "q_norm_weight is given, which heed does not support"),
    ({"query_seqlens": np.ones(2, np.int32)}, "query_seqlens is given, which heed does not support"),
    ({"kv_cache_bit_width": 8}, "kv_cache_bit_width is 8 for a cache without codes; 0 is expected"),
    (EIGHT | {"v_quant_type": "NONE"}, "one of k_quant_type and v_quant_type is PER_TENSOR and the other NONE"),
    (EIGHT | {"k_quant_type": "PER_ROW"}, "k_quant_type is PER_ROW; NONE, PER_TENSOR or PER_CHANNEL is expected"),
    (EIGHT | {"kv_cache_bit_width": 2}, "kv_cache_bit_width is 2 for heads of 16; 8, or 4"),
    (EIGHT | {"k_scale": None}, "k_quant_type is PER_TENSOR without k_scale"),
    (EIGHT | {"v_scale": np.ones(2, np.float32)}, "v_scale is float32 [2]; float32 [1, 1, 1, 1] (PER_TENSOR) is expected"),
    (EIGHT | {"k_quant_type": "PER_CHANNEL"}, "k_scale is float32 [1]; float32 [1, 2, 1, 16] (PER_CHANNEL) is expected"),
    (EIGHT | {"past_key": floats(2, 2, 5, 16)}, "past_key is float32 [2, 2, 5, 16]; int8 [2, 2, rows, 16] is expected"),
    (EIGHT | {"query": np.full((2, 1, 64), np.nan, np.float32), "key": np.full((2, 1, 32), np.nan, np.float32)},
     "new rows for past_key are not finite; numbers that codes can represent is expected"),
    ({"attention_bias": floats(1, 1, 1, 5)}, "attention_bias has shape [1, 1, 1, 5]; [2 or 1, 4 or 1, 1, 6] is expected"),
    ({"head_sink": floats(3)}, "head_sink has shape [3]; [4] is expected"),
]


# The schema does not define these, but exported models contain them.
@pytest.mark.parametrize("changes", [
    {"seqlens_k": np.array([[5], [3]], np.int32)}, {"seqlens_k": np.array([[5, 3]], np.int32)},
    {"total_sequence_length": np.array([6], np.int32)}, {"local_window_size": 0}, {"local_window_size": -2},
    {"local_window_size": 0, "head_sink": np.ones(4, np.float32), "qk_output": 1}, {"local_window_size": 0, "qk_output": 2},
    {"softcap": -1.0}, {"scale": 0.0}, {"smooth_softmax": 2}, {"do_rotary": 2}, {"do_rotary": 1, "rotary_interleaved": 2}], ids=str)
def test_unspecified_values_give_the_numbers_of_onnxruntime(changes):
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(6)
    call = plain_decode(**changes)
    for name in ("query", "key", "value", "past_key", "past_value"):
        call.inputs[name] = rng.standard_normal(call.inputs[name].shape, dtype=np.float32)
    if "do_rotary" in changes:
        call.inputs |= {name: rng.standard_normal((8, 8), dtype=np.float32) for name in ("cos_cache", "sin_cache")}
    assert hold(call, ours(call), call.defined(by_onnxruntime(call)))


@pytest.mark.parametrize("changes, message", WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_or_not_understood_is_said_in_one_sentence(changes, message):
    call = plain_decode(**changes)
    names = [*INPUTS, "q_norm_weight", "k_norm_weight", "query_seqlens"]
    node = helper.make_node("GroupQueryAttention", [name if name in call.inputs else "" for name in names], OUTPUTS[:3],
                            domain="com.microsoft", **call.attributes)
    with pytest.raises(ValueError, match=re.escape(message)):
        heed.onnx.run_node(node, call.inputs)


def test_an_output_qk_needs_an_attribute_that_says_which():
    call = plain_decode()
    heed.onnx.run_node(call.node(), call.inputs)  # valid without it
    node = helper.make_node("GroupQueryAttention", list(call.inputs), OUTPUTS, domain="com.microsoft", **call.attributes)
    with pytest.raises(ValueError, match="qk_output is 0; 1 or 2 if there is an output_qk"):
        heed.onnx.run_node(node, call.inputs)
