"""Compares heed under masks with PyTorch's FlexAttention (compiled, forward) in one run and prints a table.

Both get PyTorch's BlockMask for three patterns. The last column is heed with the mask's named form (heed.masks). They
take turns in each round; the table shows medians over the rounds. Outputs that differ are an error.

    PYTHONPATH=build/release/python .venv/bin/python bench/peers/masks.py
"""

import argparse
import statistics
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.attention.flex_attention import flex_attention as flex

import heed.torch

DOCUMENT = 1024
WINDOW, SINKS = 1024, 4


def patterns(length):
    document = torch.arange(length) // DOCUMENT
    return {
        "causal": (lambda b, h, q, k: q >= k, heed.masks.sliding_window(-1, 0, length, length)),
        "documents, causal": (
            lambda b, h, q, k: (q >= k) & (document[q] == document[k]),
            heed.masks.documents([DOCUMENT] * (length // DOCUMENT), causal=True),
        ),
        "sinks and window": (
            lambda b, h, q, k: (q >= k) & ((q - k < WINDOW) | (k < SINKS)),
            heed.masks.sinks_and_window(SINKS, WINDOW, length, length),
        ),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, arguments.heads, arguments.length, arguments.dim) for _ in range(3))
    compiled = torch.compile(flex, dynamic=False)
    print(f"PyTorch {torch.__version__}, heed {heed.__version__} ({heed.info()['isa']}), "
          f"{heed.info()['processor']}, {arguments.threads} threads; 1 ({arguments.heads}) x {arguments.length} x "
          f"{arguments.dim}, f32, milliseconds\n")
    print("| pattern | FlexAttention | heed, BlockMask | heed, by name | FlexAttention / heed |\n|" + " --- |" * 5)
    for name, (mask_mod, named) in patterns(arguments.length).items():
        block_mask = create_block_mask(mask_mod, None, None, arguments.length, arguments.length, "cpu")
        calls = [
            lambda mask=block_mask: compiled(q, k, v, block_mask=mask),
            lambda mask=block_mask: heed.torch.flex_attention(q, k, v, block_mask=mask),
            lambda mask=named: heed.torch.flex_attention(q, k, v, block_mask=mask),
        ]
        with torch.no_grad():
            outputs = [call() for call in calls]  # compiles the kernels and converts the mask
            for output in outputs[1:]:
                torch.testing.assert_close(output, outputs[0], atol=2e-5, rtol=1e-4)
            times = [[] for _ in calls]
            for _ in range(arguments.rounds):
                for call, taken in zip(calls, times):
                    begin = time.perf_counter()
                    call()
                    taken.append(time.perf_counter() - begin)
        theirs, blocks, ours = (1e3 * statistics.median(taken) for taken in times)
        print(f"| {name} | {theirs:.1f} | {blocks:.1f} | {ours:.1f} | {theirs / blocks:.2f} x |", flush=True)


if __name__ == "__main__":
    main()
