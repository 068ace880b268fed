"""Compares the Python package with PyTorch, ONNX Runtime and NumPy in one run and prints a Markdown table.

In each round, every library runs each shape in turn. The table shows the median over the rounds of each round's median.
Each library runs in its own process, with the same number of threads. Its output is first checked against f64. --plot
also saves a plot.

    python3 -m venv .venv-peers && .venv-peers/bin/pip install -r bench/peers/requirements.txt . matplotlib
    .venv-peers/bin/python bench/python/compare.py --plot compare.png

On a shared machine, trust the factors rather than the times.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

from peers import PEERS, Peer  # noqa: E402
from shapes import Shape, random_inputs, reference  # noqa: E402

SHAPES = [
    Shape(12, 12, 128, 128, 64),
    Shape(12, 12, 512, 512, 64),
    Shape(16, 16, 2048, 2048, 64),
    Shape(16, 16, 2048, 2048, 64, causal=True),
    Shape(32, 8, 1, 8192, 128),
]
TOLERANCE = 1e-4  # output tolerance against f64: f32 sums of up to 8192 terms
TINY = Shape(2, 2, 6, 6, 16)  # call overhead dominates


class Heed:
    """heed.attention, plain or with a summary of the weights."""

    def __init__(self, summary, threads):
        self.options = {"threads": threads}
        if summary:
            self.options |= {"need": ("lse", "entropy"), "top_k": 8}

    def prepare(self, shape):
        import heed

        query, pairs = random_inputs(shape)

        def call(i):
            key, value = pairs[i % len(pairs)]
            return heed.attention(query, key, value, causal=shape.causal, **self.options)

        return call, lambda output: getattr(output, "output", output)


class NumPy:
    """Attention written by hand."""

    def __init__(self, _, threads):
        pass

    def prepare(self, shape):
        import numpy

        query, pairs = random_inputs(shape)
        query = query / numpy.float32(shape.head_dim**0.5)
        group = shape.heads // shape.kv_heads
        query = query.reshape(1, shape.kv_heads, group, shape.query_length, shape.head_dim)
        forbidden = numpy.triu(numpy.full((shape.query_length, shape.key_length), -numpy.inf, numpy.float32), 1)

        def call(i):
            key, value = (x[:, :, None] for x in pairs[i % len(pairs)])
            weights = query @ key.swapaxes(-1, -2)
            if shape.causal:
                weights += forbidden
            weights -= weights.max(-1, keepdims=True)
            numpy.exp(weights, out=weights)
            weights /= weights.sum(-1, keepdims=True)
            return (weights @ value).reshape(1, shape.heads, shape.query_length, shape.head_dim)

        return call, lambda output: output


COLUMNS = {
    "heed": (Heed, False),
    "heed + top-8, entropy, lse": (Heed, True),
    "PyTorch flash": PEERS["PyTorch flash"],
    "PyTorch math": PEERS["PyTorch math"],
    "ONNX Runtime `MultiHeadAttention`": PEERS["ONNX Runtime `MultiHeadAttention`"],
    "ONNX Runtime `Attention` 23": PEERS["ONNX Runtime `Attention` 23"],
    "NumPy": (NumPy, None),
}


def measure(shape, arguments):
    """{name: seconds} of all libraries that support the shape, and the reasons of the others."""
    peers, reasons = {}, {}
    for name, (kind, argument) in COLUMNS.items():
        peer = Peer(kind, argument, arguments.threads)
        output, reason = peer.ask("prepare", shape)
        if output is None:
            peer.stop()
            reasons[name] = reason
            continue
        rows, expected = reference(shape)
        worst = abs(output[0][:, rows] - expected).max()
        if not worst <= TOLERANCE:
            raise SystemExit(f"{name} at {shape}: the output is off by {worst:.2g}")
        peers[name] = peer
    medians = {name: [] for name in peers}
    for _ in range(arguments.rounds):
        for name, peer in peers.items():
            medians[name].append(statistics.median(peer.ask("time", arguments.seconds, 100_000)))
    for peer in peers.values():
        peer.stop()
    return {name: statistics.median(times) for name, times in medians.items()}, reasons


def describe(threads):
    import heed
    import numpy
    import onnxruntime
    import torch

    info = heed.info()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.date.today()}, {info['processor']}, {info['isa']}, {threads} threads (load before the run: {load}). "
        f"heed {info['version']} ({info['compiler']}), PyTorch {torch.__version__}, ONNX Runtime "
        f"{onnxruntime.__version__}, NumPy {numpy.__version__}. f32, H, Lq, Lk, D; milliseconds."
    )


def milliseconds(seconds):
    if seconds is None:
        return "–"
    value = seconds * 1e3
    return f"{value:.{4 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def overhead(command, arguments):
    """The overhead of Python: heed.attention beside the same call in C++, timed by `heed bench`."""
    times = {"heed from Python": [], "heed from C++": []}
    peer = Peer(Heed, False, 1)
    peer.ask("prepare", TINY)
    shape = f"1,{TINY.heads},{TINY.kv_heads},{TINY.query_length},{TINY.key_length},{TINY.head_dim}"
    bench = [command, "bench", "--json", "--shape", shape, "--threads", "1", "--repeat", "10000"]
    for _ in range(arguments.rounds):
        times["heed from Python"].append(statistics.median(peer.ask("time", arguments.seconds, 100_000)))
        ran = subprocess.run(bench, check=True, capture_output=True, text=True)
        times["heed from C++"].append(json.loads(ran.stdout)[0]["seconds"])
    peer.stop()
    python, native = (statistics.median(values) * 1e6 for values in times.values())
    print(f"\nA call of {TINY}: {python:.2f} µs from Python, {native:.2f} µs from C++; Python adds {python - native:.2f} µs.")


def plot(results, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(2.6 * len(results) + 2, 3.2), layout="constrained")
    for axis, (shape, seconds) in zip(axes if len(results) > 1 else [axes], results.items()):
        names = list(reversed(COLUMNS))
        values = [seconds.get(name, float("nan")) * 1e3 for name in names]
        axis.barh(names, values, color=["#c2410c" if name.startswith("heed") else "#94a3b8" for name in names])
        axis.set_xscale("log")
        axis.set_title(shape, fontsize=9)
        axis.set_xlabel("ms", fontsize=8)
        axis.tick_params(labelsize=7)
        if axis is not (axes[0] if len(results) > 1 else axes):
            axis.set_yticklabels([])
    figure.savefig(path, dpi=120)
    print(f"\nThe plot is in {path}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="all by default")
    parser.add_argument("--only", default="", help="only shapes whose name has this in it")
    parser.add_argument("--rounds", type=int, default=5, help="5 by default")
    parser.add_argument("--seconds", type=float, default=0.2, help="of calls of each library in each round (0.2)")
    parser.add_argument("--plot", type=pathlib.Path, help="also save a plot there (needs matplotlib)")
    parser.add_argument("--heed", type=pathlib.Path, default=ROOT / "build" / "release" / "cli" / "heed",
                        help="the command, which times calls from C++")
    arguments = parser.parse_args()
    if arguments.plot and not importlib.util.find_spec("matplotlib"):
        parser.error("--plot needs matplotlib, which is not installed")
    print(describe(arguments.threads) + "\n")
    print("| H, Lq, Lk, D | " + " | ".join(COLUMNS) + " | heed / best peer |")
    print("|" + " --- |" * (len(COLUMNS) + 2), flush=True)
    results, missing = {}, {}
    for shape in SHAPES:
        if arguments.only not in str(shape):
            continue
        seconds, reasons = measure(shape, arguments)
        results[str(shape)] = seconds
        missing |= {(name, reason): shape for name, reason in reasons.items()}
        peers = [time for name, time in seconds.items() if not name.startswith("heed")]
        cells = " | ".join(milliseconds(seconds.get(name)) for name in COLUMNS)
        print(f"| {shape} | {cells} | {min(peers) / seconds['heed']:.2f} x |", flush=True)
    for (name, reason), shape in missing.items():
        print(f"\n{name}, {shape}: {reason}")
    if arguments.heed.exists():
        overhead(str(arguments.heed), arguments)
    if results and arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
