"""Measures heed's decoding speed over caches: formats, layouts, summaries, and a shared prefix, in turns.

`heed bench --cache` compares single calls with the machine's limits; this script compares them with one another.
"""

import argparse
import statistics
import time

import numpy as np

import heed

FORMATS = ("f32", "bf16", "int8", "int4", "fp8")
LAYOUTS = {
    "contiguous": dict(layout="contiguous"),
    "hnd": dict(layout="paged", page_order="hnd"),
    "nhd": dict(layout="paged", page_order="nhd"),
    "ring": dict(layout="ring", sinks=4),
}
SUMMARIES = dict(need=("lse", "entropy", "received"), top_k=8)
KV_HEADS, DIM = 8, 128


def random_rows(*shape):
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def made(sequences, rows, format, layout="paged", **options):
    room = dict(window=rows - options["sinks"]) if layout == "ring" else dict(capacity=rows)
    return heed.KvCache(batch=sequences, kv_heads=KV_HEADS, key_dim=DIM, format=format, layout=layout, **room, **options)


def medians(calls, rounds):
    """Median seconds of each call; the calls take turns."""
    seconds = {name: [] for name in calls}
    for name in list(calls) * (rounds + 1):
        begin = time.perf_counter()
        calls[name]()
        seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times[1:]) for name, times in seconds.items()}


def print_formats(arguments):
    query = random_rows(1, KV_HEADS * arguments.heads, 1, DIM)
    rows = random_rows(1, KV_HEADS, arguments.rows, DIM)
    calls = {}
    for format in FORMATS:
        for name, options in LAYOUTS.items():
            cache = made(1, arguments.rows, format, **options)
            cache.append(rows, rows)
            calls[format, name] = lambda c=cache: heed.attention(query, c, threads=arguments.threads)
            if name == "contiguous":
                calls[format, "summaries"] = lambda c=cache: heed.attention(
                    query, c, threads=arguments.threads, **SUMMARIES)
    times = medians(calls, arguments.rounds)
    print("| format | ms | speed, bf16 = 1 | hnd | nhd | ring | summaries |\n" + "| --- " * 7 + "|")
    for format in FORMATS:
        alone = times[format, "contiguous"]
        layouts = [alone / times[format, name] for name in ("hnd", "nhd", "ring")]
        figures = [times["bf16", "contiguous"] / alone, *layouts, times[format, "summaries"] / alone]
        print(f"| {format} | {1e3 * alone:.2f} | " + " | ".join(f"{x:.2f}" for x in figures) + " |")


def print_prefix(arguments, sequences=16, prefix=8192):
    query = random_rows(sequences, KV_HEADS * arguments.heads, 1, DIM)
    rows = random_rows(1, KV_HEADS, prefix, DIM)
    for format in ("f32", "bf16"):
        shared = made(1, sequences * (prefix + 16), format)
        shared.append(rows, rows)
        for _ in range(sequences - 1):
            shared.fork(0)
        own = made(sequences, sequences * (prefix + 16), format)
        for sequence in range(sequences):
            own.append(rows, rows, offsets=[0, prefix], sequences=[sequence])
        times = medians({name: lambda c=cache: heed.attention(query, c, threads=arguments.threads)
                         for name, cache in (("shared", shared), ("own", own))}, arguments.rounds)
        print(f"{format}: {sequences} sequences, {prefix} rows each, in {1e3 * times['own']:.1f} ms; the rows shared in "
              f"{1e3 * times['shared']:.1f} ms, {times['own'] / times['shared']:.2f} times as fast")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--heads", type=int, default=1, help="query heads a key head (1)")
    parser.add_argument("--rows", type=int, default=32768, help="of a sequence (32768)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    print_formats(arguments)
    print_prefix(arguments)


if __name__ == "__main__":
    main()
