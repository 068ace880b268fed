"""heed.KvCache with PyTorch tensors, compared with PyTorch in f64."""

import pytest
import torch

import heed

SHAPE = {"kv_heads": 2, "key_dim": 16}


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def expected_of(q, key, value):
    """The expected output in f64. The last query is at the last key, and each sees the keys up to its own."""
    mask = torch.ones(q.shape[2], key.shape[2], dtype=torch.bool).tril(key.shape[2] - q.shape[2])
    return torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in (q, key, value)), attn_mask=mask,
                                                            enable_gqa=True)


# Output tolerance: f32 sums, or the rounding of the output and, in bf16 and f16, of the weights.
TOLERANCE = {torch.float32: 4e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}


@pytest.mark.parametrize("dtype, format", [(torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.float16, "f16"),
                                           (torch.bfloat16, "f32")])
def test_tensors_are_appended_and_attended_step_by_step(dtype, format):
    key, value = randn(2, 2, 12, 16, dtype=dtype), randn(2, 2, 12, 16, dtype=dtype, seed=1)
    q = randn(2, 4, 12, 16, dtype=dtype, seed=2)
    cache = heed.KvCache(batch=2, **SHAPE, layout="paged", capacity=100, page_size=4, format=format)
    for first, last in ((0, 7), *((step, step + 1) for step in range(7, 12))):
        cache.append(key[:, :, first:last], value[:, :, first:last])
        result = heed.attention(q[:, :, first:last], cache, causal=True, top_k=2)
        assert type(result.output) is torch.Tensor and result.output.dtype == dtype
        assert result.top_k_index.dtype == torch.int64 and result.top_k_weight.dtype == torch.float32
        expected = expected_of(q[:, :, first:last], key[:, :, :last], value[:, :, :last])
        assert (result.output - expected).abs().max() <= TOLERANCE[dtype] * (1 + expected.abs().max())
    assert cache.lengths.tolist() == [12, 12]
    assert (torch.from_numpy(cache.keys(1)) == key[1].float()).all()


def test_arguments_may_be_tensors():
    key, value = randn(1, 2, 10, 16), randn(1, 2, 10, 16, seed=1)
    cache = heed.KvCache(batch=2, **SHAPE, capacity=16)
    cache.append(key, value, torch.tensor([0, 3, 10], dtype=torch.int32), torch.tensor([1, 0]))
    assert cache.lengths.tolist() == [7, 3]
    q = randn(1, 4, 3, 16, seed=2)
    result = heed.attention(q, cache, sequences=torch.tensor([0]), tree_parents=torch.tensor([-1, 0, 1]),
                            need="received")
    expected = expected_of(q, key[:, :, 3:], value[:, :, 3:])  # a chain of drafts is causal
    assert (result.output - expected).abs().max() < 4e-6
    out = torch.empty(1, 3, 4, 16).transpose(1, 2)
    assert heed.attention(q, cache, sequences=[0], tree_mask=torch.ones(3, 3).tril().bool(), out=out) is out
    assert (out == result.output).all()
    cache.add_received(result.received, sequences=torch.tensor([0]))
    grouped = result.received.unflatten(1, (2, 2)).sum(2)[0]
    assert torch.equal(torch.from_numpy(cache.received(0)), grouped)
    cache.evict(0, torch.tensor([0, 2]))
    assert cache.positions(0).tolist() == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_lies_over_pages_of_tensors(dtype):
    pools = [randn(5, 4, 2, 16, dtype=dtype, seed=seed) for seed in (0, 1)]
    table = torch.tensor([[3, 1]], dtype=torch.int32)
    cache = heed.KvCache.over_block_table(*pools, table, torch.tensor([6]), writable=True)
    rows = randn(1, 2, 1, 16, dtype=dtype, seed=2)
    cache.append(rows, rows)
    assert (pools[0][1, 2] == rows[0, :, 0]).all() and (pools[1][1, 2] == rows[0, :, 0]).all()
    key, value = (pool[[3, 1]].flatten(0, 1)[:7].transpose(0, 1)[None] for pool in pools)
    q = randn(1, 4, 1, 16, dtype=dtype, seed=3)
    expected = expected_of(q, key, value)
    assert (heed.attention(q, cache) - expected).abs().max() <= TOLERANCE[dtype] * (1 + expected.abs().max())


def test_tensors_that_require_gradients_are_refused():
    cache = heed.KvCache(**SHAPE, capacity=4)
    rows = randn(1, 2, 1, 16)
    with pytest.raises(ValueError, match=r"key requires a gradient.*key.detach\(\) is expected"):
        cache.append(rows.clone().requires_grad_(), rows)
    assert cache.lengths[0] == 0


REPLACED = {
    "an assignment to data": lambda rows: setattr(rows, "data", torch.zeros(1)),
    "set_": lambda rows: rows.set_(torch.zeros(1).untyped_storage(), 0, (1,)),
    "resize_": lambda rows: rows.resize_(4 * rows.numel()),
    "share_memory_": lambda rows: rows.share_memory_(),
    "a storage that is cut": lambda rows: rows.untyped_storage().resize_(0),
}


@pytest.mark.parametrize("how", REPLACED)
def test_a_cache_over_tensors_refuses_other_memory(how):
    key, value, query = torch.ones(1, 1, 64, 8), torch.ones(1, 1, 64, 8), torch.ones(1, 1, 1, 8)
    cache = heed.KvCache.over(key, value, [64])
    assert torch.allclose(heed.attention(query, cache), query)
    REPLACED[how](value)
    expected = "its storage was cut" if how == "a storage that is cut" else "has other memory than when it was given"
    with pytest.raises(ValueError, match=f"^value .*{expected}"):
        heed.attention(query, cache)


def test_what_heed_writes_has_another_version():
    """So PyTorch does not compute gradients with numbers that were overwritten."""
    query, factor = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8, requires_grad=True)
    out = torch.randn(1, 2, 5, 8)
    product = (factor * out).sum()
    heed.attention(query, query, query, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    key, value = torch.zeros(1, 2, 7, 8), torch.zeros(1, 2, 7, 8)
    cache = heed.KvCache.over(key, value, [2], writable=True)
    before = key._version, value._version
    cache.append(query, query)
    assert key._version > before[0] and value._version > before[1]
    with torch.inference_mode():  # such tensors have no version
        assert heed.attention(query, query, query, out=torch.empty(1, 2, 5, 8)).shape == query.shape


def decoding(cache):
    """A step of decoding, with operators around the cache that torch.compile makes graphs of."""
    def step(q, k, v):
        q = q * 2
        cache.append(k + 1, v * 2)
        return heed.attention(q, cache, causal=True).relu() + float(cache.lengths[0])

    return step


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_step_of_decoding_appends_and_attends_at_every_run(backend):
    torch._dynamo.reset()
    caches = [heed.KvCache(**SHAPE, capacity=8) for _ in range(2)]
    plain, compiled = decoding(caches[0]), torch.compile(decoding(caches[1]), backend=backend)
    for step in range(4):
        given = [randn(1, 2, 1, 16, seed=3 * step + place) for place in range(3)]
        assert torch.equal(compiled(*given), plain(*given))
        assert caches[1].lengths.tolist() == [step + 1]


def test_an_append_within_one_whole_graph_is_refused_by_name():
    torch._dynamo.reset()
    cache = heed.KvCache(**SHAPE, capacity=8)
    compiled = torch.compile(decoding(cache), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="heed.KvCache.append is no part of a graph; torch.compile with "
                                                            "fullgraph=False is expected"):
        compiled(*(randn(1, 2, 1, 16, seed=seed) for seed in range(3)))
    assert cache.lengths.tolist() == [0]
