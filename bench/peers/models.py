"""Compares heed.Model with transformers, in turns in one run, and prints a Markdown table.

The models have MiniLM's and GPT-2's size, random weights and dtype f32. Two calls of heed are timed: a plain forward
pass, and the table of all heads that `heed look --model` prints. Both are compared with transformers' sdpa, which
returns no weights. The table is also compared with eager and output_attentions=True, which returns them. A factor is
the median over the rounds of transformers' time / heed's time.

    PYTHONPATH=build/release/python .venv/bin/python bench/peers/models.py --threads 1,2

`--linear build/bench/bench/linear` also compares products with weights with torch's. On a shared machine, use `--cpu`
with one thread: it measures CPU time instead of wall time.
"""

import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import transformers

import heed

SIZES = {
    "MiniLM": (transformers.BertModel, transformers.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                                                               intermediate_size=1536, max_position_embeddings=4096)),
    "GPT-2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(n_positions=4096)),
}
SHAPES = [(384, 1536), (768, 3072), (3072, 768), (2048, 8192)]
ROWS = [1, 8, 64, 512, 2048]


def seconds(call, clock=time.perf_counter):
    begin = clock()
    call()
    return clock() - begin


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    fields = dict([part.strip() for part in line.split(":", 1)] for line in reversed(lines) if ":" in line)
    return f"{fields.get('model name', 'unknown')}, family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}"


def print_in_turns(place, calls, pairs, arguments):
    """Runs each call once per round, after a warm-up round; prints a line for each pair (heed's, transformers')."""
    clock = time.process_time if arguments.cpu else time.perf_counter
    rounds = [{name: seconds(call, clock) for name, call in calls.items()} for _ in range(arguments.rounds + 1)][1:]
    for own, other in pairs:
        ours, theirs = (statistics.median(one[name] for one in rounds) * 1e3 for name in (own, other))
        factor = statistics.median(one[other] / one[own] for one in rounds)
        print(f"| {place} | {own} | {ours:.0f} | {other} | {theirs:.0f} | {factor:.2f} |", flush=True)


def models(arguments):
    print(f"{processor()}; torch {torch.__version__}, transformers {transformers.__version__}\n")
    print("| model | tokens | threads | heed | ms | transformers | ms | factor |\n" + "| --- " * 8 + "|", flush=True)
    for name in arguments.models:
        kind, config = SIZES[name]
        theirs = kind(config).eval()
        body = getattr(theirs, "transformer", theirs)
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            ours = heed.load_model(folder)
        for length in arguments.tokens:
            for threads in arguments.threads:
                measure(f"{name} | {length} | {threads}", ours, body, length, threads, arguments)


def measure(place, ours, body, length, threads, arguments):
    ids = torch.randint(0, ours.info["vocabulary"], (length,))
    torch.set_num_threads(threads)

    def run(implementation, **options):
        body.set_attn_implementation(implementation)
        with torch.no_grad():
            body(ids[None], **options)

    calls = {"forward": lambda: ours.hidden_states(ids, threads=threads),
             "table of heads": lambda: ours.look(ids, top_k=0, keep=False, threads=threads),
             "sdpa": lambda: run("sdpa")}
    pairs = [("forward", "sdpa"), ("table of heads", "sdpa")]
    if length >= arguments.eager_from:
        calls["eager, weights"] = lambda: run("eager", output_attentions=True)
        pairs.append(("table of heads", "eager, weights"))
    print_in_turns(place, calls, pairs, arguments)


def products(arguments):
    print("\n| inputs, outputs | rows | dtype | threads | heed, ms | torch f32, ms | factor |\n" + "| --- " * 7 + "|", flush=True)
    for inputs, outputs in SHAPES:
        weight, bias = torch.randn(outputs, inputs), torch.randn(outputs)
        for rows in ROWS:
            x = torch.randn(rows, inputs)
            for dtype in ("f32", "bf16", "f16"):
                for threads in arguments.threads:
                    torch.set_num_threads(threads)
                    command = [arguments.linear, *map(str, (rows, inputs, outputs, dtype, threads, arguments.seconds))]
                    ran = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                    own = statistics.median(map(float, ran.split()))
                    count = max(3, round(arguments.seconds / own))
                    other = statistics.median(
                        seconds(lambda: torch.nn.functional.linear(x, weight, bias)) for _ in range(count))
                    print(f"| {inputs}, {outputs} | {rows} | {dtype} | {threads} | {own * 1e3:.3f} | {other * 1e3:.3f} "
                          f"| {other / own:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    whole_numbers = lambda text: [int(n) for n in text.split(",")]  # noqa: E731
    parser.add_argument("--threads", type=whole_numbers, default=[1, 2], help="1,2 by default")
    parser.add_argument("--tokens", type=whole_numbers, default=[512, 2048], help="512,2048 by default")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(SIZES), help="MiniLM,GPT-2 by default")
    parser.add_argument("--eager-from", type=int, default=2048, help="tokens from which eager is measured, too (2048)")
    parser.add_argument("--cpu", action="store_true", help="the process's CPU time in place of the clock's")
    parser.add_argument("--rounds", type=int, default=5, help="5 by default")
    parser.add_argument("--linear", help="the program `linear` of a build with HEED_BUILD_BENCHMARKS")
    parser.add_argument("--seconds", type=float, default=0.2, help="of calls of each product (0.2)")
    arguments = parser.parse_args()
    models(arguments)
    if arguments.linear:
        products(arguments)


if __name__ == "__main__":
    main()
