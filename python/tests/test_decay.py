"""Decay (forgetting attention): heed.attention, a cache and heed.torch compared with NumPy, PyTorch's autograd and
FlexAttention."""

import numpy as np
import pytest

import heed


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def running_sum(rng, *shape):
    """c: the running sum of log gates in (0, 1)."""
    return np.cumsum(-np.abs(rng.standard_normal(shape)), -1)


def by_formula(q, k, v, c, scale):
    """Output and lse of causal attention with bottom-right alignment, in f64."""
    offset = k.shape[-2] - q.shape[-2]
    scores = scale * q.astype(float) @ k.astype(float).swapaxes(-1, -2)
    scores += c[..., offset:, None] - c[..., None, :]
    scores[..., np.arange(k.shape[-2]) > np.arange(q.shape[-2])[:, None] + offset] = -np.inf
    most = scores.max(-1, keepdims=True)
    weights = np.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    return weights / total @ v.astype(float), (np.log(total) + most)[..., 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("queries", [1, 40, 100])
def test_decay_is_the_formula(rng, queries, dtype):
    k, v = (rng.standard_normal((2, 3, 100, 16)).astype(dtype) for _ in range(2))
    q = rng.standard_normal((2, 3, queries, 16)).astype(dtype)
    c = running_sum(rng, 2, 3, 100)
    found = heed.attention(q, k, v, causal=True, align="bottom-right", decay=c, need="lse")
    output, lse = by_formula(q, k, v, c, 0.25)
    tolerance = 1e-12 if dtype == np.float64 else 2e-5
    assert abs(found.output - output).max() < tolerance and abs(found.lse - lse).max() < tolerance


def test_large_running_sums_keep_the_differences_of_near_keys(rng):
    q, k, v = (rng.standard_normal((1, 2, 70, 8), dtype=np.float32) for _ in range(3))
    c = running_sum(rng, 1, 2, 70) * 0.01
    near = heed.attention(q, k, v, causal=True, decay=c)
    far = heed.attention(q, k, v, causal=True, decay=c - 1e6)
    assert abs(near - far).max() < 1e-6  # in f32, c would have steps of 0.06


def test_alibi_is_a_decay(rng):
    q, k, v = (rng.standard_normal((1, 4, 90, 16), dtype=np.float32) for _ in range(3))
    slopes = np.array([0.5, 0.25, 0.125, 0.0625])
    decay = -slopes[:, None] * np.arange(90.0)
    by_alibi = heed.attention(q, k, v, causal=True, alibi=slopes, need=("lse", "entropy", "weights"))
    by_decay = heed.attention(q, k, v, causal=True, decay=decay, need=("lse", "entropy", "weights"))
    for name in ("output", "lse", "entropy", "weights"):
        assert abs(getattr(by_alibi, name) - getattr(by_decay, name)).max() < 1e-5, name


@pytest.mark.parametrize("layout", [{"capacity": 64}, {"layout": "paged", "page_size": 4, "capacity": 128}])
def test_decoding_over_a_cache_is_attention_over_its_rows(rng, layout):
    k, v = (rng.standard_normal((2, 2, 40, 16), dtype=np.float32) for _ in range(2))
    c = running_sum(rng, 2, 4, 64)
    cache = heed.KvCache(batch=2, kv_heads=2, key_dim=16, **layout)
    for step in range(40):
        cache.append(k[:, :, step:step + 1], v[:, :, step:step + 1])
        q = rng.standard_normal((2, 4, 1, 16), dtype=np.float32)
        found = heed.attention(q, cache, causal=True, decay=c, need=("lse", "weights"))
        keys, values = k[:, :, :step + 1], v[:, :, :step + 1]
        plain = heed.attention(q, keys, values, causal=True, align="bottom-right", decay=c[..., :step + 1],
                               need=("lse", "weights"))
        assert (found.output == plain.output).all() and (found.lse == plain.lse).all()
    with pytest.raises(ValueError, match=r"decay has shape \[2, 4, 39\]; \[B, H, L\] with at least 40 positions"):
        heed.attention(q, cache, decay=c[..., :39])


def test_a_ring_keeps_the_positions_of_its_rows(rng):
    k, v = (rng.standard_normal((1, 2, 30, 16), dtype=np.float32) for _ in range(2))
    c = running_sum(rng, 1, 2, 30) * 0.1
    cache = heed.KvCache(batch=1, kv_heads=2, key_dim=16, layout="ring", sinks=2, window=8)
    for step in range(30):
        cache.append(k[:, :, step:step + 1], v[:, :, step:step + 1])
    q = rng.standard_normal((1, 2, 1, 16), dtype=np.float32)
    held = np.r_[0:2, 22:30]
    bias = (c[..., 29:, None] - c[..., None, held]).astype(np.float32)
    found = heed.attention(q, cache, decay=c, need="lse")
    plain = heed.attention(q, k[:, :, held], v[:, :, held], bias=bias, need="lse")
    assert abs(found.output - plain.output).max() < 1e-5 and abs(found.lse - plain.lse).max() < 1e-5
    with pytest.raises(ValueError, match="decay has 12 positions; at least the 30 of sequence 0 are expected"):
        heed.attention(q, cache, decay=c[..., :12])


def torch_inputs(torch, dtype, keys=48):
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, 4, keys, 8, dtype=dtype, requires_grad=True) for _ in range(3))
    gates = torch.randn(2, 4, keys, dtype=dtype, requires_grad=True)
    return q, k, v, gates


def test_gradients_are_those_of_pytorchs_autograd():
    torch = pytest.importorskip("torch")
    from heed.torch import attention
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-5)):
        q, k, v, gates = torch_inputs(torch, dtype)
        sinks = torch.randn(4, dtype=dtype, requires_grad=True)
        tensors = q, k, v, gates, sinks
        decay = torch.nn.functional.logsigmoid(gates + 2).cumsum(-1)
        found = attention(q, k, v, decay=decay, sinks=sinks, causal=True)
        grad = torch.randn_like(found.output)
        grad_lse = torch.randn_like(found.lse)
        got = torch.autograd.grad((found.output * grad).sum() + (found.lse * grad_lse).sum(), tensors)
        wide = [x.detach().double().requires_grad_() for x in tensors]
        q, k, v, gates, sinks = wide
        c = torch.nn.functional.logsigmoid(gates + 2).cumsum(-1)
        scores = q @ k.mT / 8**0.5 + c[..., :, None] - c[..., None, :]
        scores = scores.masked_fill(torch.ones(48, 48).triu(1).bool(), float("-inf"))
        lse = torch.logsumexp(torch.cat((scores, sinks[:, None, None].expand(2, 4, 48, 1)), -1), -1)
        output = torch.exp(scores - lse[..., None]) @ v
        expected = torch.autograd.grad((output * grad).sum() + (lse * grad_lse).sum(), wide)
        for one, other in zip(got, expected):
            assert (one - other).abs().max() < tolerance * (1 + other.abs().max())


def test_torch_compile_and_gradcheck_take_a_decay():
    torch = pytest.importorskip("torch")
    from heed.torch import attention
    q, k, v, gates = torch_inputs(torch, torch.float64, keys=5)

    def call(q, k, v, decay):
        return attention(q, k, v, decay=decay, causal=True).output

    assert torch.autograd.gradcheck(call, (q[:1, :2], k[:1, :2], v[:1, :2], gates[:1, :2]), fast_mode=True)
    assert torch.equal(torch.compile(call, backend="aot_eager")(q, k, v, gates), call(q, k, v, gates))


def test_flex_attention_gives_the_same():
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    from heed.torch import attention
    q, k, v, gates = (x.detach() for x in torch_inputs(torch, torch.float32, keys=128))
    c = torch.nn.functional.logsigmoid(gates + 2).cumsum(-1)
    mask = flex.create_block_mask(lambda b, h, i, j: j <= i, None, None, 128, 128, device="cpu")
    try:
        expected = flex.flex_attention(q, k, v, block_mask=mask,
                                       score_mod=lambda s, b, h, i, j: s + c[b, h, i] - c[b, h, j])
    except (NotImplementedError, RuntimeError) as error:
        pytest.skip(f"flex_attention does not run on this CPU: {error}")
    assert (attention(q, k, v, decay=c, causal=True).output - expected).abs().max() < 1e-5
