"""heed.KvCache on NumPy arrays, compared with attention in NumPy and f64 over plain lists of rows."""

import copy
import gc
import threading

import attention_oracle
import numpy as np
import pytest

import heed

NEEDS = attention_oracle.NEEDS
# f32 sums of 16 products and 40 weights of numbers around 1: about 50 roundings of 2^-24.
TOLERANCE = 4e-6
LAYOUTS = {
    "contiguous": {"capacity": 64},
    "paged": {"layout": "paged", "capacity": 400, "page_size": 4},
    "pages of rows": {"layout": "paged", "capacity": 400, "page_size": 3, "page_order": "nhd"},
    "ring": {"layout": "ring", "sinks": 2, "window": 38},
}
HEADS = {"kv_heads": 2, "key_dim": 16, "value_dim": 12}


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def rows(rng, length, batch=1):
    return (rng.standard_normal((batch, 2, length, 16), dtype=np.float32),
            rng.standard_normal((batch, 2, length, 12), dtype=np.float32))


def queries(rng, length, batch=1):
    return rng.standard_normal((batch, 4, length, 16), dtype=np.float32)


def assert_close(got, expected, tolerance=TOLERANCE):
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    assert got.shape == expected.shape
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = np.abs(got - expected)
    same = (got == expected) | (difference <= tolerance * (1 + np.abs(expected)))
    assert same.all(), f"largest difference {np.nanmax(difference)}"


def filled(rng, lengths, **options):
    """A cache with sequences of these lengths, and the rows of each."""
    cache = heed.KvCache(batch=len(lengths), **HEADS, **options)
    kept = [rows(rng, length) for length in lengths]
    key, value = (np.concatenate([of_one[i] for of_one in kept], axis=2) for i in (0, 1))
    cache.append(key, value, offsets=np.cumsum([0, *lengths]))
    return cache, kept


def expected_of(q, key, value, **options):
    """The expected results; the last query is at the last key."""
    options = {"query_offset": key.shape[2] - q.shape[2], **options}
    return attention_oracle.attention(q, key, value, **options)


CALLS = {
    "plain": {},
    "causal": {"causal": True},
    "offset": {"causal": True, "query_offset": 3},
    "window": {"window": (2, 0)},
    "scale": {"scale": 0.5},
    "softcap": {"softcap": 2.0},
    "alibi": {"alibi": [0.5, 0.25, 0.125, 0.0625], "causal": True},
    "sinks": {"sinks": np.array([0.0, 1.0, -1.0, 0.5])},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_every_result_of_a_ragged_batch_equals_numpys(rng, layout, name):
    lengths = [17, 40, 5]
    cache, kept = filled(rng, lengths, **LAYOUTS[layout])
    assert cache.lengths.tolist() == cache.rows.tolist() == lengths
    q = queries(rng, 5, batch=3)
    result = heed.attention(q, cache, need=NEEDS, top_k=3, received_last=4, **CALLS[name])
    for b, length in enumerate(lengths):
        expected = expected_of(q[b:b + 1], *kept[b], top_k=3, received_last=4, **CALLS[name])
        assert_close(result.output[b], expected["out"][0])
        for field in ("weights", "scores", "received", "received_last"):
            assert_close(getattr(result, field)[b, ..., :length], expected[field][0])
        for field in ("lse", "max_score", "entropy", "distance", "top_k_weight"):
            assert_close(getattr(result, field)[b], expected[field][0])
        assert (result.top_k_index[b] == expected["top_k_index"][0]).all()
    assert (result.weights[2, ..., 5:] == 0).all() and np.isneginf(result.scores[2, ..., 5:]).all()
    assert result.kernel == "fused"


def test_a_life_of_random_operations_is_that_of_lists_of_rows(rng):
    """Each step changes the cache and, in NumPy, lists of (position, key, value). Then both attend."""
    cache = heed.KvCache(batch=2, **HEADS, layout="paged", capacity=2000, page_size=4)
    lives = [{"length": 0, "rows": []} for _ in range(2)]
    for step in range(120):
        b = int(rng.integers(len(lives)))
        life, held = lives[b], [row[0] for row in lives[b]["rows"]]
        action = rng.choice(["append", "append", "append", "truncate", "evict", "fork", "clear"],
                            p=[0.25, 0.25, 0.2, 0.1, 0.1, 0.08, 0.02])
        if step % 40 == 39:  # release it and fork another one in its place
            cache.release(b)
            with pytest.raises(ValueError, match="which is released"):
                cache.append(*rows(rng, 1), offsets=[0, 1], sequences=[b])
            assert cache.rows[b] == 0 and cache.fork(b - 1 if b else 1) == b
            lives[b] = life = {key: copy.copy(value) for key, value in lives[b - 1 if b else 1].items()}
            held, action = [row[0] for row in life["rows"]], "append"
        if action == "append":
            key, value = rows(rng, int(rng.integers(0, 9)))
            cache.append(key, value, offsets=[0, key.shape[2]], sequences=[b])
            for r in range(key.shape[2]):
                life["rows"].append((life["length"], key[0, :, r], value[0, :, r]))
                life["length"] += 1
        elif action == "truncate":
            life["length"] = int(rng.integers(life["length"] + 1))
            cache.truncate(b, life["length"])
            life["rows"] = [row for row in life["rows"] if row[0] < life["length"]]
        elif action == "evict":
            gone = sorted(rng.choice(held, len(held) // 4, replace=False).tolist()) if held else []
            cache.evict(b, gone)
            life["rows"] = [row for row in life["rows"] if row[0] not in gone]
        elif action == "fork" and len(lives) < 8:
            assert cache.fork(b) == len(lives) == cache.batch - 1
            lives.append({"length": life["length"], "rows": list(life["rows"])})
        elif action == "clear":
            cache.clear(b)
            life |= {"length": 0, "rows": []}
        assert cache.lengths.tolist() == [one["length"] for one in lives]
        assert cache.rows.tolist() == [len(one["rows"]) for one in lives]
        assert cache.positions(b).tolist() == [row[0] for row in life["rows"]]
        if not life["rows"]:
            continue
        # The oracle has all positions; a mask selects the stored ones.
        key, value = np.zeros((1, 2, life["length"], 16)), np.zeros((1, 2, life["length"], 12))
        mask = np.zeros(life["length"], bool)
        for position, k, v in life["rows"]:
            key[0, :, position], value[0, :, position], mask[position] = k, v, True
        q = queries(rng, 3)
        result = heed.attention(q, cache, sequences=[b], causal=True, need="weights", top_k=2)
        expected = expected_of(q, key, value, causal=True, mask=mask, top_k=2)
        assert_close(result.output, expected["out"])
        assert_close(result.weights, expected["weights"][..., mask])
        assert (result.top_k_index == expected["top_k_index"]).all()


# The largest error of a stored number, given the smallest and largest numbers that share its scale. It is half a step
# of the codes, plus the roundings of scale and offset to bf16, 2^-9 each.
STEPS = {
    "f32": lambda x, low, high: 0 * x,
    "f16": lambda x, low, high: 2**-11 * np.abs(x) + 2**-24,
    "bf16": lambda x, low, high: 2**-8 * np.abs(x),
    "int8": lambda x, low, high: 0.502 * np.maximum(-low, high) / 127,
    "int4": lambda x, low, high: 0.51 * (high - low) / 15 + 2**-8 * np.maximum(np.abs(low), np.abs(high)),
    "fp8": lambda x, low, high: 2**-4 * np.abs(x) + 2**-8 * np.maximum(-low, high),
}


@pytest.mark.parametrize("format", STEPS)
def test_formats_keep_rows_within_their_steps(rng, format):
    cache, [(key, value)] = filled(rng, [40], capacity=64, format=format, group=8)  # 5 full groups, no row in the tail
    assert cache.format == format
    of_positions = key[0].reshape(2, 5, 8, 16)
    low, high = (np.broadcast_to(f(of_positions, 2, keepdims=True), of_positions.shape).reshape(key[0].shape)
                 for f in (np.min, np.max))
    assert (np.abs(cache.keys(0) - key[0]) <= STEPS[format](key[0], low, high)).all()
    for c in (0, 8):
        channels = value[0, ..., c:c + 8]
        low, high = channels.min(-1, keepdims=True), channels.max(-1, keepdims=True)
        assert (np.abs(cache.values(0)[..., c:c + 8] - channels) <= STEPS[format](channels, low, high)).all()
    assert (format == "f32") == (cache.keys(0) == key[0]).all()
    q = queries(rng, 2)
    expected = expected_of(q, cache.keys(0)[None], cache.values(0)[None], causal=True)
    result = heed.attention(q, cache, causal=True, need="weights")
    assert_close(result.weights, expected["weights"])
    assert_close(result.output, expected["out"])


def test_rotated_keys_meet_rotated_queries(rng):
    cache, [(key, _)] = filled(rng, [32], capacity=32, format="int8", group=8, rotate=True)
    assert cache.rotate
    hadamard = np.array([[1.0]])
    while len(hadamard) < 16:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    turned = key[0] @ hadamard / 4
    largest = np.abs(turned.reshape(2, 4, 8, 16)).max(2, keepdims=True)
    assert (np.abs(cache.keys(0) - turned).reshape(2, 4, 8, 16) <= 0.502 * largest / 127 + 1e-6).all()
    q = queries(rng, 2)
    expected = expected_of(q @ hadamard / 4, cache.keys(0)[None], cache.values(0)[None])
    assert_close(heed.attention(q, cache), expected["out"])


def test_rows_of_a_whole_batch_are_appended_at_once(rng):
    cache = heed.KvCache(batch=3, **HEADS, capacity=16)
    key, value = rows(rng, 4, batch=3)
    cache.append(key[..., ::-1], value[:, :, ::-1])  # strided views
    cache.append(key=key.astype(np.float16), value=value.astype(np.float16))
    assert cache.lengths.tolist() == [8, 8, 8]
    assert (cache.keys(1)[:, :4] == key[1, ..., ::-1]).all()
    assert (cache.values(1)[:, :4] == value[1, :, ::-1]).all()
    assert (cache.keys(2)[:, 4:] == key[2].astype(np.float16)).all()


def test_what_rows_received_is_summed_with_decay(rng):
    cache, kept = filled(rng, [6, 9], **LAYOUTS["paged"])
    sums = [np.zeros((2, 6)), np.zeros((2, 9))]
    for _ in range(3):
        q = queries(rng, 1, batch=2)
        cache.add_received(heed.attention(q, cache, need="received").received, decay=0.5)
        for b in (0, 1):
            received = expected_of(q[b:b + 1], *kept[b])["received"]
            sums[b] = 0.5 * sums[b] + received.reshape(2, 2, -1).sum(1)  # over the query heads that share a key head
    cache.add_received(np.ones((1, 4, 9), np.float32), sequences=[1])
    assert_close(cache.received(0), sums[0])
    assert_close(cache.received(1), sums[1] + 2)
    cache.evict(1, [0, 4])
    assert_close(cache.received(1), np.delete(sums[1] + 2, [0, 4], axis=1))
    cache.append(*rows(rng, 1, batch=2))
    assert (cache.received(1)[:, -1] == 0).all()


def tree_of(parents):
    mask = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


@pytest.mark.parametrize("layout", LAYOUTS)
def test_drafts_see_their_ancestors(rng, layout):
    parents = [-1, 0, 0, 1, 2, -1]
    cache, kept = filled(rng, [11, 8], **LAYOUTS[layout])
    q = queries(rng, 6, batch=2)
    same = [heed.attention(q, cache, **tree) for tree in (
        {"tree_parents": parents}, {"tree_parents": np.array([parents] * 2, np.int32)}, {"tree_mask": tree_of(parents)},
        {"tree_mask": np.stack([tree_of(parents)] * 2)})]
    for b, length in enumerate([11, 8]):
        mask = np.ones((6, length), bool)
        mask[:, -6:] = tree_of(parents)
        expected = expected_of(q[b:b + 1], *kept[b], mask=mask)["out"]
        for output in same:
            assert_close(output[b:b + 1], expected)


def test_packed_queries_attend_a_sequence_each(rng):
    cache, kept = filled(rng, [9, 4, 7], capacity=16)
    q = queries(rng, 6)
    result = heed.attention(q, cache, cu_seqlens=[0, 2, 6], sequences=np.array([2, 0]), causal=True, need="weights")
    for first, last, sequence, column in ((0, 2, 2, 0), (2, 6, 0, 7)):
        expected = expected_of(q[:, :, first:last], *kept[sequence], causal=True)
        assert_close(result.output[:, :, first:last], expected["out"])
        width = kept[sequence][0].shape[2]
        assert_close(result.weights[:, :, first:last, column:column + width], expected["weights"])


def test_results_are_written_into_an_array_of_the_callers(rng):
    cache, _ = filled(rng, [9, 4], **LAYOUTS["paged"])
    q = queries(rng, 3, batch=2)
    everything = {"need": NEEDS, "top_k": 2, "received_last": 2, "map": (2, 2)}
    expected = heed.attention(q, cache, **everything)
    view = np.full((2, 3, 4, 12), np.nan, np.float32).transpose(0, 2, 1, 3)
    assert heed.attention(q, cache, out=view) is view and (view == expected.output).all()
    view[:] = np.nan
    result = heed.attention(q, cache, out=view, **everything)
    assert result.output is view and (view == expected.output).all()
    for field in (*NEEDS, "top_k_index", "top_k_weight", "received_last", "map"):
        assert (getattr(result, field) == getattr(expected, field)).all()


def test_a_cache_lies_over_arrays(rng):
    key, value = rows(rng, 10, batch=2)
    q = queries(rng, 2, batch=2)
    lengths = [3, 10]
    cache = heed.KvCache.over(key, value, lengths)
    expected = lambda: [expected_of(q[b:b + 1], key[b:b + 1, :, :n], value[b:b + 1, :, :n])["out"][0]
                        for b, n in enumerate(lengths)]
    assert_close(heed.attention(q, cache), expected())
    key[0, 0, 1] += 1  # visible, because nothing was copied
    assert_close(heed.attention(q, cache), expected())
    with pytest.raises(ValueError, match="memory of this cache is read-only"):
        cache.append(*rows(rng, 1, batch=2))
    cache = heed.KvCache.over(key, value, lengths, writable=True)
    new_key, new_value = rows(rng, 2)
    cache.append(new_key, new_value, [0, 2], [0])
    assert (key[0, :, 3:5] == new_key).all() and (value[0, :, 3:5] == new_value).all()


@pytest.mark.parametrize("order", ["nhd", "hnd"])
def test_a_cache_lies_over_the_pages_of_others(rng, order):
    """Pools [pages, page size, Hkv, D] with vLLM's block table and with FlashInfer's indices."""
    key, value = (rng.standard_normal((7, 4, 2, dim), dtype=np.float32) for dim in (16, 12))
    table, lengths = [[5, 0, 3], [2, -1, -1]], [9, 4]
    pools = (key, value) if order == "nhd" else tuple(np.ascontiguousarray(x.swapaxes(1, 2)) for x in (key, value))
    of = lambda pool, b: pool[[page for page in table[b] if page >= 0]].reshape(-1, 2, pool.shape[-1])[:lengths[b]]
    q = queries(rng, 2, batch=2)
    expected = [expected_of(q[b:b + 1], *(of(x, b).swapaxes(0, 1)[None] for x in (key, value)))["out"][0]
                for b in (0, 1)]
    by_table = heed.KvCache.over_block_table(*pools, np.array(table, np.int32), lengths, page_order=order)
    by_indices = heed.KvCache.over_page_indices(*pools, [0, 3, 4], np.array([5, 0, 3, 2]), [1, 4], page_order=order,
                                                writable=True)
    for cache in (by_table, by_indices):
        assert cache.layout == "paged" and cache.page_size == 4 and cache.stats()["bytes"] == 0
        assert_close(heed.attention(q, cache), expected)
    new_key, new_value = rows(rng, 2)
    by_indices.append(new_key, new_value, [0, 2], [0])
    place = (3, slice(1, 3)) if order == "nhd" else (3, slice(None), slice(1, 3))
    turned = (lambda x: x[0].swapaxes(0, 1)) if order == "nhd" else (lambda x: x[0])
    assert (pools[0][place] == turned(new_key)).all() and (pools[1][place] == turned(new_value)).all()


def test_arrays_live_as_long_as_the_cache_over_them(rng):
    cache = heed.KvCache.over(*(np.full((1, 2, 1000, dim), 0.5, np.float32) for dim in (16, 12)), [1000])
    gc.collect()
    _ = [np.full((1, 2, 1000, 16), np.nan, np.float32) for _ in range(4)]  # may reuse freed memory
    assert_close(heed.attention(queries(rng, 1), cache), np.full((1, 4, 1, 12), 0.5), 1e-4)  # 1000 weights


def test_what_a_cache_says_of_itself(rng):
    cache, _ = filled(rng, [6, 3], layout="paged", capacity=40, page_size=4, format="int8", group=8)
    cache.fork(0)
    stats = cache.stats()
    assert (cache.batch, cache.kv_heads, cache.key_dim, cache.value_dim) == (3, 2, 16, 12)
    assert (cache.format, cache.layout, cache.page_size, cache.rotate) == ("int8", "paged", 4, False)
    assert (stats["rows"], stats["capacity"], stats["pages"], stats["free_pages"]) == (15, 40, 10, 7)
    assert stats["shared_pages"] == 2
    # One byte per element, and bf16 scales of values: 2 groups per row and head. No group of keys is full.
    assert stats["bytes"] == 40 * 2 * (16 + 12) + 40 * 2 * 2 * 2
    assert stats["tail_bytes"] == 3 * 2 * 16 * (16 + 12) * 4
    assert repr(cache) == "KvCache(paged int8, 3 sequences, 15 rows of 2 x 16)"
    assert heed.KvCache(kv_heads=1, key_dim=8, capacity=1).value_dim == 8
    cache.reserve(100)
    assert cache.stats()["capacity"] == 100


def test_threads_may_attend_while_another_appends(rng):
    """Each call sees whole rows. All keys of a sequence are equal, so the output is the mean of its values."""
    cache = heed.KvCache(kv_heads=1, key_dim=8, capacity=2100)
    cache.append(np.zeros((1, 1, 100, 8), np.float32), np.full((1, 1, 100, 8), 0.25, np.float32))
    failures, ended = [], threading.Event()

    def attend():
        while not ended.is_set():
            lse = heed.attention(np.ones((1, 1, 1, 8), np.float32), cache, need="lse")
            length = np.exp(np.float64(lse.lse[0, 0, 0]))
            # f32 sums of 2100 weights are off by about 2^-24 each; exp(lse), a count, is off by 2100 * ln(2100) *
            # 2^-24.
            if (np.abs(lse.output - 0.25) > 1e-4).any() or abs(length - 20 * round(length / 20)) > 1e-2:
                failures.append((length, lse.output))

    threads = [threading.Thread(target=attend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        cache.append(np.zeros((1, 1, 20, 8), np.float32), np.full((1, 1, 20, 8), 0.25, np.float32))
    ended.set()
    for thread in threads:
        thread.join()
    assert not failures and cache.lengths[0] == 2100


def test_pythons_lock_is_let_go(rng):
    """One thread attends 16 times to 60000 keys while this one counts."""
    cache = heed.KvCache(kv_heads=1, key_dim=64, capacity=60000)
    cache.append(*[rng.standard_normal((1, 1, 60000, 64), dtype=np.float32)] * 2)
    q = rng.standard_normal((1, 16, 64, 64), dtype=np.float32)
    under_way, done = threading.Event(), threading.Event()

    def attend():
        under_way.set()
        heed.attention(q, cache, threads=1)
        done.set()

    thread = threading.Thread(target=attend)
    thread.start()
    under_way.wait()
    steps = 0
    while not done.is_set():
        steps += 1
    thread.join()
    assert steps > 1000  # if the call held the GIL, there would be a handful, before and after it


ARRAYS = [np.zeros((1, 2, 4, dim), np.float32) for dim in (16, 12)]
MISTAKES = {
    "batch is -1; 0 or more": lambda c: heed.KvCache(batch=-1, kv_heads=1, key_dim=4, capacity=1),
    "kv_heads is 0; 1": lambda c: heed.KvCache(kv_heads=0, key_dim=4, capacity=1),
    "key_dim is 0; 1 or": lambda c: heed.KvCache(kv_heads=1, key_dim=0, capacity=1),
    "value_dim is 0; 1": lambda c: heed.KvCache(kv_heads=1, key_dim=4, value_dim=0, capacity=1),
    "capacity is 0; 1": lambda c: heed.KvCache(kv_heads=1, key_dim=4),
    "format is 'int3'; 'f32'": lambda c: heed.KvCache(kv_heads=1, key_dim=4, capacity=1, format="int3"),
    "layout is 'rong'; 'contiguous'": lambda c: heed.KvCache(kv_heads=1, key_dim=4, layout="rong"),
    "page_order is 'hdn'; 'hnd'": lambda c: heed.KvCache(kv_heads=1, key_dim=4, capacity=1, page_order="hdn"),
    "key_dim is 5; an even": lambda c: heed.KvCache(kv_heads=1, key_dim=5, capacity=1, format="int4"),
    "group is 12; a power of two": lambda c: heed.KvCache(kv_heads=1, key_dim=4, capacity=1, format="int8", group=12),
    "rotate is set for a cache of f32": lambda c: heed.KvCache(kv_heads=1, key_dim=4, capacity=1, rotate=True),
    "key is a str; an array": lambda c: c.append("rows", ARRAYS[1]),
    "key has dtype f64": lambda c: c.append(ARRAYS[0].astype(np.float64), ARRAYS[1]),
    "value has 1 row; 4": lambda c: c.append(ARRAYS[0], ARRAYS[1][:, :, :1]),
    "key has shape [1, 2, 4, 12]": lambda c: c.append(ARRAYS[1], ARRAYS[1]),
    "sequence 0 has room for 8 more rows, but 12 arrived": lambda c: c.append(*(np.tile(x, (1, 1, 3, 1)) for x in ARRAYS)),
    "offsets run from 0 to 3; 0 to 4": lambda c: c.append(*ARRAYS, offsets=[0, 3]),
    "offsets is 4; whole numbers": lambda c: c.append(*ARRAYS, offsets=4),
    "offsets has dtype i64 and shape []": lambda c: c.append(*ARRAYS, offsets=np.array(4)),
    "offsets is 4.0; a whole number": lambda c: c.append(*ARRAYS, offsets=[0, 4.0]),
    "sequences is given without offsets": lambda c: c.append(*ARRAYS, sequences=[0]),
    "sequences is empty": lambda c: c.append(*ARRAYS, offsets=[0, 4], sequences=[]),
    "sequence is 3; 0 to 0": lambda c: c.append(*ARRAYS, offsets=[0, 4], sequences=[3]),
    "sequence is 1; 0 to 0": lambda c: c.keys(1),
    "length is 9; 0 to 2": lambda c: c.truncate(0, 9),
    "positions has 5, which": lambda c: c.evict(0, [5]),
    "positions has dtype f64": lambda c: c.evict(0, np.zeros(1)),
    "positions is 'all'": lambda c: c.evict(0, "all"),
    "rows is -1; 0": lambda c: c.reserve(-1),
    "received has shape [1, 2, 3]": lambda c: c.add_received(np.zeros((1, 2, 3))),
    "decay is 2": lambda c: c.add_received(np.zeros((1, 2, 2)), decay=2),
    "query has head dimension 12": lambda c: heed.attention(ARRAYS[1], c),
    "query has dtype f64": lambda c: heed.attention(ARRAYS[0].astype(np.float64), c),
    "query has 2 sequences; 1": lambda c: heed.attention(np.tile(ARRAYS[0], (2, 1, 1, 1)), c),
    "v is given together with a KvCache": lambda c: heed.attention(ARRAYS[0], c, ARRAYS[1]),
    "v is a NoneType; an array": lambda c: heed.attention(ARRAYS[0], ARRAYS[0]),
    "kv_lengths is given; a cache": lambda c: heed.attention(ARRAYS[0], c, kv_lengths=[2]),
    "cu_seqlens of keys is given; a cache": lambda c: heed.attention(ARRAYS[0], c, cu_seqlens=([0, 4], [0, 2])),
    "align is 'top-left'; 'bottom-right'": lambda c: heed.attention(ARRAYS[0], c, align="top-left"),
    "unexpected keyword argument 'sequence'": lambda c: heed.attention(ARRAYS[0], c, sequence=0),
    "unexpected keyword argument 'tree_mask'": lambda c: heed.attention(*[ARRAYS[0]] * 3, tree_mask=np.eye(4)),
    "tree_mask is given together with tree_parents": lambda c: heed.attention(
        ARRAYS[0][:, :, :1], c, tree_parents=[-1], tree_mask=np.eye(1, dtype=bool)),
    "at least the 4 rows of the tree are expected": lambda c: heed.attention(ARRAYS[0], c, tree_parents=[-1, 0, 1, 2]),
    "out cannot be written in place": lambda c: heed.attention(
        ARRAYS[0], c, out=np.broadcast_to(np.float32(0), (1, 2, 4, 12))),
    "lengths has shape [2]; [1]": lambda c: heed.KvCache.over(*ARRAYS, [4, 4]),
    "key cannot be written in place": lambda c: heed.KvCache.over(
        np.broadcast_to(ARRAYS[0], ARRAYS[0].shape), ARRAYS[1], [4], writable=True),
    "block_table has page 1 at 0": lambda c: heed.KvCache.over_block_table(*ARRAYS, np.array([[1]]), [2]),
    "last_page_len[0] is 3; 1 to 2": lambda c: heed.KvCache.over_page_indices(*ARRAYS, [0, 1], [0], [3]),
}
OF_TYPE = ("key is a str", "v is ", "positions is", "unexpected keyword", "offsets is 4")


@pytest.mark.parametrize("message", MISTAKES)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_changes(rng, message):
    cache, [(key, _)] = filled(rng, [2], capacity=10)
    with pytest.raises(TypeError if message.startswith(OF_TYPE) else ValueError) as caught:
        MISTAKES[message](cache)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert cache.lengths.tolist() == [2] and (cache.keys(0) == key[0]).all()


@pytest.mark.parametrize("format", ["f32", "bf16", "f16", "int8", "int4", "fp8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_in_keys_are_the_keys_first_channels(rng, layout, format):
    cache = heed.KvCache(batch=2, **HEADS, **LAYOUTS[layout], format=format, group=8, values_in_keys=True)
    beside = heed.KvCache(batch=2, **HEADS, **LAYOUTS[layout], format=format, group=8)
    assert cache.values_in_keys and not beside.values_in_keys
    key = rows(rng, 30, batch=2)[0]
    cache.append(key)
    beside.append(key, key[..., :12])
    assert cache.stats()["bytes"] < beside.stats()["bytes"]
    q = queries(rng, 3, batch=2)
    out = heed.attention(q, cache, causal=True)
    for b in range(2):
        held = cache.keys(b)
        assert (cache.values(b) == held[..., :12]).all()
        assert_close(out[b:b + 1], expected_of(q[b:b + 1], held[None], held[None, ..., :12], causal=True)["out"])
    if format == "f32":
        assert (out == heed.attention(q, beside, causal=True)).all()
    cache.truncate(1, 21)
    cache.append(key[1:, :, 21:], offsets=[0, 9], sequences=[1])
    if format in ("f32", "bf16", "f16"):
        assert (heed.attention(q, cache, causal=True) == out).all()


def test_a_cache_says_whether_it_takes_values(rng):
    key, value = rows(rng, 2)
    options = {**HEADS, "capacity": 8}
    with pytest.raises(ValueError, match="value is given, but the values of this cache are channels of its keys"):
        heed.KvCache(**options, values_in_keys=True).append(key, value)
    with pytest.raises(ValueError, match="value is missing; it may be absent only if"):
        heed.KvCache(**options).append(key)
    with pytest.raises(ValueError, match="value_dim is 17; at most key_dim = 16 is expected"):
        heed.KvCache(kv_heads=2, key_dim=16, value_dim=17, capacity=8, values_in_keys=True)


@pytest.mark.parametrize("format", ["f32", "bf16", "f16", "int8", "int4", "fp8"])
def test_a_cache_is_saved_and_loaded(rng, tmp_path, format):
    cache, kept = filled(rng, [40, 27], capacity=48, format=format)
    cache.evict(1, [3, 9])
    cache.save(tmp_path / "cache.safetensors")
    again = heed.KvCache.load(str(tmp_path / "cache.safetensors"))
    q = queries(rng, 2, batch=2)
    assert (heed.attention(q, again) == heed.attention(q, cache)).all()
    if format == "f32":
        assert_close(heed.attention(q, again)[:1], expected_of(q[:1], *kept[0])["out"])
    again.append(*rows(rng, 1, batch=2))
    assert cache.lengths.tolist() == [40, 27] and again.lengths.tolist() == [41, 28]


def test_a_file_without_a_cache_is_refused(tmp_path):
    path = tmp_path / "cache.safetensors"
    path.write_bytes(b"\0" * 7)
    with pytest.raises(OSError, match="cache.safetensors' is not a safetensors file: it has 7 bytes"):
        heed.KvCache.load(str(path))
    with pytest.raises(OSError, match="cannot open"):
        heed.KvCache.load(str(tmp_path / "none"))
