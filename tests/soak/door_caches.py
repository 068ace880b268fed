"""Door caches: the life of a KvCache of any layout and format, against lists of rows and f64."""

import numpy as np
from calls import attention_oracle

import heed

LAYOUTS = ("contiguous", "paged", "ring")
# Attention over codes equals attention over the numbers that they stand for. The two differ by f32's roundings of 24
# products, by the rotation's, and for small formats by a query in bf16 or the sums in int8.
TOLERANCE = 2e-5


class Life:
    """A sequence as a list of (position, key, value)."""

    def __init__(self, length=0, rows=()):
        self.length, self.rows = length, list(rows)


def check(rng, cache, b, life, heads, exact):
    assert cache.positions(b).tolist() == [position for position, _, _ in life.rows]
    keys, values = cache.keys(b), cache.values(b)
    if exact and life.rows:
        assert (keys == np.stack([key for _, key, _ in life.rows], 1)).all(), "stored keys changed"
        assert (values == np.stack([value for _, _, value in life.rows], 1)).all(), "stored values changed"
    if not life.rows or cache.rotate:
        return 0
    queries = int(rng.integers(1, 4))
    if queries > life.length:
        queries = life.length
    q = rng.standard_normal((1, heads, queries, cache.key_dim), dtype=np.float32)
    full_key = np.zeros((1, cache.kv_heads, life.length, cache.key_dim))
    full_value = np.zeros((1, cache.kv_heads, life.length, cache.value_dim))
    mask = np.zeros(life.length, bool)
    places = [position for position, _, _ in life.rows]
    full_key[0][:, places], full_value[0][:, places], mask[places] = keys, values, True
    result = heed.attention(q, cache, sequences=[b], causal=True, need=["weights", "lse"])
    expected = attention_oracle.attention(q, full_key, full_value, causal=True, mask=mask,
                                          query_offset=life.length - queries)
    for name, got, wanted in (("output", result.output, expected["out"]), ("lse", result.lse, expected["lse"]),
                              ("weights", result.weights, expected["weights"][..., mask])):
        right = (got == wanted) | (np.abs(got - np.where(np.isfinite(wanted), wanted, 0)) <= TOLERANCE * (1 + np.abs(wanted)))
        assert right.all(), f"{name} over {cache!r} is off by {np.abs(got - wanted)[~right].max()}"
    return queries * heads


def call(rng, folder):
    pick = lambda *of: of[int(rng.integers(len(of)))]
    layout, format = pick(*LAYOUTS), pick("f32", "f32", "bf16", "f16", "int8", "int4", "fp8")
    kv_heads, dim, value_dim, ring = pick(1, 2), pick(8, 16, 24), pick(8, 16), {"sinks": 0, "window": 0}
    options = {"capacity": pick(4, 50, 400)}
    if layout == "paged":
        options |= {"page_size": pick(1, 3, 4, 16), "page_order": pick("hnd", "nhd")}
    if layout == "ring":
        ring = options = {"sinks": pick(0, 2), "window": pick(9, 30)}
    heads = kv_heads * pick(1, 2, 4)
    rotate = dim in (8, 16) and format in ("int8", "int4", "fp8") and rng.random() < 0.3
    if format in ("int8", "int4", "fp8"):
        options["group"] = pick(8, 16, 32)
    cache = heed.KvCache(batch=2, kv_heads=kv_heads, key_dim=dim, value_dim=value_dim, layout=layout, format=format,
                         rotate=rotate, **options)
    lives, checked = [Life(), Life()], 0
    for _ in range(int(rng.integers(10, 60))):
        b = int(rng.integers(len(lives)))
        life = lives[b]
        action = pick("append", "append", "append", "append", "truncate", "evict", "fork", "clear", "reserve")
        if action == "append":
            count = int(rng.integers(0, 9))
            key, value = (rng.standard_normal((1, kv_heads, count, size), dtype=np.float32) for size in (dim, value_dim))
            try:
                cache.append(key, value, offsets=[0, count], sequences=[b])
            except ValueError as refusal:  # nothing may have changed
                assert layout != "ring" and "reserve()" in str(refusal), refusal
                continue
            life.rows += [(life.length + r, key[0, :, r], value[0, :, r]) for r in range(count)]
            life.length += count
            if layout == "ring":
                first, last = ring["sinks"], life.length - ring["window"]
                life.rows = [row for row in life.rows if row[0] < first or row[0] >= last]
        elif action == "reserve":
            if layout != "ring":
                cache.reserve(life.length + int(rng.integers(40)))
        elif layout == "ring" and action != "clear":
            continue
        elif action == "truncate":
            length = int(rng.integers(life.length + 1))
            try:
                cache.truncate(b, length)
            except ValueError as refusal:
                assert format in ("int8", "int4", "fp8"), refusal
                continue
            life.length, life.rows = length, [row for row in life.rows if row[0] < length]
        elif action == "evict" and layout == "paged":
            held = [row[0] for row in life.rows]
            gone = sorted(rng.choice(held, len(held) // 4, replace=False).tolist()) if held else []
            try:
                cache.evict(b, gone)
            except ValueError as refusal:
                assert format in ("int8", "int4", "fp8"), refusal
                continue
            life.rows = [row for row in life.rows if row[0] not in gone]
        elif action == "fork" and layout == "paged" and len(lives) < 6:
            assert cache.fork(b) == len(lives)
            lives.append(Life(life.length, life.rows))
        elif action == "clear":
            cache.clear(b)
            lives[b] = Life()
        assert cache.lengths.tolist() == [one.length for one in lives]
        b = int(rng.integers(len(lives)))
        checked += check(rng, cache, b, lives[b], heads, format == "f32" and not rotate)
    return {"rows": checked}
