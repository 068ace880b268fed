"""Door forks: processes that fork while heed's threads are idle or at work. Each child and the parent get the same bits."""

import hashlib
import os
import threading

import numpy as np
from calls import Call

import heed


def digest(arrays, options, threads):
    result = heed.attention(*arrays, need=["weights", "received"], threads=threads, **options)
    found = (result.output, result.weights, result.received)
    return hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in found)).digest()


def child(work):
    """Forks; the child writes what work() returns. Returns the child and the end to read from."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, work())
        finally:
            os._exit(0)
    os.close(writing)
    return pid, reading


def call(rng, folder):
    call = Call(rng, lengths=(33, 130, 300), batches=(1, 2))
    arrays, options = (call.query, call.key, call.value), call.in_python()
    wanted = digest(arrays, options, 3)
    call.check({"out": np.asarray(heed.attention(*arrays, **options))})
    busy, faults = threading.Event(), []

    def work():
        while not busy.is_set():
            if digest(arrays, options, 2) != wanted:
                faults.append("the parent's bits differ")

    others = [threading.Thread(target=work) for _ in range(int(rng.integers(0, 3)))]
    for other in others:
        other.start()
    children = [child(lambda: digest(arrays, options, int(threads))) for threads in rng.integers(1, 5, 3)]
    children.append(child(lambda: grandchild(arrays, options)))
    busy.set()
    for pid, reading in children:
        with os.fdopen(reading, "rb") as pipe:
            got = pipe.read()
        assert os.waitpid(pid, 0)[1] == 0, "a child ended badly"
        assert got == wanted, f"a child has other bits: {call}"
    for other in others:
        other.join()
    assert not faults, faults[0]
    return {"children": len(children)}


def grandchild(arrays, options):
    pid, reading = child(lambda: digest(arrays, options, 2))
    with os.fdopen(reading, "rb") as pipe:
        got = pipe.read()
    os.waitpid(pid, 0)
    return got
