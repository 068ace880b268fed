"""Attention as defined in the header include/heed/attention/attention.hpp, in NumPy and f64, using whole matrices."""

import numpy as np


def positions(batch, queries, keys, align, query_offset, lengths, query_segments, key_segments):
    """For each batch entry: positions of queries [B, Lq] and keys [B, Lk], and which pairs share a segment."""
    if query_segments is None:
        valid = np.full(batch, keys) if lengths is None else lengths
        offset = {"top-left": np.zeros(batch), "bottom-right": valid - queries}[align]
        if query_offset is not None:
            offset = np.full(batch, query_offset)
        p = np.arange(queries)[None, :] + offset[:, None]
        j = np.broadcast_to(np.arange(keys), (batch, keys))
        together = j[:, None, :] < valid[:, None, None]
        return p, j, np.broadcast_to(together, (batch, queries, keys))
    segment = lambda offsets, n: np.searchsorted(offsets[1:], np.arange(n), side="right")
    sq, sk = segment(query_segments, queries), segment(key_segments, keys)
    count = lambda offsets: np.diff(offsets)
    offset = {
        "top-left": np.zeros(len(query_segments) - 1),
        "bottom-right": count(key_segments) - count(query_segments),
    }[align]
    if query_offset is not None:
        offset = np.full(len(query_segments) - 1, query_offset)
    p = np.arange(queries) - query_segments[sq] + offset[sq]
    j = np.arange(keys) - key_segments[sk]
    return p[None], j[None], (sq[:, None] == sk[None, :])[None]


NEEDS = ("weights", "scores", "lse", "max_score", "entropy", "distance", "received")  # the names of need that it knows


def attention(q, k, v, *, scale=None, causal=False, align="top-left", query_offset=None, window=(-1, -1), mask=None,
              bias=None, softcap=0.0, alibi=None, sinks=None, kv_lengths=None, segments_q=None, segments_k=None,
              scores_stage="bias", top_k=0, received_last=0, map_size=None):
    """q [B, H, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv]. Returns every result by the name of its option."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    (batch, heads, queries, dim), keys = q.shape, k.shape[2]
    k, v = (np.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    full = (batch, heads, queries, keys)
    p, j, allowed = positions(batch, queries, keys, align, query_offset, kv_lengths, segments_q, segments_k)
    distance = np.abs(p[:, None, :, None] - j[:, None, None, :])
    ahead = j[:, None, None, :] - p[:, None, :, None]
    allowed = np.broadcast_to(allowed[:, None], full).copy()
    if causal:
        allowed &= ahead <= 0
    left, right = window
    if left >= 0:
        allowed &= ahead >= -left
    if right >= 0:
        allowed &= ahead <= right
    if mask is not None:
        allowed &= np.broadcast_to(mask, full)

    s = (1 / np.sqrt(dim) if scale is None else scale) * (q @ k.swapaxes(-1, -2))
    stages = {"raw": s}
    if softcap > 0:
        s = softcap * np.tanh(s / softcap)
    stages["softcap"] = s
    if bias is not None:
        s = s + np.asarray(bias, np.float64)
    if alibi is not None:
        s = s - np.broadcast_to(alibi, (batch, heads))[:, :, None, None] * distance
    s = np.where(allowed, s, -np.inf)
    stages["bias"] = s

    top = s.max(axis=-1, initial=-np.inf)
    sink = np.full(heads, -np.inf) if sinks is None else np.asarray(sinks, np.float64)
    shift = np.maximum(top, sink[None, :, None])
    shift = np.where(np.isfinite(shift), shift, 0)
    total = np.exp(s - shift[..., None]).sum(-1) + np.exp(sink[None, :, None] - shift)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(total)
    w = np.where(np.isneginf(s), 0, np.exp(s - np.where(np.isfinite(lse), lse, 0)[..., None]))
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(w > 0, w * np.log(w), 0).sum(-1)
    result = {
        "out": w @ v, "weights": w, "scores": stages[scores_stage], "lse": lse, "max_score": top,
        "entropy": entropy, "distance": (w * distance).sum(-1), "received": w.sum(-2),
    }
    if top_k:
        order = np.argsort(np.where(allowed & ~np.isneginf(s), -w, np.inf), axis=-1, kind="stable")[..., :top_k]
        weight = np.take_along_axis(w, order, -1)
        there = np.take_along_axis(~np.isneginf(s), order, -1)
        pad = [(0, 0)] * 3 + [(0, top_k - order.shape[-1])]
        result["top_k_index"] = np.pad(np.where(there, order, -1), pad, constant_values=-1)
        result["top_k_weight"] = np.pad(np.where(there, weight, 0), pad)
    if received_last:
        result["received_last"] = w[:, :, -received_last:].sum(-2)
    if map_size:
        rows, columns = map_size
        r = np.arange(queries) * rows // queries
        c = np.arange(keys) * columns // keys
        result["map"] = np.zeros((batch, heads, rows, columns))
        for i in range(queries):
            for n in range(keys):
                result["map"][:, :, r[i], c[n]] += w[:, :, i, n]
    return result
