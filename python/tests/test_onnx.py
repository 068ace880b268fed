"""heed.onnx: ONNX's own tests of the Attention operator, and the backend interface."""

import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import onnx.backend.test  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

import heed.onnx  # noqa: E402

# The tests named test_attention_* in the installed release. Each has a model with the operator, and one (…_expanded)
# with other operators instead, which the backend runs without heed.
suite = onnx.backend.test.BackendTest(heed.onnx, __name__)
suite.include(r"^test_attention_")
OnnxBackendNodeModelTest = suite.test_cases["OnnxBackendNodeModelTest"]
for name in [name for name in vars(OnnxBackendNodeModelTest) if name.startswith("test_")]:
    if not name.startswith("test_attention_") or name.endswith("_cuda"):
        delattr(OnnxBackendNodeModelTest, name)  # it would be skipped, as would those of two thousand other operators


@pytest.fixture
def calls(monkeypatch):
    """Records each call of heed."""
    made = []
    ours = heed.onnx._heed.attention
    monkeypatch.setattr(heed.onnx._heed, "attention", lambda *a, **k: made.append(1) or ours(*a, **k))
    return made


def test_the_release_ships_its_tests_and_heed_computes_them(calls):
    shipped = [name for name in vars(OnnxBackendNodeModelTest) if name.startswith("test_attention_")]
    plain = [name for name in shipped if "_expanded" not in name]
    assert len(plain) >= 80
    for name in plain:
        before = len(calls)
        getattr(OnnxBackendNodeModelTest(name), name)()
        assert len(calls) > before, name


def model(opset=23, **attributes):
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], **attributes)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4) for name in "qkv"]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.fixture
def qkv():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, 2, 5, 8), dtype=np.float32) for _ in range(3)]


@pytest.mark.parametrize("opset", [23, 24, 25])
def test_models_of_each_opset_run(qkv, opset):
    expected = heed.attention(*qkv, causal=True)
    prepared = heed.onnx.prepare(model(opset, is_causal=1))
    assert np.array_equal(prepared.run(qkv)[0], expected)
    assert np.array_equal(prepared.run(dict(zip("qkv", qkv)))[0], expected)
    assert np.array_equal(heed.onnx.run_model(model(opset, is_causal=1), qkv)[0], expected)


def test_a_node_runs_alone(qkv):
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], softcap=2.0)
    (output,) = heed.onnx.run_node(node, qkv)
    assert np.array_equal(output, heed.attention(*qkv, softcap=2.0))


def test_it_knows_its_device():
    assert heed.onnx.supports_device("CPU") and heed.onnx.supports_device("CPU:0")
    assert not heed.onnx.supports_device("CUDA")
    with pytest.raises(ValueError, match="'CPU' is expected"):
        heed.onnx.prepare(model(), "CUDA:1")


def test_what_is_wrong_is_said(qkv):
    prepared = heed.onnx.prepare(model())
    with pytest.raises(ValueError, match=r"Q has shape \[2, 5, 8\] for None heads"):
        prepared.run([x[0] for x in qkv])
    q, k, v = qkv
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
    for run, owner in ((prepared.run, "model"), (lambda inputs: heed.onnx.run_node(node, inputs), "node")):
        for inputs, text in (([q, k, v, q], f"4 inputs are given; the {owner} has 3: q, k, v"),
                             ([q, k], f"input 'v' is missing; the {owner} has q, k, v"),
                             (np.ones((3, 1, 5, 8), np.float32), "input 'k' is missing"),
                             ({"q": q, "k": k, "w": v}, f"input 'w' is given; the {owner} has q, k, v"),
                             ([np.ma.masked_less(q, 0), k, v], "input 'q' is a masked array with masked elements")):
            with pytest.raises(ValueError, match=text):
                run(inputs)
        with pytest.raises(TypeError, match="inputs is of type int; a mapping, a list or an array is expected"):
            run(5)
    with pytest.raises(ValueError, match="input 'x' is given twice, as two arrays; one array is expected"):
        heed.onnx.run_node(helper.make_node("Attention", ["x", "x", "v"], ["y"]), [q, k, v])
    with pytest.raises(ValueError, match="device is 'CUDA'; 'CPU' is expected"):
        heed.onnx.run_node(node, qkv, "CUDA")


@pytest.mark.parametrize("attributes, inputs, text", [
    ({"softmax_precision": 7}, {}, "softmax_precision is 7; one of 1, 10, 11, 16 is expected"),
    ({"qk_matmul_output_mode": 4}, {}, "qk_matmul_output_mode is 4; one of 0, 1, 2, 3 is expected"),
    ({"is_causal": 2}, {}, "is_causal is 2; one of 0, 1 is expected"),
    ({"q_num_heads": 7, "kv_num_heads": 2}, {}, r"Q has shape \[1, 2, 5, 8\] for 7 heads"),
    ({"q_num_heads": -2, "kv_num_heads": -2}, {name: (1, 5, 16) for name in ("Q", "K", "V")},
     r"Q has shape \[1, 5, 16\] for -2 heads"),
    ({"q_num_heads": 2, "kv_num_heads": 2}, {"K": (1, 5, 16), "V": (1, 5, 16)},
     "Q, K and V have 4, 3 and 3 axes; the same number is expected"),
    ({}, {"attn_mask": ()}, r"attn_mask has shape \[\]; 1 to 4 axes"),
    ({}, {"past_key": (1, 5, 16), "past_value": (1, 5, 16)},
     r"past_key is float32 \[1, 5, 16\]; float32 \[1, 2, rows, 8\] is expected"),
    ({}, {"past_key": (1, 2, 3, 8), "past_value": (2, 2, 3, 8)}, r"past_value is float32 \[2, 2, 3, 8\]; float32 \[1, 2, rows, 8\]"),
    ({}, {"past_key": (1, 2, 3, 8, np.float16), "past_value": (1, 2, 3, 8)}, "past_key is float16"),
])
def test_what_the_operator_does_not_know_is_refused(attributes, inputs, text):
    shapes = dict.fromkeys(("Q", "K", "V"), (1, 2, 5, 8)) | inputs
    feeds = {name: np.ones([n for n in shape if isinstance(n, int)], shape[-1] if np.float16 in shape else np.float32)
             for name, shape in shapes.items()}
    node = helper.make_node("Attention", [name if name in feeds else "" for name in (
        "Q", "K", "V", "attn_mask", "past_key", "past_value")], ["y"], **attributes)
    with pytest.raises(ValueError, match=f"Attention: {text}"):
        heed.onnx.run_node(node, feeds)


def test_keywords_that_mean_nothing_are_refused(qkv):
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
    for call, text in ((lambda: heed.onnx.prepare(model(), strict=True), "keyword strict is given, which heed.onnx does not know; rtol or atol"),
                       (lambda: heed.onnx.run_model(model(), qkv, threads=2), "keyword threads is given"),
                       (lambda: heed.onnx.prepare(model()).run(qkv, threads=2), "keyword threads is given, which heed.onnx does not know; none"),
                       (lambda: heed.onnx.run_node(node, qkv, opset=23), "keyword opset is given, which heed.onnx does not know; opset_version")):
        with pytest.raises(TypeError, match=text):
            call()
    heed.onnx.prepare(model(), rtol=1e-3, atol=1e-6)  # as ONNX's test runner does
    assert np.array_equal(heed.onnx.run_node(node, qkv, opset_version=23)[0], heed.attention(*qkv))


def test_an_initializer_is_the_default_of_an_input(qkv):
    with_default = model()
    with_default.graph.initializer.append(onnx.numpy_helper.from_array(qkv[2], "v"))
    assert np.array_equal(heed.onnx.run_model(with_default, qkv[:2])[0], heed.attention(*qkv))


def test_without_onnx_one_sentence_says_so():
    program = """
import sys
sys.modules["onnx"] = None
try:
    import heed.onnx
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "heed.onnx needs onnx, which is not installed: pip install onnx\n"


def test_other_things_than_models_nodes_and_devices_are_refused():
    for call, text in ((lambda: heed.onnx.prepare([]), "model is of type list; an onnx.ModelProto or a path is expected"),
                       (lambda: heed.onnx.run_node([], []), "node is of type list; an onnx.NodeProto is expected"),
                       (lambda: heed.onnx.supports_device(5), "device is of type int; a str is expected")):
        with pytest.raises(TypeError, match=f"^{text}$"):
            call()
