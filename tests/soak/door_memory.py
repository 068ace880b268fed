"""Door memory: calls under a random limit of address space. The answer is right, or one sentence says that memory ran
out; in Python it is a MemoryError."""

import functools
import pickle
import resource
import subprocess
import sys

import numpy as np
from calls import Call
from door_command import WANTED, results, words_of
from programs import heed, quiet_environment

STEP = 4 << 20

# Limits itself to what it has and `room` bytes more, once heed is loaded and its threads run.
IN_PYTHON = """
import pickle, resource, sys
import numpy as np, heed
q, k, v, options, room, threads, kind = pickle.load(sys.stdin.buffer)
def attention():
    result = heed.attention(q, k, v, need=["weights", "lse"], threads=threads, **options)
    return result.output, result.weights, result.lse
def gradients():
    result = heed.attention(q, k, v, need="lse", threads=threads, **options)
    found = heed.attention_backward(q, k, v, result.output, result.lse, result.output, threads=threads, **options)
    return found.dq, found.dk, found.dv
def cache():
    rows = heed.KvCache(kv_heads=k.shape[1], key_dim=k.shape[3], value_dim=v.shape[3], capacity=8, format="f32", layout="paged")
    rows.reserve(k.shape[2] + 16)
    for at in range(0, k.shape[2], 7):
        rows.append(k[:, :, at:at + 7].astype(np.float32), v[:, :, at:at + 7].astype(np.float32))
    return heed.attention(q[:, :, :1].astype(np.float32), rows, need="weights").weights, rows.keys(0)
def model():
    report = heed.load_model("induction").look("to be or not to be or")
    return report.weights, report.summaries[0]["entropy"]
work = globals()[kind]
heed.attention(q[:, :, :1], k, v, threads=threads)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + room, resource.RLIM_INFINITY))
try:
    found = [np.array(x) for x in work()]
except MemoryError:
    found = None
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
pickle.dump((found, [np.array(x) for x in work()]), sys.stdout.buffer)  # again, as if nothing had happened
"""
KINDS = ["attention", "attention", "gradients", "cache", "model"]


@functools.cache
def least(folder):
    """Roughly the least address space in which the command starts."""
    low, high = 0, 4 << 30
    while high - low > STEP:
        middle = (low + high) // 2
        low, high = (low, middle) if heed(folder, "info", limits=[(resource.RLIMIT_AS, middle)]).code == 0 else (middle, high)
    return high


def by_command(rng, folder):
    call = Call(rng, dtypes=("f32", "f64"), lengths=(30, 400, 900), packed=False, batches=(1,))
    words = words_of(rng, call, folder)
    limit = least(folder) + int(rng.integers(0, 40 << 20))
    ended = heed(folder, "attend", *words, *WANTED, "--threads", int(rng.integers(1, 5)), limits=[(resource.RLIMIT_AS, limit)])
    if ended.code == 0:
        return {"fitted": 1, **call.check(results(folder))}
    assert ended.is_refusal() and "memory" in ended.errors, f"with {limit >> 20} MB: {ended}"
    assert not list(folder.glob("got-*")), "a call without memory wrote a file"
    return {"out of memory": 1}


def in_python(rng, folder):
    call = Call(rng, dtypes=("f32", "f64"), lengths=(30, 200, 500), packed=False, batches=(1,))
    kind = KINDS[int(rng.integers(len(KINDS)))]
    given = call.query, call.key, call.value, call.in_python(), int(rng.integers(0, 8 << 20)), int(rng.integers(1, 4)), kind
    done = subprocess.run([sys.executable, "-c", IN_PYTHON], input=pickle.dumps(given), capture_output=True,
                          env=quiet_environment())
    assert done.returncode == 0, f"{kind}: {done.returncode}: {done.stderr.decode()[-600:]}; {call}"
    found, again = pickle.loads(done.stdout)
    if kind == "attention":
        call.check(dict(zip(("out", "weights", "lse"), again, strict=True)))
    if found is None:
        return {f"MemoryError, {kind}": 1}
    assert all(np.array_equal(x, y) for x, y in zip(found, again, strict=True)), f"{kind}: other bits with little memory; {call}"
    return {"fitted": 1}


def call(rng, folder):
    return [by_command, in_python][int(rng.integers(2))](rng, folder)
