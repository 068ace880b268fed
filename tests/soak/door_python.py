"""Door Python: NumPy arrays with any strides, masks in O(L) memory, and several threads that call at once."""

import threading

import numpy as np
from calls import ROWS, Call

import heed


def view(rng, x):
    """The same numbers at other strides."""
    order = rng.permutation(x.ndim)
    x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    if rng.random() < 0.3:
        wide = np.empty((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
        wide[..., ::2] = x
        x = wide[..., ::2]
    if rng.random() < 0.2:
        x = np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1]
    return x


def sparse_mask(rng, queries, keys):
    """A mask without a matrix, and the same as a matrix of bools."""
    i, j = np.arange(queries)[:, None], np.arange(keys)[None, :]
    kind = ["rows", "columns", "slices", "blocks", "expression"][int(rng.integers(5))]
    if kind == "rows":
        ends = np.sort(rng.integers(0, keys + 1, (queries, 2)), axis=1)[:, None]
        return heed.SparseMask.rows(ends, keys), (ends[:, 0, :1] <= j) & (j < ends[:, 0, 1:])
    if kind == "columns":
        begin = rng.integers(0, queries + 1, (keys, 1))
        return heed.SparseMask.columns(begin, queries), i < begin[:, 0][None, :]
    if kind == "slices":
        slices, dense = [], np.zeros((queries, keys), bool)
        for _ in range(int(rng.integers(1, 5))):
            (a, b), (c, d) = (sorted(rng.integers(0, size + 1, 2).tolist()) for size in (queries, keys))
            shape = ["full", "causal", "inverse_causal"][int(rng.integers(3))]
            inside = (a <= i) & (i < b) & (c <= j) & (j < d)
            inside &= {"full": True, "causal": j - d <= i - b, "inverse_causal": j - c >= i - a}[shape]
            slices.append(((a, b), (c, d), shape))
            dense |= inside
        return heed.SparseMask.slices(slices, queries, keys), dense
    if kind == "blocks":
        tall, wide = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        allowed = rng.random((-(-queries // tall), -(-keys // wide))) < 0.6
        offsets = np.concatenate([[0], np.cumsum(allowed.sum(1))])
        mask = heed.SparseMask.blocks(offsets, np.nonzero(allowed)[1], block_size=(tall, wide), queries=queries, keys=keys)
        return mask, allowed[i // tall, j // wide]
    step, far = int(rng.integers(1, 5)), int(rng.integers(1, 20))
    dense = (np.abs(i - j) < far) | (j % step == 0)
    return heed.SparseMask.expression(f"abs(i - j) < {far} || j % {step} == 0", queries, keys), dense


def one(rng, counts, faults):
    try:
        call = Call(rng)
        given = call.in_python()
        if rng.random() < 0.3:
            given["sparse_mask"], dense = sparse_mask(rng, call.query.shape[2], call.key.shape[2])
            call.options["mask"] = dense & call.options.get("mask", True)
        need = [name for name in (*ROWS, "weights", "received") if rng.random() < 0.5]
        result = heed.attention(*(view(rng, x) for x in (call.query, call.key, call.value)), need=need, top_k=call.top_k,
                                received_last=call.received_last, threads=int(rng.integers(1, 4)), **given)
        got = {"out": result.output, "top_k_weight": result.top_k_weight, "received_last": result.received_last,
               **{name: getattr(result, name) for name in need}}
        for name, count in call.check(got).items():
            counts[name] = counts.get(name, 0) + count
    except BaseException as fault:  # noqa: BLE001: told by the caller's thread
        faults.append(fault)


def call(rng, folder):
    counts, faults = {}, []
    several = 1 if rng.random() < 0.6 else 4
    threads = [threading.Thread(target=one, args=(child, counts, faults)) for child in rng.spawn(several)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return counts
