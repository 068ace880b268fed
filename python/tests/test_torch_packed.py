"""heed.torch.varlen_attention and nested tensors, compared with PyTorch's attention on one sequence at a time."""

import gc
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from heed.torch import Summary, attention, scaled_dot_product_attention as sdpa, varlen_attention  # noqa: E402

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2**-6}
LENGTHS = {"one length for both": ([4, 1, 7], [4, 1, 7]), "a sequence of none": ([3, 0, 5], [3, 0, 5]),
           "more keys": ([3, 1, 6], [5, 2, 9]), "more queries": ([6, 3], [2, 3]), "long": ([200, 70], [200, 130])}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(19)


def offsets(lengths, dtype=torch.int32):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=dtype)


def packed(lengths, dtype=torch.float64, heads=4, kv_heads=2):
    """query, key and value [tokens, H, D]."""
    shapes = (sum(lengths[0]), heads, 8), (sum(lengths[1]), kv_heads, 8), (sum(lengths[1]), kv_heads, 6)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def assert_close(got, expected, tolerance=TOLERANCE[torch.float64]):
    assert got.shape == expected.shape
    if got.numel() > 0:
        difference = (got.double() - expected.double()).abs().max().item()
        assert difference <= tolerance * (1 + expected.double().abs().max().item()), f"off by {difference}"


def one_by_one(tensors, lengths, window=(-1, -1), causal=False, scale=None):
    """PyTorch's math path in f64, with FlashAttention's windows, which count from the last key. Returns [tokens,
    H, D]."""
    outputs = []
    for q, k, v in zip(tensors[0].double().split(lengths[0]), *(x.double().split(lengths[1]) for x in tensors[1:])):
        away = torch.arange(len(q))[:, None] + len(k) - len(q) - torch.arange(len(k))  # position minus key
        seen = torch.ones(away.shape, dtype=torch.bool)
        if causal:
            seen &= away >= 0
        if window[0] >= 0:
            seen &= away <= window[0]
        if window[1] >= 0:
            seen &= -away <= window[1]
        some = seen.any(-1, keepdim=True)
        with sdpa_kernel([SDPBackend.MATH]):
            output = torch.nn.functional.scaled_dot_product_attention(
                *(x.transpose(0, 1) for x in (q, k, v)), seen | ~some, scale=scale, enable_gqa=True)
        outputs.append((output * some).transpose(0, 1))
    return torch.cat(outputs)


CALLS = {"plain": {}, "causal": {"causal": True}, "a window": {"window_size": (3, 1)}, "scale": {"scale": 0.3},
         "causal by its window": {"window_size": (-1, 0)},
         "causal and a window": {"causal": True, "window_size": (2, 5)}}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_each_sequence_attends_within_itself(lengths, call):
    lengths, call = LENGTHS[lengths], CALLS[call]
    tensors = packed(lengths)
    found = varlen_attention(*tensors, *map(offsets, lengths), *map(max, lengths), **call)
    expected = one_by_one(tensors, lengths, window=call.get("window_size", (-1, -1)), causal=call.get("causal", False),
                          scale=call.get("scale"))
    assert_close(found, expected)
    assert found.is_contiguous()
    with torch.no_grad():  # bypasses the operator
        plain = varlen_attention(*tensors, *map(offsets, lengths), **call)
    assert torch.equal(plain, found) and plain.is_contiguous()
    direction = torch.randn_like(expected)
    for ours, reference in zip(*(torch.autograd.grad(x, tensors, direction) for x in (found, expected))):
        assert_close(ours, reference, 10 * TOLERANCE[torch.float64])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_types(dtype):
    lengths = LENGTHS["long"]
    tensors = packed(lengths, dtype)
    found = varlen_attention(*tensors, *map(offsets, lengths), causal=True)
    expected = one_by_one(tensors, lengths, causal=True)
    assert found.dtype == dtype
    assert_close(found, expected, TOLERANCE[dtype])


def test_offsets_of_every_kind_and_those_of_keys_left_out():
    lengths = [4, 1, 7]
    tensors = packed((lengths, lengths))
    expected = varlen_attention(*tensors, offsets(lengths), offsets(lengths), causal=True)
    for one in (offsets(lengths), offsets(lengths, torch.int64), [0, 4, 5, 12], (0, 4, 5, 12)):
        assert torch.equal(varlen_attention(*tensors, one, causal=True), expected)


def test_summaries_are_of_each_token():
    lengths = LENGTHS["more keys"]
    query, key, value = tensors = packed(lengths)
    output, lse, summary = varlen_attention(*tensors, *map(offsets, lengths), return_lse=True, return_summary=True,
                                            top_k=2)
    assert type(summary) is Summary and torch.equal(summary.lse, lse)
    rows = []
    parts = zip(query.split(lengths[0]), key.split(lengths[1]), offsets(lengths[1]))
    for q, k, first in parts:
        scores = torch.einsum("qhd,khd->qhk", q, k.repeat_interleave(2, 1)) / 8**0.5
        best = scores.softmax(-1).topk(2)
        rows.append((scores.logsumexp(-1), scores.amax(-1), torch.special.entr(scores.softmax(-1)).sum(-1),
                     best.indices + first, best.values))
    expected = Summary(*map(torch.cat, zip(*rows)))
    assert_close(output, one_by_one(tensors, lengths))
    for name in Summary._fields:
        assert_close(getattr(summary, name).detach(), getattr(expected, name).detach())
    for ours, reference in zip(*(torch.autograd.grad(x.sin().sum(), (query, key)) for x in (lse, expected.lse))):
        assert_close(ours, reference)


def test_its_other_options_are_those_of_attention():
    lengths = LENGTHS["more keys"]
    tensors = packed(lengths)
    sinks = torch.randn(4, dtype=torch.float64, requires_grad=True)
    slopes = [0.5, 0.25, 0.125, 0.0625]
    pair = tuple(map(offsets, lengths))
    first = [x.transpose(0, 1)[None] for x in tensors]
    expected = attention(*first, cu_seqlens=pair, causal=True, align="bottom-right", softcap=5.0, alibi=slopes,
                         sinks=sinks).output[0].transpose(0, 1)
    found = varlen_attention(*tensors, *pair, causal=True, softcap=5.0, alibi_slopes=slopes, sinks=sinks)
    assert torch.equal(found, expected)
    inputs = [*tensors, sinks]
    for ours, reference in zip(*(torch.autograd.grad(x.sin().sum(), inputs) for x in (found, expected))):
        assert torch.equal(ours, reference)
    with torch.no_grad():
        plain = varlen_attention(*tensors, *pair, causal=True, softcap=5.0, alibi_slopes=torch.tensor(slopes),
                                 sinks=sinks)
    assert torch.equal(plain, expected)


def test_dropout_follows_torchs_seed():
    tensors = packed(([40], [40]), torch.float32)

    def call(seed, context):
        torch.manual_seed(seed)
        with context():
            return varlen_attention(*tensors, [0, 40], dropout_p=0.5)

    first = call(1, torch.enable_grad)
    assert torch.equal(first, call(1, torch.no_grad)) and not torch.equal(first, call(2, torch.no_grad))


def test_gradcheck_of_packed_sequences():
    lengths = [2, 3], [3, 4]

    def call(*tensors):
        return varlen_attention(*tensors, *map(offsets, lengths), causal=True, return_lse=True)

    assert torch.autograd.gradcheck(call, packed(lengths))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_packed_sequences_compiled(backend):
    def loss(query, key, value, offsets_q, offsets_k):
        output, summary = varlen_attention(query * 2, key, value, offsets_q, offsets_k, 9, 9, causal=True,
                                           return_summary=True)
        return output.view(len(query), -1).square().sum() + summary.lse.sum()

    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for lengths in (LENGTHS["one length for both"], ([5, 5, 2], [5, 6, 4])):
        tensors = packed(lengths)
        results = [one(*tensors, *map(offsets, lengths)) for one in (compiled, loss)]
        assert_close(*results)
        for ours, reference in zip(*(torch.autograd.grad(x, tensors) for x in results)):
            assert_close(ours, reference)


PACKED_MISTAKES = {
    "query has shape [1, 8, 4, 8]; 3 axes, [tokens, H, D]": lambda q, k, v: varlen_attention(q[None], k, v, [0]),
    "cu_seqlens_q runs from 0 to 4; non-decreasing numbers from 0 to 8, the tokens of query":
        lambda q, k, v: varlen_attention(q, k, v, [0, 3, 4], [0, 4, 9]),
    "cu_seqlens_k runs from 0 to 8; non-decreasing numbers from 0 to 9, the tokens of key":
        lambda q, k, v: varlen_attention(q, k, v, [0, 3, 8]),
    "cu_seqlens_k falls from 10 to 9 at place 2; non-decreasing numbers from 0 to 9, the tokens of key, are expected":
        lambda q, k, v: varlen_attention(q, k, v, [0, 3, 8], [0, 10, 9]),
    "cu_seqlens_k has 2 numbers; 3, as in cu_seqlens_q": lambda q, k, v: varlen_attention(q, k, v, [0, 3, 8], [0, 9]),
    "cu_seqlens_q has dtype torch.float32 and shape [2]; int32 or int64":
        lambda q, k, v: varlen_attention(q, k, v, torch.tensor([0.0, 8]), [0, 9]),
    "cu_seqlens_q has numbers that are not whole, or too large; whole numbers are expected":
        lambda q, k, v: varlen_attention(q, k, v, [0, 2.5, 8], [0, 4, 9]),
    "cu_seqlens_k has numbers that are not whole":
        lambda q, k, v: varlen_attention(q, k, v, [0, 3, 8], np.array([0, 2.5, 9])),
    "max_seqlen_q is 4; 5, the length of the longest sequence":
        lambda q, k, v: varlen_attention(q, k, v, [0, 3, 8], [0, 4, 9], 4),
    "max_seqlen_k is 4; 5, the length of the longest sequence":
        lambda q, k, v: varlen_attention(q, k, v, [0, 3, 8], [0, 4, 9], 5, 4),
    "a multiple of key's 2 is expected": lambda q, k, v: varlen_attention(q[:, :3], k, v, [0, 8], [0, 9]),
    "window_size is (-2, 0); (left, right), each -1 (open) or more":
        lambda q, k, v: varlen_attention(q, k, v, [0, 8], [0, 9], window_size=(-2, 0)),
    "query is a nested tensor; a plain tensor": lambda q, k, v: varlen_attention(*[nested([q])] * 3, [0, 8]),
}


@pytest.mark.parametrize("message", PACKED_MISTAKES)
def test_what_is_wrong_with_packed_sequences_is_said(message):
    with pytest.raises(ValueError) as caught:
        PACKED_MISTAKES[message](*packed(([8], [9])))
    assert message in str(caught.value)


def test_an_open_side_of_the_window_may_be_none():
    q, k, v = packed(([8], [9]))
    call = lambda window: varlen_attention(q, k, v, [0, 8], [0, 9], window_size=window)  # noqa: E731
    for window, same in ((None, (-1, -1)), ((None, 0), (-1, 0)), ([2, None], (2, -1)), (np.array([1, 0]), (1, 0))):
        assert torch.equal(call(window), call(same))
    for wrong in (3, (1,), "ab"):
        with pytest.raises(TypeError) as caught:
            call(wrong)
        assert str(caught.value) == (f"varlen_attention: window_size is {wrong!r}; (left, right), each a whole number, or "
                                     "None or -1 for an open side, is expected")


@pytest.mark.parametrize("given", [[None, 2], ["1", "2"]])
def test_slopes_that_are_no_numbers_are_refused(given):
    q, k, v = packed(([8], [9]))
    for call in (lambda: attention(*(x.transpose(0, 1)[:2, :8] for x in (q, k, v)), alibi=given),
                 lambda: varlen_attention(q, k, v, [0, 8], [0, 9], alibi_slopes=given)):
        with pytest.raises(TypeError) as caught:
            call()
        assert f" is {given}; numbers are expected" in str(caught.value)


# Nested tensors.


def nested(rows):
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def rows_and_heads(lengths, heads, width):
    """Leaves [l, H * width], and a nested tensor [B, H, j, width] made of them, as in models."""
    rows = [torch.randn(length, heads * width, dtype=torch.float64, requires_grad=True) for length in lengths]
    return rows, nested(rows).unflatten(-1, [heads, width]).transpose(1, 2)


def by_pytorch(query, key, value, **arguments):
    """PyTorch's results for one sequence at a time, [H, l, D] each."""
    with sdpa_kernel([SDPBackend.MATH]):
        return [torch.nn.functional.scaled_dot_product_attention(*parts, **arguments)
                for parts in zip(query.unbind(), key.unbind(), value.unbind())]


NESTED_CALLS = {"plain": {}, "causal": {"is_causal": True}, "scale": {"scale": 0.3}}


@pytest.mark.parametrize("call", NESTED_CALLS)
def test_nested_tensors_give_nested_ones(call):
    rows, query = rows_and_heads([4, 1, 7], 2, 8)
    found = sdpa(query, query, query, **NESTED_CALLS[call])
    assert found.is_nested and found.layout == torch.jagged and found.shape == query.shape  # also for j
    expected = by_pytorch(query, query, query, **NESTED_CALLS[call])
    for ours, reference in zip(found.unbind(), expected, strict=True):
        assert_close(ours, reference)
    with torch.no_grad():
        plain = sdpa(query, query, query, **NESTED_CALLS[call])
    assert plain.shape == query.shape and torch.equal(plain.transpose(1, 2).values(), found.transpose(1, 2).values())
    layer = (found + query).transpose(1, 2).flatten(-2)  # a typical use in a model
    gradients = torch.autograd.grad(layer.values().sin().sum(), rows, retain_graph=True)
    total = sum((one + own).sin().sum() for one, own in zip(expected, query.unbind()))
    for ours, reference in zip(gradients, torch.autograd.grad(total, rows)):
        assert_close(ours, reference)


def test_nested_keys_of_other_lengths_widths_and_heads():
    rows, query = rows_and_heads([4, 1, 3], 4, 8)
    others, key = rows_and_heads([2, 6, 3], 2, 8)
    more, _ = rows_and_heads([2, 6, 3], 2, 6)
    value = torch.nested.nested_tensor_from_jagged(torch.cat(more), key.offsets()).unflatten(-1, [2, 6]).transpose(1, 2)
    found = sdpa(query, key, value, enable_gqa=True)
    expected = by_pytorch(query, key, value, enable_gqa=True)
    for ours, reference in zip(found.unbind(), expected, strict=True):
        assert_close(ours, reference)
    every = [*rows, *others, *more]
    gradients = torch.autograd.grad(found.transpose(1, 2).values().sin().sum(), every, retain_graph=True)
    for ours, reference in zip(gradients, torch.autograd.grad(sum(x.sin().sum() for x in expected), every)):
        assert_close(ours, reference)
    alike = nested([x.detach() for x in more]).unflatten(-1, [2, 6]).transpose(1, 2)  # the same lengths, other offsets
    for ours, reference in zip(sdpa(query, key, alike, enable_gqa=True).unbind(), expected):
        assert_close(ours, reference)


def test_nested_tensors_without_heads():
    rows = [torch.randn(length, 8, dtype=torch.float64) for length in (4, 1, 7)]
    x = nested(rows)
    found = sdpa(x, x, x, is_causal=True)
    assert found.shape == x.shape
    for ours, row in zip(found.unbind(), rows):
        assert_close(ours, torch.nn.functional.scaled_dot_product_attention(row, row, row, is_causal=True))


def test_a_summary_of_nested_tensors_is_nested_and_counts_within_each():
    _, query = rows_and_heads([4, 1, 7], 2, 8)
    output, summary = sdpa(query, query, query, is_causal=True, return_summary=True, top_k=2)
    assert summary.lse.shape == query.shape[:3] and summary.top_k_index.shape == (*query.shape[:3], 2)
    rows = (x.unbind() for x in (query, output, *summary))
    for q, own, *ours in zip(*rows, strict=True):
        expected, reference = sdpa(q, q, q, is_causal=True, return_summary=True, top_k=2)
        for one, other in zip((own, *ours), (expected, *reference)):
            assert_close(one.detach(), other.detach())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_nested_tensors_compiled(backend):
    def attend(x):
        query = x.unflatten(-1, [2, 8]).transpose(1, 2)
        return sdpa(query, query, query, is_causal=True).transpose(1, 2).flatten(-2)

    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    for lengths in ([4, 1, 7], [2, 9, 3]):
        rows = [torch.randn(length, 16, dtype=torch.float64, requires_grad=True) for length in lengths]
        found, expected = (one(nested(rows)).values() for one in (compiled, attend))
        assert_close(found, expected)
        for ours, reference in zip(*(torch.autograd.grad(x.sin().sum(), rows) for x in (found, expected))):
            assert_close(ours, reference)
    torch._dynamo.reset()
    gc.collect()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_keys_and_values_of_different_lengths_are_refused(backend):
    compiled = torch.compile(sdpa, fullgraph=True, backend=backend)
    query, key, same, other = (rows_and_heads(lengths, 2, 8)[1].detach() for lengths in ([3, 4], [2, 5], [2, 5], [5, 2]))
    assert_close(compiled(query, key, same).values(), sdpa(query, key, same).values())
    with pytest.raises(RuntimeError, match="key and value are nested tensors of different lengths; equal lengths are expected"):
        compiled(query, key, other)
    torch._dynamo.reset()
    gc.collect()


def test_under_autocast_nested_tensors_are_cast():
    _, query = rows_and_heads([4, 1, 7], 2, 8)
    query = nested([x.detach().float() for x in query.transpose(1, 2).unbind()]).transpose(1, 2)
    with torch.autocast("cpu", torch.bfloat16):
        found = sdpa(query, query, query)
    assert found.dtype == torch.bfloat16
    for ours, reference in zip(found.unbind(), by_pytorch(query, query, query)):
        assert_close(ours, reference, TOLERANCE[torch.bfloat16])


def holes():
    x = torch.randn(3, 9, 2, 8, dtype=torch.float64)
    starts, lengths = torch.tensor([0, 2, 1]), torch.tensor([4, 1, 7])
    return torch.nested.narrow(x, 1, starts, lengths, layout=torch.jagged).transpose(1, 2)


def test_nested_tensors_with_holes_are_made_contiguous_by_the_caller():
    x = holes()
    with pytest.raises(ValueError, match=r"query is a nested tensor with holes.*contiguous\(\) makes one"):
        sdpa(x, x, x)
    whole = x.transpose(1, 2).contiguous().transpose(1, 2)
    for ours, reference in zip(sdpa(whole, whole, whole).unbind(), by_pytorch(x, x, x)):
        assert_close(ours, reference)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_nested_tensors_cannot_do_is_said():
    _, x = rows_and_heads([4, 1, 7], 2, 8)
    _, other = rows_and_heads([4, 1], 2, 8)
    _, shorter = rows_and_heads([4, 2, 6], 2, 8)
    _, more = rows_and_heads([4, 1, 7], 4, 8)
    strided = torch.nested.nested_tensor([torch.randn(2, 3, 8), torch.randn(2, 4, 8)])
    mistakes = {
        "query is a nested tensor of layout torch.strided; nested tensors of layout torch.jagged":
            lambda: sdpa(*[strided] * 3),
        "key is a plain tensor; nested tensors of layout torch.jagged": lambda: sdpa(x, torch.randn(3, 2, 4, 8), x),
        "attn_mask is given with nested tensors; only is_causal": lambda: sdpa(x, x, x, torch.ones(4, 4).bool()),
        "return_weights is True with nested tensors; False": lambda: sdpa(x, x, x, return_weights=True),
        "query is a nested tensor of 4 axes, ragged in axis 1; [B, H, j, E], ragged in axis 2":
            lambda: sdpa(*[x.transpose(1, 2)] * 3),
        "of 3, 2 and 2 sequences": lambda: sdpa(x, other, other),
        "equal lengths of key and value, are expected": lambda: sdpa(x, x, shorter),
        "query has 4 heads and key 2; the same number is expected (enable_gqa=True": lambda: sdpa(more, x, x),
    }
    for message, call in mistakes.items():
        with pytest.raises(ValueError) as caught:
            call()
        assert message in str(caught.value)


@pytest.mark.parametrize("strict", [True, False])
def test_an_export_takes_other_numbers_of_tokens_and_sequences(strict):
    class Packed(torch.nn.Module):
        def forward(self, x, offsets):
            return varlen_attention(x, x, x, offsets, causal=True, window_size=(2, None))

    tokens, sequences = torch.export.Dim("tokens"), torch.export.Dim("sequences")
    given = torch.randn(6, 2, 8), torch.tensor([0, 2, 6], dtype=torch.int32)
    exported = torch.export.export(Packed(), given, strict=strict, dynamic_shapes=({0: tokens}, {0: sequences})).module()
    x = torch.randn(9, 2, 8, generator=torch.Generator().manual_seed(1))
    found = exported(x, torch.tensor([0, 5, 6, 9], dtype=torch.int32))
    for first, last in ((0, 5), (5, 6), (6, 9)):
        part = x[first:last].transpose(0, 1).double()
        mask = torch.ones(last - first, last - first, dtype=torch.bool).tril().triu(-2)
        expected = torch.nn.functional.scaled_dot_product_attention(part, part, part, attn_mask=mask).transpose(0, 1)
        assert (found[first:last] - expected).abs().max() < 1e-6
