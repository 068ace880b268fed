"""Speed of a decay beside plain attention, on one thread.

The three calls take turns, and the best time of each counts. The gates are so near 1 that no key is skipped.

    .venv/bin/python bench/python/decay.py --head-dim 64
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
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--repeat", type=int, default=30, help="rounds (30)")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    rng = np.random.default_rng(0)
    shape = (1, arguments.heads, arguments.length)
    query, key, value = rng.standard_normal((3, *shape, arguments.head_dim), dtype=np.float32)
    decay = np.cumsum(np.log(rng.uniform(0.999, 1, shape)), axis=-1)
    calls = {"plain": None, "decay, f32": decay.astype(np.float32), "decay, f64": decay}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(arguments.repeat):
        for name, c in calls.items():
            begin = time.perf_counter()
            heed.attention(query, key, value, causal=arguments.causal, decay=c, threads=1)
            best[name] = min(best[name], time.perf_counter() - begin)
    for name, seconds in best.items():
        print(f"{name:12} {1e3 * seconds:8.2f} ms, {best['plain'] / seconds:.2f} of plain")


if __name__ == "__main__":
    main()
