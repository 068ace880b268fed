"""Models with heed's attention, traced and exported: for other inputs, the graph computes PyTorch's attention."""

import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")  # needed by torch.onnx.export

from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

import heed  # noqa: E402
import heed.torch as T  # noqa: E402
import heed.transformers  # noqa: E402

heed.transformers.register()
pytestmark = pytest.mark.filterwarnings("ignore")
torch.manual_seed(3)
X, Y = torch.randn(2, 1, 4, 5, 8)
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 60}
MODELS = {
    "bert": lambda: (transformers.BertModel, transformers.BertConfig(**SIZES)),
    "gpt2": lambda: (transformers.GPT2Model, transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=60)),
    "llama": lambda: (transformers.LlamaModel, transformers.LlamaConfig(**SIZES, num_key_value_heads=2)),
    "gemma2": lambda: (transformers.Gemma2Model, transformers.Gemma2Config(
        **SIZES, num_key_value_heads=2, head_dim=8, sliding_window=3, attn_logit_softcapping=2.0)),
}
IDS = torch.randint(3, 60, (2, 1, 7), generator=torch.Generator().manual_seed(1))


class Function(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


class Hidden(torch.nn.Module):
    """A transformers model, from ids to hidden states."""

    def __init__(self, name, implementation):
        super().__init__()
        kind, config = MODELS[name]()
        torch.manual_seed(2)
        self.model = kind._from_config(config, attn_implementation=implementation).eval()

    def forward(self, ids):
        return self.model(ids, use_cache=False).last_hidden_state


def by_onnx(module, example, other, dynamo):
    """ONNX Runtime's result for `other`, after an export with `example`."""
    file = io.BytesIO()
    with torch.no_grad():
        if dynamo:
            torch.onnx.export(module, (example,), dynamo=True, input_names=["x"], verbose=False).save(file)
        else:
            torch.onnx.export(module, (example,), file, dynamo=False, input_names=["x"], opset_version=17)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"x": other.numpy()})[0])


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2"])
@torch.no_grad()
def test_a_traced_model_computes(name):
    expected = Hidden(name, "eager")(IDS[1])
    traced = torch.jit.trace(Hidden(name, "heed"), IDS[0])
    torch.testing.assert_close(traced(IDS[1]), expected, atol=2e-5, rtol=0)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    torch.testing.assert_close(torch.jit.load(file)(IDS[1]), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("dynamo, name", [(False, "bert"), (True, "bert"), (True, "gemma2")])
def test_a_model_exported_to_onnx_computes(dynamo, name):
    with torch.no_grad():
        expected = Hidden(name, "eager")(IDS[1])
    found = by_onnx(Hidden(name, "heed"), IDS[0], IDS[1], dynamo)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


def plain(q, k, v, *, bias=0.0, allowed=True, softcap=None, sinks=None):
    """The formula: (output, lse, weights)."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * 8**-0.5
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    scores = (scores + bias).masked_fill(~torch.as_tensor(allowed), float("-inf"))
    total = scores if sinks is None else torch.cat([scores, sinks[:, None, None].expand(1, -1, scores.shape[2], 1)], -1)
    lse = total.logsumexp(-1)
    weights = torch.exp(scores - lse[..., None]).nan_to_num(0.0)
    return weights @ v, lse, weights


CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()
SOME = torch.arange(5)[:, None].expand(5, 5) > 0  # row 0 may attend to nothing
SINKS = torch.tensor([0.5, -1.0, 2.0, 0.0])
EXPORTED = {
    "sdpa": (lambda x: T.scaled_dot_product_attention(x, x, x), lambda x: plain(x, x, x)[0]),
    "shared heads": (lambda x: T.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True, is_causal=True),
                     lambda x: plain(x, x[:, :2], x[:, :2], allowed=CAUSAL)[0]),
    "a row without keys": (lambda x: T.scaled_dot_product_attention(x, x, x, SOME), lambda x: plain(x, x, x, allowed=SOME)[0]),
    "its lse": (lambda x: T.attention(x, x, x, mask=SOME).lse, lambda x: plain(x, x, x, allowed=SOME)[1]),
    "all rules": (lambda x: T.attention(x, x, x, causal=True, window=(2, -1), softcap=3.0, sinks=SINKS, bias=x[..., :5],
                                        need=["weights"]).weights,
                  lambda x: plain(x, x, x, allowed=CAUSAL & ~CAUSAL.tril(-3), softcap=3.0, sinks=SINKS, bias=x[..., :5])[2]),
    "fewer queries": (lambda x: T.attention(x[:, :, 3:], x, x, causal=True, align="bottom-right").output,
                      lambda x: plain(x[:, :, 3:], x, x, allowed=CAUSAL[3:])[0]),
    "flex": (lambda x: T.flex_attention(x, x, x), lambda x: plain(x, x, x)[0]),
}


@pytest.mark.parametrize("dynamo, name", [*((False, name) for name in EXPORTED), (True, "sdpa"), (True, "all rules")])
def test_a_function_exported_to_onnx_computes(dynamo, name):
    call, formula = EXPORTED[name]
    torch.testing.assert_close(by_onnx(Function(call), X, Y, dynamo), formula(Y), atol=2e-6, rtol=0)


def test_a_module_exported_to_onnx_computes():
    ours, theirs = T.MultiheadAttention(8, 2, batch_first=True), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.load_state_dict(ours.state_dict())

    class Model(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x, x, x)[0]

    found = by_onnx(Model(ours).eval(), X[0], Y[0], False)
    torch.testing.assert_close(found, theirs(Y[0], Y[0], Y[0])[0].detach(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("name, call", {
    "cu_seqlens": lambda x: T.varlen_attention(x[0], x[0], x[0], torch.tensor([0, 4])),
    "alibi": lambda x: T.attention(x, x, x, alibi=[1.0] * 4).output,
    "kv_lengths": lambda x: T.attention(x, x, x, kv_lengths=[3]).output,
    "sparse_mask": lambda x: T.attention(x, x, x, mask=heed.masks.documents([2, 3])).output,
    "score_mod": lambda x: T.flex_attention(x, x, x, heed.ScoreMod.expression("s - 0.1 * abs(i - j)")),
    "dropout": lambda x: T.attention(x, x, x, dropout=0.5).output,
    "top_k": lambda x: T.attention(x, x, x, top_k=2).output,
    "need='entropy'": lambda x: T.attention(x, x, x, need=["entropy"]).entropy,
}.items())
def test_what_has_no_onnx_is_refused(name, call):
    with pytest.raises(ValueError, match=f"attention: {name} is given while torch.onnx.export exports the model"):
        by_onnx(Function(call), X, Y, False)


BLOCKS = create_block_mask(lambda b, h, i, j: i >= j, None, None, 5, 5, "cpu", BLOCK_SIZE=4)
MASK = heed.masks.documents([2, 3])
MADE = T.mask_tensor(MASK)
MOD = heed.ScoreMod.expression("s - 0.1 * abs(i - j)")


@pytest.mark.parametrize("call", [
    lambda x: T.attention(x, x, x, mask=MASK).output, lambda x: T.attention(x, x, x, sparse_mask=MADE).output,
    lambda x: T.flex_attention(x, x, x, MOD), lambda x: T.attention(x, x, x, kv_lengths=(x[:, 0, :, 0] > 0).sum(-1)).output])
def test_masks_that_exist_and_numbers_of_the_input_are_traced(call):
    torch.testing.assert_close(torch.jit.trace(call, X)(Y), call(Y), atol=0, rtol=0)


def test_a_block_mask_is_converted_before_a_trace():
    with pytest.raises(ValueError, match="block_mask is a BlockMask that heed reads while PyTorch traces a graph.*is expected"):
        torch.jit.trace(lambda x: T.flex_attention(x, x, x, block_mask=BLOCKS), X)
    mask = T.from_block_mask(BLOCKS)
    traced = torch.jit.trace(lambda x: T.flex_attention(x, x, x, block_mask=mask), X)
    torch.testing.assert_close(traced(Y), plain(Y, Y, Y, allowed=CAUSAL)[0], atol=2e-6, rtol=0)


def test_a_capture_within_a_trace_is_refused():
    with pytest.raises(ValueError, match="is given while PyTorch traces a graph, .* is expected"):
        with heed.transformers.capture(top_k=2):
            torch.jit.trace(Hidden("bert", "heed"), IDS[0])


FORBIDDEN = {  # the last key is seen by the last row alone
    "causal": {"causal": True}, "mask": {"mask": torch.ones(5, 5).tril().bool()},
    "bias": {"bias": torch.full((5, 5), -torch.inf).triu(1)}}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("rule", FORBIDDEN)
def test_a_forbidden_key_that_is_not_finite_reaches_no_row_of_an_onnx_model(rule, dynamo):
    q = X + 1

    def call(x):
        return torch.cat([T.attention(q, q, x, **FORBIDDEN[rule]).output, T.attention(q, x, q, **FORBIDDEN[rule]).output], -1)

    for value in (torch.nan, torch.inf):
        broken = Y.clone()
        broken[..., -1, 0] = value
        found, expected = by_onnx(Function(call), X, broken, dynamo), call(Y)
        torch.testing.assert_close(found[..., :-1, :], expected[..., :-1, :], atol=2e-6, rtol=0)
        assert found[..., -1, :8].isnan().all()


@pytest.mark.parametrize("dynamo", [False, True])
def test_an_endless_sink_of_an_onnx_model_takes_all_weight(dynamo):
    sinks = torch.tensor([torch.inf, -torch.inf, 0.0, 1.0])
    found = by_onnx(Function(lambda x: T.attention(x, x, x, sinks=sinks).output), X, Y, dynamo)
    q = Y.double()
    scores = torch.cat([q @ q.mT / 8**0.5, sinks.double().reshape(1, 4, 1, 1).expand(1, 4, 5, 1)], -1)
    weights = torch.softmax(scores, -1)[..., :-1]
    weights[:, 0] = 0
    torch.testing.assert_close(found.double(), weights @ q, atol=2e-6, rtol=0)
