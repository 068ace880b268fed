"""`heed look --serve` under 100 clients. Every answer is compared with f64; memory stays flat, and when the clients have
left, so have their threads and descriptors."""

import random
import threading
import time

import numpy as np
from calls import attention_oracle
from measure import Watch, now
from programs import heed, right
from serving import Served

CLIENTS, ROWS, KEYS, HEADS, DIM = 100, 1500, 1400, 4, 16
# f32 roundings of 16 products and 1,400 exponentials; weights are at most 1, and around 1/700.
TOLERANCE = 1e-6


def client(served, weights, seed, until, counts, faults):
    draw = random.Random(seed)
    while time.time() < until and not faults:
        head, row, key = draw.randrange(HEADS), draw.randrange(ROWS - 60), draw.randrange(KEYS - 60)
        rows, keys = draw.randrange(1, 60), draw.randrange(1, 60)
        try:
            got = served.tile(head, (row, row + rows), (key, key + keys))
        except OSError as fault:
            faults.append(f"a client was not answered: {fault!r}")
            return
        wanted = weights[head, row:row + rows, key:key + keys]
        seen = np.isfinite(got)
        if not np.array_equal(seen, wanted > 0) or not (np.abs(got - wanted)[seen] <= TOLERANCE).all():
            faults.append(f"tile of head {head}, rows {row}:{row + rows}, keys {key}:{key + keys} is wrong (client {seed})")
        counts[seed] += 1


def run(minutes, folder):
    rng = np.random.default_rng(1)
    q, k = (rng.standard_normal((1, HEADS, count, DIM), dtype=np.float32) for count in (ROWS, KEYS))
    for name, x in (("q", q), ("k", k), ("v", k)):
        np.save(folder / f"{name}.npy", x)
    given = ["--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--causal"]
    right(heed(folder, "look", *given, "--save", "doc.safetensors"))
    weights = attention_oracle.attention(q, k, k, causal=True)["weights"][0]
    with Served(folder, "doc.safetensors") as served:
        served.tile(0, (0, 9), (0, 9))
        before = now(served.process.pid)
        counts, faults, until = [0] * CLIENTS, [], time.time() + 60 * minutes
        clients = [threading.Thread(target=client, args=(served, weights, seed, until, counts, faults))
                   for seed in range(CLIENTS)]
        with Watch(served.process.pid, max(0.2, min(5, 60 * minutes / 40))) as watch:
            for one in clients:
                one.start()
            for one in clients:
                one.join()
        assert not faults, faults[0]
        for _ in range(100):  # a connection may be closed a moment after its answer
            after = now(served.process.pid)
            if after[1:] <= before[1:]:
                break
            time.sleep(0.1)
        assert after[1] <= before[1] and after[2] <= before[2], f"(MB, threads, descriptors) were {before} and are {after}"
        assert served.end() == ("", 0), "the server did not end cleanly"
    return {"clients": CLIENTS, "minutes": minutes, "answers": sum(counts), "least answers of a client": min(counts),
            **watch.check_flat(), "threads before and after": [before[1], after[1]],
            "descriptors before and after": [before[2], after[2]]}
