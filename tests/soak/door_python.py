"""Door Python: NumPy arrays with any strides, and several threads that call at once."""

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


def one(rng, counts, faults):
    try:
        call = Call(rng)
        need = [name for name in (*ROWS, "weights", "received") if rng.random() < 0.5]
        result = heed.attention(*(view(rng, x) for x in (call.query, call.key, call.value)), need=need, top_k=call.top_k,
                                received_last=call.received_last, threads=int(rng.integers(1, 4)), **call.in_python())
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
