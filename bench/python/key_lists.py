"""Speed of lists of keys, gathered and by the mask, forward and backward.

Each query lists keys at random. The calls take turns, and the best time of each counts.

    .venv/bin/python bench/python/key_lists.py --kv-heads 1 --listed 256
"""

import argparse
import pathlib
import sys
import time

import numpy as np

try:
    import heed
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "python"))
    import heed


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=1)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--keys", type=int, default=8192)
    parser.add_argument("--listed", type=int, default=256, help="keys of a list (256)")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5, help="rounds (5)")
    return parser.parse_args()


def main():
    a = parse_arguments()
    rng = np.random.default_rng(0)
    query, grad = rng.standard_normal((2, 1, a.heads, a.queries, a.head_dim), dtype=np.float32)
    key, value = rng.standard_normal((2, 1, a.kv_heads, a.keys, a.head_dim), dtype=np.float32)
    lists = np.stack([rng.permutation(a.keys)[: a.listed] for _ in range(a.queries)]).astype(np.int32)
    best = {}
    for _ in range(a.repeat):
        for gather in ("always", "never"):
            options = {"mask": heed.SparseMask.key_lists(lists, a.keys, gather=gather), "threads": a.threads}
            begin = time.perf_counter()
            result = heed.attention(query, key, value, need="lse", **options)
            middle = time.perf_counter()
            heed.attention_backward(query, key, value, result.output, result.lse, grad, **options)
            end = time.perf_counter()
            for name, seconds in (("forward", middle - begin), ("backward", end - middle)):
                best[name, gather] = min(best.get((name, gather), seconds), seconds)
    for name in ("forward", "backward"):
        gathered, masked = best[name, "always"], best[name, "never"]
        print(f"{name:8} gathered {1e3 * gathered:8.1f} ms, by the mask {1e3 * masked:8.1f} ms, {masked / gathered:.1f} x")


if __name__ == "__main__":
    main()
