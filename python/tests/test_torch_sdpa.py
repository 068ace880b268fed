"""heed.torch.scaled_dot_product_attention and its gradients, compared with PyTorch's math path in f64.

It covers what PyTorch's own tests vary: shapes, masks, types, strides, grouped heads, empty rows."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from heed import masks  # noqa: E402
from heed.torch import Attended, attention, mask_tensor, scaled_dot_product_attention as sdpa  # noqa: E402

# Both get rounded inputs. Further roundings: softmax weights, their sum, and the output, once each.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6, torch.bfloat16: 2**-6, torch.float16: 2**-9}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(11)


def math(query, key, value, attn_mask=None, **arguments):
    query, key, value = (tensor.double() for tensor in (query, key, value))
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask.double()
    with sdpa_kernel([SDPBackend.MATH]):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, **arguments)


def assert_close(got, expected, dtype):
    assert got.shape == expected.shape
    difference = (got.double() - expected.double()).abs()
    bound = TOLERANCE[dtype] * (1 + expected.double().abs().max()) if expected.numel() else 0
    assert bool((difference <= bound).all()), f"off by {difference.max()}"


def same_values_and_gradients(query, key, value, attn_mask=None, **arguments):
    """Compares both calls, and the gradients of a random projection of their outputs."""
    ours = [t.detach().requires_grad_() for t in (query, key, value)]
    theirs = [t.detach().double().requires_grad_() for t in (query, key, value)]
    our_mask = their_mask = attn_mask
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        our_mask = attn_mask.detach().requires_grad_()
        their_mask = attn_mask.detach().double().requires_grad_()
        ours.append(our_mask)
        theirs.append(their_mask)
    output, expected = sdpa(*ours[:3], our_mask, **arguments), math(*theirs[:3], their_mask, **arguments)
    assert output.dtype == query.dtype
    assert_close(output, expected, query.dtype)
    with torch.no_grad():
        assert_close(sdpa(*ours[:3], our_mask, **arguments), expected, query.dtype)  # bypasses the operator
    direction = torch.randn(expected.shape).to(query.dtype)
    gradients = torch.autograd.grad(output, ours, direction)
    references = torch.autograd.grad(expected, theirs, direction.double())
    for gradient, reference, tensor in zip(gradients, references, ours):
        assert gradient.dtype == tensor.dtype
        assert_close(gradient, reference, query.dtype)


def tensors(batch, heads, queries, keys, dim, value_dim=None, dtype=torch.float32, kv_heads=None):
    kv_heads = heads if kv_heads is None else kv_heads
    value_dim = dim if value_dim is None else value_dim
    return (torch.randn(*batch, heads, queries, dim).to(dtype), torch.randn(*batch, kv_heads, keys, dim).to(dtype),
            torch.randn(*batch, kv_heads, keys, value_dim).to(dtype))


SIZES = [(1, 1, 8), (7, 7, 8), (5, 13, 16), (13, 5, 24), (1, 33, 64), (65, 65, 40)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_and_gradients_of_each_type(size, is_causal, dtype):
    queries, keys, dim = size
    same_values_and_gradients(*tensors((2,), 3, queries, keys, dim, dtype=dtype), is_causal=is_causal)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (3, 5, 7), (1, 1, 5, 7), (2, 1, 5, 7), (2, 3, 5, 7), (2, 1, 1, 7)],
                         ids=str)
@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.float64], ids=str)
def test_masks_of_every_shape_and_kind(shape, kind):
    dtype = torch.float32 if kind == torch.bool else kind
    mask = torch.rand(shape) < 0.7 if kind == torch.bool else torch.randn(shape, dtype=kind)
    same_values_and_gradients(*tensors((2,), 3, 5, 7, 16, dtype=dtype), attn_mask=mask)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_that_may_attend_to_nothing_are_zero(kind):
    query, key, value = tensors((2,), 3, 5, 7, 16)
    mask = torch.rand(2, 1, 5, 7) < 0.6
    mask[:, :, 2] = False
    if kind == "float":
        mask = torch.zeros(mask.shape).masked_fill_(~mask, float("-inf"))
    query.requires_grad_()
    output, weights = sdpa(query, key, value, mask, return_weights=True)
    assert (output[:, :, 2] == 0).all() and (weights[:, :, 2] == 0).all()
    (gradient,) = torch.autograd.grad(output.sum() + weights.square().sum(), [query])
    assert (gradient[:, :, 2] == 0).all() and gradient.isfinite().all()
    assert_close(output, math(query, key, value, mask).detach(), torch.float32)


@pytest.mark.parametrize("heads,kv_heads", [(4, 1), (4, 2), (6, 3), (4, 4)])
@pytest.mark.parametrize("batch", [(2,), (), (2, 3)], ids=str)
def test_grouped_heads(heads, kv_heads, batch):
    same_values_and_gradients(*tensors(batch, heads, 5, 7, 16, kv_heads=kv_heads), is_causal=True, enable_gqa=True)


def test_keys_and_values_of_different_numbers_of_heads():
    query, key, _ = tensors((2,), 4, 5, 7, 16, kv_heads=2)
    value = torch.randn(2, 1, 7, 16)
    output = sdpa(query, key, value, enable_gqa=True)
    assert_close(output, math(query, key.repeat_interleave(2, 1), value.repeat_interleave(4, 1)), torch.float32)


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 5, 8), (2, 1, 3, 5, 8), (2, 1, 2, 3, 5, 8)], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_any_number_of_axes(shape, masked):
    query, key, value = (torch.randn(shape) for _ in range(3))
    mask = torch.rand(*shape[:-1], shape[-2]) < 0.8 if masked else None
    same_values_and_gradients(query, key, value, attn_mask=mask)


BROADCAST = {
    "axes of size 1": ((2, 1, 5, 8), (1, 3, 7, 8), (2, 3, 7, 8)),
    "fewer axes of queries": ((3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
    "fewer axes of keys": ((2, 3, 5, 8), (3, 7, 8), (7, 8)),
    "fewer axes of values": ((5, 8), (2, 1, 7, 8), (3, 7, 8)),
    "five axes and two": ((2, 1, 3, 5, 8), (7, 8), (4, 1, 7, 8)),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shapes", BROADCAST)
def test_axes_in_front_broadcast(shapes, masked):
    query, key, value = (torch.randn(shape) for shape in BROADCAST[shapes])
    same_values_and_gradients(query, key, value, attn_mask=torch.randn(5, 7) if masked else None)


@pytest.mark.parametrize("shapes", [((4, 5, 8), (3, 2, 7, 8)), ((3, 4, 5, 8), (2, 7, 8)), ((2, 1, 4, 5, 8), (3, 2, 7, 8))],
                         ids=str)
def test_axes_in_front_of_grouped_heads_broadcast(shapes):
    query, key = (torch.randn(shape) for shape in shapes)
    same_values_and_gradients(query, key, torch.randn_like(key), enable_gqa=True)


def kept_by_dropout(query, key, probability, **arguments):
    """The weights that the next call with the same seed keeps, [..., L, S], found with unit vectors as values."""
    state = torch.get_rng_state()
    units = torch.eye(key.shape[-2], dtype=query.dtype).expand(*key.shape[:-2], -1, -1)
    kept = sdpa(query.detach(), key.detach(), units, dropout_p=probability, **arguments) != 0
    torch.set_rng_state(state)
    return kept


def samples():
    torch.manual_seed(17)
    (info,) = (info for info in op_db if info.name == "nn.functional.scaled_dot_product_attention")
    for dtype in TOLERANCE:
        assert info.supports_dtype(dtype, "cpu")
        yield from (pytest.param(sample, id=f"{dtype}-{number}")
                    for number, sample in enumerate(info.sample_inputs("cpu", dtype)))


def with_dropout(query, key, value, kept, probability, is_causal):
    """The formula in f64, with heed's dropped weights."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1]**0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
    return (scores.softmax(-1) * kept / (1 - probability)) @ value


def bounds_of_sample(query, key, direction, expected, dtype):
    """Bounds for output and gradients. PyTorch's samples have scores around A = 100 and nearly all weight on one
    key."""
    scale = query.shape[-1]**-0.5
    if dtype in (torch.float32, torch.float64):  # scores err by 2 (D + 3) A u, which is A / 2 of the tolerance
        largest = 1 + scale * (query.double().abs() @ key.double().abs().transpose(-1, -2)).max()
        return [TOLERANCE[dtype] * largest] * 4, [0] * 4
    # In dS = p (dP - <dO, O>), O was rounded. The difference is near 0 if one key has all weight. PyTorch's kernels
    # for these types have the same error.
    rounded = torch.finfo(dtype).eps / 2 * scale * (direction.double().abs() * expected.abs()).sum(-1).max()
    repeats = [expected[..., 0].numel() / tensor[..., 0].numel() for tensor in (query, key)]
    return [TOLERANCE[dtype]] * 4, [0, rounded * key.abs().max() * max(1, repeats[0]),
                                    rounded * query.abs().max() * max(1, repeats[1]) * query.shape[-2], 0]


# All samples, with gradients; none is refused.
@pytest.mark.parametrize("sample", samples())
def test_pytorchs_own_samples(sample):
    inputs, call = [sample.input, *sample.args], dict(sample.kwargs)
    mask, probability, dtype = call.pop("attn_mask", None), call.pop("dropout_p", 0.0), inputs[0].dtype
    ours = [x.detach().requires_grad_() for x in inputs]
    theirs = [x.detach().double().requires_grad_() for x in inputs]
    if probability == 0:
        expected = math(*theirs, mask, **call)
    else:
        assert mask is None
        kept = kept_by_dropout(*ours[:2], probability, **call)
        expected = with_dropout(*theirs, kept, probability, **call)
    output = sdpa(*ours, mask, dropout_p=probability, **call)
    assert output.dtype == dtype and output.shape == expected.shape
    direction = torch.randn(expected.shape).to(dtype)
    got = [output, *torch.autograd.grad(output, ours, direction)]
    references = [expected, *torch.autograd.grad(expected, theirs, direction.double())]
    for one, reference, relative, more in zip(got, references, *bounds_of_sample(*inputs[:2], direction, expected, dtype)):
        assert one.dtype == dtype and one.shape == reference.shape
        difference = (one.double() - reference).abs().max().item()
        assert difference <= relative * (1 + reference.abs().max()) + more, f"off by {difference}"


LAYOUTS = {
    "heads after lengths": lambda b, h, l, d: torch.randn(b, l, h, d).transpose(1, 2),
    "features first": lambda b, h, l, d: torch.randn(b, h, d, l).transpose(2, 3),
    "every second": lambda b, h, l, d: torch.randn(b, h, l, 2 * d)[..., ::2],
    "one for all heads": lambda b, h, l, d: torch.randn(b, 1, l, d).expand(b, h, l, d),
    "packed": lambda b, h, l, d: torch.randn(b, l, 3, h, d).transpose(1, 3)[:, :, 1],
}


@pytest.mark.parametrize("layouts", itertools.product(LAYOUTS, LAYOUTS), ids=str)
def test_strides(layouts):
    first, second = (LAYOUTS[name] for name in layouts)
    same_values_and_gradients(first(2, 3, 5, 8), second(2, 3, 7, 8), first(2, 3, 7, 8), is_causal=True)


@pytest.mark.parametrize("scale", [0.3, 1.0, 0.0])
def test_scale(scale):
    same_values_and_gradients(*tensors((2,), 3, 5, 7, 16, dtype=torch.float64), scale=scale)


def test_values_of_another_width():
    same_values_and_gradients(*tensors((2,), 3, 5, 7, 16, value_dim=24))


@pytest.mark.parametrize("shape", [(0, 3, 5, 7), (2, 0, 5, 7), (2, 3, 0, 7)], ids=str)
def test_sizes_of_zero(shape):
    batch, heads, queries, keys = shape
    query, key, value = tensors((batch,), heads, queries, keys, 8)
    assert sdpa(query, key, value).shape == (batch, heads, queries, 8)


@pytest.mark.parametrize("shape", [(3, 2, 0, 4, 8), (3, 2, 2, 0, 8), (0, 2, 0, 4, 8), (3, 2, 2, 4, 0), (2, 0, 3, 2, 4, 8)],
                         ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_sizes_of_zero_with_more_axes(shape, masked):
    x = torch.randn(shape, requires_grad=True)
    mask = torch.randn(shape[-3], shape[-2], shape[-2]) if masked else None
    output, weights, summary = sdpa(x, x, x, mask, return_weights=True, return_summary=True, top_k=1)
    with torch.no_grad():
        assert sdpa(x, x, x, mask).shape == output.shape == math(x, x, x, mask).shape
    assert weights.shape == (*shape[:-1], shape[-2]) and summary.lse.shape == shape[:-1]
    output.sum().backward()
    assert x.grad.shape == shape


def test_without_keys_the_output_is_zero():
    assert (sdpa(torch.randn(1, 2, 3, 8), torch.randn(1, 2, 0, 8), torch.randn(1, 2, 0, 8)) == 0).all()


def doubles(*shapes):
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


GRADIENT_CALLS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "softcap": {"softcap": 3.0},
    "scale": {"scale": 0.7},
    "offset": {"causal": True, "query_offset": 2},
    "mask": {"mask": torch.arange(28).reshape(4, 7) % 3 > 0},
    "empty row": {"mask": (torch.arange(28).reshape(4, 7) % 3 > 0) & (torch.arange(4) != 1)[:, None]},
}


@pytest.mark.parametrize("name", GRADIENT_CALLS)
def test_gradcheck_through_output_weights_and_lse(name):
    query, key, value, bias, sinks = doubles((2, 4, 4, 3), (2, 2, 7, 3), (2, 2, 7, 5), (1, 4, 1, 7), (4,))

    def call(query, key, value, bias, sinks):
        found = attention(query, key, value, bias=bias, sinks=sinks, need=("weights",), **GRADIENT_CALLS[name])
        return found.output, found.weights, found.lse

    assert torch.autograd.gradcheck(call, (query, key, value, bias, sinks))


EVERY = tuple(name for name in Attended._fields if name != "output" and not name.startswith("top_k"))


@pytest.mark.parametrize("name", Attended._fields)
def test_a_result_has_its_gradient_or_pytorch_says_that_it_has_none(name):
    query, key, value = doubles((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8))
    result = getattr(attention(query, key, value, need=EVERY, top_k=2), name)
    if name in ("output", "lse", "weights"):
        scores = query @ key.transpose(-1, -2) / 8**0.5
        expected = {"weights": scores.softmax(-1), "output": scores.softmax(-1) @ value, "lse": scores.logsumexp(-1)}[name]
        direction = torch.randn_like(expected)
        ours, theirs = (torch.autograd.grad(x, (query, key, value), direction, materialize_grads=True)
                        for x in (result, expected))
        for gradient, reference in zip(ours, theirs):
            assert_close(gradient, reference, torch.float64)
    else:
        assert not result.requires_grad
        with pytest.raises(RuntimeError, match="does not require grad"):
            result.double().sum().backward()


def test_a_summary_has_gradients_through_lse_alone():
    query, key, value = doubles((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8))
    output, summary = sdpa(query, key, value, return_summary=True)
    assert output.requires_grad
    assert {name for name, x in summary._asdict().items() if x.requires_grad} == {"lse"}
    compiled = torch.compile(lambda *x: tuple(attention(*x, need=EVERY, top_k=2)), fullgraph=True, backend="aot_eager")
    found = compiled(query, key, value)
    fields = attention(query, key, value)._fields
    assert {name for name, x in zip(fields, found) if x.requires_grad} == {"output", "lse", "weights"}


def test_slopes_of_alibi_have_no_gradient_and_that_is_said():
    query, key, value = doubles((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8))
    with pytest.raises(ValueError, match=r"alibi requires a gradient.*alibi.detach\(\) is expected"):
        attention(query, key, value, alibi=torch.ones(3, requires_grad=True))


def by_formula(query, key, value, *, causal=False, align="top-left", alibi=None, kv_lengths=None):
    """(output, lse) for [B, H, L, D] in f64, from PyTorch's products, softmax and autograd."""
    query, key, value = query.double(), key.double(), value.double()
    batch, (queries, keys) = query.shape[0], (query.shape[2], key.shape[2])
    valid = torch.full((batch,), keys) if kv_lengths is None else kv_lengths
    first = valid - queries if align == "bottom-right" else torch.zeros(batch, dtype=torch.int64)
    away = (torch.arange(queries)[:, None] + first[:, None, None] - torch.arange(keys))[:, None]  # [B, 1, L, S]
    scores = query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).transpose(-1, -2) / query.shape[-1]**0.5
    if alibi is not None:
        scores = scores - alibi.double()[:, None, None] * away.abs()
    forbidden = (torch.arange(keys) >= valid[:, None, None, None]) | ((away < 0) if causal else False)
    scores = scores.masked_fill(forbidden, float("-inf"))
    return scores.softmax(-1) @ value.repeat_interleave(query.shape[1] // value.shape[1], 1), scores.logsumexp(-1)


# Lengths on both sides of 192 keys, where the fused backward pass changes its method.
DOCUMENTS = {"short": ([3, 0, 64, 150, 192], [5, 2, 64, 191, 192]), "long": ([193, 300, 200], [193, 300, 421]),
             "mixed": ([64, 20, 193], [300, 64, 193])}
PACKED_CALLS = {"plain": {}, "causal": {"causal": True}, "bottom right": {"causal": True, "align": "bottom-right"},
                "alibi": {"alibi": torch.tensor([0.5, 0.25, 0.125, 0.0625])}}


def offsets(lengths, dtype=torch.int32):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("call", PACKED_CALLS)
@pytest.mark.parametrize("documents", DOCUMENTS)
def test_packed_documents_are_computed_one_by_one(documents, call, dtype):
    query_lengths, key_lengths = DOCUMENTS[documents]
    call = PACKED_CALLS[call]
    shape = (4, sum(query_lengths), 16), (2, sum(key_lengths), 16), (2, sum(key_lengths), 24)
    inputs = [torch.randn(1, *one, dtype=dtype, requires_grad=True) for one in shape]
    found = attention(*inputs, cu_seqlens=(offsets(query_lengths), offsets(key_lengths)), **call)
    assert found.output.dtype == dtype
    directions = torch.randn(found.output.shape, dtype=dtype), torch.randn(found.lse.shape, dtype=dtype)
    gradients = torch.autograd.grad((found.output, found.lse), inputs, directions)

    parts = zip(inputs[0].split(query_lengths, 2), *(x.split(key_lengths, 2) for x in inputs[1:]))
    outputs, sums = zip(*(by_formula(*part, **call) for part in parts))
    expected = torch.cat(outputs, 2), torch.cat(sums, 2)
    references = torch.autograd.grad(expected, inputs, [direction.double() for direction in directions])
    assert_close(found.output, expected[0], dtype)
    assert_close(found.lse, expected[1], dtype)
    for gradient, reference in zip(gradients, references):
        for ours, theirs in zip(gradient.split(query_lengths if gradient is gradients[0] else key_lengths, 2),
                                reference.split(query_lengths if gradient is gradients[0] else key_lengths, 2)):
            assert_close(ours, theirs, dtype)


def test_packed_documents_of_one_length_for_queries_and_keys():
    inputs = [torch.randn(1, 2, 9, 8) for _ in range(3)]
    expected = attention(*inputs, causal=True, cu_seqlens=(offsets([4, 0, 5]), offsets([4, 0, 5])))
    for one in (offsets([4, 0, 5]), offsets([4, 0, 5], torch.int64), [0, 4, 4, 9]):
        assert torch.equal(attention(*inputs, causal=True, cu_seqlens=one).output, expected.output)
    with pytest.raises(ValueError, match="cu_seqlens of queries runs from 0 to 8"):
        attention(*inputs, cu_seqlens=[0, 4, 8])


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
def test_lengths_of_keys_and_alignment(align):
    inputs = tensors((2,), 4, 5, 7, 16, kv_heads=2, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in inputs]
    call = {"causal": True, "align": align, "kv_lengths": torch.tensor([7, 5])}
    found, (expected, lse) = attention(*inputs, **call), by_formula(*inputs, **call)
    assert_close(found.output, expected, torch.float64)
    assert_close(found.lse, lse, torch.float64)
    direction = torch.randn_like(expected)
    for ours, theirs in zip(*(torch.autograd.grad(x, inputs, direction) for x in (found.output, expected))):
        assert_close(ours, theirs, torch.float64)


def test_gradcheck_with_dropout():
    query, key, value = doubles((1, 2, 4, 3), (1, 2, 5, 3), (1, 2, 5, 3))

    def call(query, key, value):
        torch.manual_seed(3)
        return sdpa(query, key, value, dropout_p=0.4)

    assert torch.autograd.gradcheck(call, (query, key, value))


def test_only_the_gradients_that_are_needed():
    query, key, value = tensors((1,), 2, 4, 5, 8)
    key.requires_grad_()
    sdpa(query, key, value).sum().backward()
    assert key.grad is not None and query.grad is None and value.grad is None


def test_dropout_follows_torchs_seed_and_keeps_the_mean():
    query, key, value = tensors((1,), 2, 4, 64, 8)
    value.fill_(1)

    def call(seed):
        torch.manual_seed(seed)
        return sdpa(query, key, value, dropout_p=0.5)

    assert torch.equal(call(1), call(1)) and not torch.equal(call(1), call(2))
    mean = torch.stack([call(seed) for seed in range(200)]).mean()
    assert abs(mean - 1) < 0.05  # 12,800 rows with a deviation below 1 give 0.009; five times that


def test_weights_and_summary_are_those_of_the_softmax():
    query, key, value = tensors((2,), 3, 5, 7, 16)
    scores = query.double() @ key.double().transpose(-1, -2) / 4
    scores = scores.masked_fill(torch.ones(5, 7).triu(1).bool(), float("-inf"))
    weights = scores.softmax(-1)
    output, ours, summary = sdpa(query, key, value, is_causal=True, return_weights=True, return_summary=True, top_k=2)
    assert_close(output, weights @ value.double(), torch.float32)
    assert_close(ours, weights, torch.float32)
    assert_close(summary.lse, scores.logsumexp(-1), torch.float32)
    assert_close(summary.max_score, scores.amax(-1), torch.float32)
    assert_close(summary.entropy, torch.special.entr(weights).sum(-1), torch.float32)
    best = weights.topk(2)
    assert_close(summary.top_k_weight, best.values, torch.float32)
    assert (summary.top_k_index[..., 1:, :] == best.indices[..., 1:, :]).all()
    assert (summary.top_k_index[..., 0, 1] == -1).all()
    flat, summary = sdpa(query[None], key[None], value[None], return_summary=True)
    assert flat.shape == (1, 2, 3, 5, 16) and summary.lse.shape == (1, 2, 3, 5)
    assert summary.top_k_index.shape == (1, 2, 3, 5, 8)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_without_a_break_it_gives_the_same(backend):
    def loss(query, key, value, mask):
        output, weights = sdpa(query * 2, key, value, mask, return_weights=True)
        return (output.tanh() + weights.sum(-1, keepdim=True)).square().sum() + sdpa(query, key, value, is_causal=True).sum()

    inputs = [tensor.requires_grad_() for tensor in (*tensors((2,), 3, 5, 5, 16), torch.randn(5, 5))]
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    expected, got = loss(*inputs), compiled(*inputs)
    assert_close(got, expected, torch.float32)
    for ours, theirs in zip(torch.autograd.grad(got, inputs), torch.autograd.grad(expected, inputs)):
        assert_close(ours, theirs, torch.float32)


AUTOCAST = {
    "one type": (torch.float32,) * 3,
    "a query from a linear layer": (torch.bfloat16, torch.float32, torch.float32),
    "three types": (torch.float32, torch.bfloat16, torch.float16),
    "f64, which autocast leaves": (torch.float64,) * 3,
}


def gradients_under_autocast(function, inputs, direction, autocast, outside):
    """(output, gradients by the inputs), with the backward pass outside the region, as PyTorch requires, or inside."""
    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    tracked = [x for x in leaves if x.requires_grad]
    with autocast:
        output = function(*leaves)
        if not outside:
            return output, torch.autograd.grad(output, tracked, direction.to(output.dtype))
    return output, torch.autograd.grad(output, tracked, direction.to(output.dtype))


@pytest.mark.parametrize("outside", [True, False], ids=["backward outside", "backward inside"])
@pytest.mark.parametrize("types,mask", [
    (types, mask) for types in AUTOCAST for mask in (None, torch.bool, torch.float32, torch.bfloat16)
    if not types.startswith("f64") or mask in (None, torch.bool)], ids=str)  # PyTorch refuses the others
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_under_autocast_it_gives_what_pytorchs_gives(dtype, types, mask, outside):
    types = AUTOCAST[types]
    inputs = [x.to(one) for x, one in zip(tensors((2,), 3, 5, 7, 16), types)]
    if mask is not None:
        inputs.append(torch.rand(5, 7) < 0.7 if mask == torch.bool else torch.randn(5, 7).to(mask))
    direction = torch.randn(2, 3, 5, 16)
    results = [gradients_under_autocast(function, inputs, direction, torch.autocast("cpu", dtype), outside)
               for function in (sdpa, torch.nn.functional.scaled_dot_product_attention)]
    (output, gradients), (expected, references) = results
    wanted = torch.float64 if types[0] == torch.float64 else dtype
    assert output.dtype == expected.dtype == wanted
    assert_close(output, expected, wanted)
    for one, gradient, reference in zip([x for x in inputs if x.is_floating_point()], gradients, references, strict=True):
        assert gradient.dtype == reference.dtype == one.dtype
        assert_close(gradient, reference, max(wanted, one.dtype, key=TOLERANCE.__getitem__))  # the coarser type
    with torch.no_grad(), torch.autocast("cpu", dtype):  # bypasses the operator
        plain = sdpa(*inputs)
    assert plain.dtype == wanted
    assert_close(plain, output, wanted)


def test_without_autocast_types_stay_as_they_are():
    query, key, value = tensors((2,), 3, 5, 7, 16)
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert sdpa(query, key, value).dtype == torch.float32
        with pytest.raises(ValueError, match="key has dtype f32"):
            sdpa(query.bfloat16(), key, value)
    with pytest.raises(ValueError, match="key has dtype f32"):
        attention(query.bfloat16(), key, value)


def test_every_result_under_autocast():
    query, key, value = (x.requires_grad_() for x in tensors((2,), 3, 5, 7, 16))
    halves = [x.detach().bfloat16().requires_grad_() for x in (query, key, value)]
    options = {"need": EVERY, "top_k": 2, "sinks": torch.randn(3), "bias": torch.randn(5, 7)}
    with torch.autocast("cpu", torch.bfloat16):
        found = attention(query, key, value, **options)
        output, weights = sdpa(query, key.bfloat16(), value, return_weights=True)
    expected = attention(*halves, **options)
    for name, result in found._asdict().items():
        assert torch.equal(result, getattr(expected, name)) and result.dtype == getattr(expected, name).dtype, name
    assert output.dtype == torch.bfloat16 and weights.dtype == torch.float32
    direction = torch.randn_like(found.lse)
    gradients = torch.autograd.grad(found.lse, (query, key), direction)
    for gradient, reference in zip(gradients, torch.autograd.grad(expected.lse, halves[:2], direction)):
        assert gradient.dtype == torch.float32 and torch.equal(gradient, reference.float())


def test_compiled_under_autocast_it_gives_the_same():
    inputs = [x.requires_grad_() for x in tensors((2,), 3, 5, 7, 16)]
    compiled = torch.compile(lambda q, k, v: sdpa(q.bfloat16(), k, v), fullgraph=True, backend="aot_eager")
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            got, expected = compiled(*inputs), sdpa(inputs[0].bfloat16(), *inputs[1:])
        assert got.dtype == dtype and torch.equal(got, expected)
        for ours, theirs in zip(*(torch.autograd.grad(x.float().square().sum(), inputs) for x in (got, expected))):
            assert_close(ours, theirs, dtype)


def test_the_operator_keeps_pytorchs_rules():
    query, key, value, bias = doubles((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8), (3, 4, 5))
    rest = (True, [-1, -1], 0.0, None, "top-left", None, 0.0, "weights,entropy", 2)
    torch.library.opcheck(torch.ops.heed.attention, (query, key, value, None, bias, *(None,) * 9, *rest))
    query, key, value = doubles((1, 3, 6, 8), (1, 3, 6, 8), (1, 3, 6, 8))
    segments = (torch.tensor([0, 2, 6]),) * 2
    torch.library.opcheck(torch.ops.heed.attention, (query, key, value, *(None,) * 6, *segments, *(None,) * 3, *rest))
    mask = mask_tensor(masks.documents([2, 4]))
    torch.library.opcheck(torch.ops.heed.attention, (query, key, value, *(None,) * 9, mask, None, *rest))


MISTAKES = {
    "attn_mask is given and is_causal is True": lambda q, k, v: sdpa(q, k, v, torch.ones(5, 7).bool(), is_causal=True),
    "attn_mask has dtype torch.int64": lambda q, k, v: sdpa(q, k, v, torch.ones(5, 7).long()),
    "attn_mask has shape [4, 5, 7]; a shape that broadcasts to [1, 2, 3, 5, 7]":
        lambda q, k, v: sdpa(q[None], k[None], v[None], torch.ones(4, 5, 7)),
    "attn_mask has shape [1, 1, 2, 3, 5, 7]; a shape that broadcasts to [1, 2, 3, 5, 7]":
        lambda q, k, v: sdpa(q[None], k[None], v[None], torch.ones(1, 1, 2, 3, 5, 7)),
    "query has shape [8]": lambda q, k, v: sdpa(torch.ones(8), k, v),
    "axes that broadcast": lambda q, k, v: sdpa(q, k[:, :2], v[:, :2]),
    "with enable_gqa a divisor": lambda q, k, v: sdpa(q, k[:, :2], v, enable_gqa=True),
    "[2, 2, 5, 8], [3, 7, 8] and [3, 7, 8]; axes that broadcast": lambda q, k, v: sdpa(q[:, :2], k[0], v[0]),
    "key has shape [8]": lambda q, k, v: sdpa(q, torch.ones(8), v),
    "key has 2 axes; with enable_gqa at least 3": lambda q, k, v: sdpa(q, k[0, 0], v, enable_gqa=True),
    "key has dtype f64": lambda q, k, v: sdpa(q, k.double(), v),
    "key has head dimension 4": lambda q, k, v: sdpa(q, k[..., :4], v),
    "a multiple of key's 2 is expected": lambda q, k, v: sdpa(q, k[:, :2], v[:, :2], enable_gqa=True),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_is_wrong_is_said(message):
    with pytest.raises(ValueError) as caught:
        MISTAKES[message](*tensors((2,), 3, 5, 7, 8))
    assert message in str(caught.value)


LENGTHS = {
    "fractions in kv_lengths": {"kv_lengths": [3.7, 5]},
    "fractions in NumPy's kv_lengths": {"kv_lengths": np.array([3.7, 5])},
    "large kv_lengths": {"kv_lengths": [2**70, 5]},
    "strings as kv_lengths": {"kv_lengths": ["3", "5"]},
    "fractions in cu_seqlens": {"cu_seqlens": [0, 2.5, 7]},
    "fractions in cu_seqlens of keys": {"cu_seqlens": ([0, 2, 5], np.array([0, 2.5, 7]))},
}


def test_compiled_options_may_change():
    def call(n):
        return attention(x, x, x, causal=True, window=(n, None), query_offset=n, scale=n / 7, need=["entropy"] * 2, top_k=n)

    compiled, x = torch.compile(call, fullgraph=True, backend="aot_eager"), torch.randn(1, 2, 19, 8)
    for n in (3, 4, 5, 7):
        for ours, reference in zip(compiled(n), call(n), strict=True):
            assert ours is reference is None or torch.equal(ours, reference)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_that_are_not_whole_are_refused(name):
    with pytest.raises(ValueError) as caught:
        attention(*tensors((2,), 3, 5, 7, 8), **LENGTHS[name])
    assert str(caught.value) == (f"{next(iter(LENGTHS[name]))} has numbers that are not whole, or too large; whole numbers "
                                 "are expected")


def test_lengths_of_every_kind():
    inputs = tensors((2,), 3, 5, 7, 8)
    expected = attention(*inputs, kv_lengths=torch.tensor([3, 5])).output
    for lengths in ([3, 5], (3, 5), np.array([3, 5]), np.array([3, 5], np.uint8), [np.int32(3), torch.tensor(5)]):
        assert torch.equal(attention(*inputs, kv_lengths=lengths).output, expected)


def test_a_tensor_elsewhere_is_refused():
    query = torch.randn(2, 3, 4, 8, device="meta")
    assert sdpa(query, query, query).device.type == "meta"


def described(results):
    return [(list(x.shape), x.dtype, x.stride()) for x in results if x is not None]


@pytest.mark.parametrize("axes", [2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_results_that_have_only_shapes_have_those_of_real_ones(axes, dtype):
    shapes = [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)]
    given = [torch.randn(shape[4 - axes:]).to(dtype) for shape in shapes]
    segments = (torch.tensor([0, 2, 5]), torch.tensor([0, 3, 7]))
    for options in ({}, {"need": ("weights", "scores", "received"), "top_k": 20}, {"need": "entropy", "causal": True},
                    {"need": ("distance", "masked_mass", "max_score"), "window": (2, 1)}, {"dropout": 0.5, "top_k": 1}):
        found = attention(*given, **options)
        on_meta = attention(*(x.to("meta") for x in given), **options)
        assert described(on_meta) == described(found)
    if axes == 4:
        found, on_meta = (attention(*(x[:1].to(device) for x in given), need="weights",
                                               cu_seqlens=tuple(x.to(device) for x in segments)) for device in ("cpu", "meta"))
        assert described(on_meta) == described(found)
