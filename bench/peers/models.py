"""Measures heed.Model beside transformers with sdpa, in turns, in one run: forward passes in f32 of models of
MiniLM's and GPT-2's size with random weights. Prints a table in Markdown; the factor is transformers / heed.

    PYTHONPATH=build/release/python .venv/bin/python bench/peers/models.py --threads 1,2

`--linear build/bench/bench/linear` also measures products with weights beside torch's. On a machine that others
use, look at the factors, not at the times.
"""

import argparse
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


def seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def compare(rounds, ours, theirs):
    """Medians of calls in turns; the first round warms up."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(rounds + 1)][1:]
    return [statistics.median(times) for times in zip(*pairs, strict=True)]


def models(arguments):
    print("| model | tokens | threads | heed, ms | transformers, ms | factor |\n" + "| --- " * 6 + "|", flush=True)
    for name, (kind, config) in SIZES.items():
        config._attn_implementation = "sdpa"
        theirs = kind(config).eval()
        body = getattr(theirs, "transformer", theirs)
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            ours = heed.load_model(folder)
            for length in arguments.tokens:
                ids = torch.randint(0, config.vocab_size, (length,))
                for threads in arguments.threads:
                    torch.set_num_threads(threads)
                    with torch.no_grad():
                        own, other = compare(arguments.rounds, lambda: ours.hidden_states(ids, threads=threads),
                                             lambda: body(ids[None]))
                    print(f"| {name} | {length} | {threads} | {own * 1e3:.0f} | {other * 1e3:.0f} | {other / own:.2f} |",
                          flush=True)


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
    parser.add_argument("--rounds", type=int, default=5, help="5 by default")
    parser.add_argument("--linear", help="the program `linear` of a build with HEED_BUILD_BENCHMARKS")
    parser.add_argument("--seconds", type=float, default=0.2, help="of calls of each product (0.2)")
    arguments = parser.parse_args()
    models(arguments)
    if arguments.linear:
        products(arguments)


if __name__ == "__main__":
    main()
