"""Measures a training step through PyTorch's autograd, heed.torch beside PyTorch's kernels; prints a Markdown table.

A step is the forward pass and the gradients of query, key and value. The kernels take turns in one process.

    python3 -m venv .venv-peers && .venv-peers/bin/pip install -r bench/peers/requirements.txt .
    .venv-peers/bin/python bench/python/training.py

Times are CPU time of all threads, so other processes on the machine matter less. All gradients are first checked
against PyTorch's math kernel in f64. `--dtype bf16` measures bf16. `--without-math` skips the slow math kernel.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # a spinning thread pool would be counted while heed runs

SHAPES = [(8, 2048, 64, False), (8, 2048, 64, True), (4, 4096, 128, False), (4, 4096, 128, True)]
# Gradient tolerance against f64: f32 sums of a few hundred terms near 1; for bf16, weights, their gradients and the
# result are rounded.
TOLERANCE = {"f32": 1e-4, "bf16": 0.05}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="1 by default")
    parser.add_argument("--dtype", choices=list(TOLERANCE), default="f32", help="f32 by default")
    parser.add_argument("--without-math", action="store_true", help="leave out PyTorch's math kernel")
    parser.add_argument("--rounds", type=int, default=5, help="5 by default")
    return parser.parse_args()


def kernels(with_math):
    import heed.torch
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def forced(backend):
        def attend(*inputs, **options):
            with sdpa_kernel([backend]):
                return torch.nn.functional.scaled_dot_product_attention(*inputs, **options)

        return attend

    all_kernels = {
        "heed": heed.torch.scaled_dot_product_attention,
        "PyTorch flash": forced(SDPBackend.FLASH_ATTENTION),
    }
    if with_math:
        all_kernels["PyTorch math"] = forced(SDPBackend.MATH)
    return all_kernels


def step(attend, inputs, slope, causal):
    for tensor in inputs:
        tensor.grad = None
    begin = time.process_time()
    attend(*inputs, is_causal=causal).backward(slope)
    return time.process_time() - begin


def tensors(dtype, *shape):
    import torch

    type_of = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    inputs = [torch.randn(*shape).to(type_of).requires_grad_() for _ in range(3)]
    return inputs, torch.randn(*shape).to(type_of)


def check(all_kernels, causal, dtype):
    inputs, slope = tensors(dtype, 1, 2, 300, 64)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    step(kernels(True)["PyTorch math"], exact, slope.double(), causal)
    for name, attend in all_kernels.items():
        step(attend, inputs, slope, causal)
        worst = max((got.grad.double() - want.grad).abs().max().item() for got, want in zip(inputs, exact))
        if not worst <= TOLERANCE[dtype]:
            raise SystemExit(f"{name}: a gradient is off by {worst:.2g}")


def main():
    arguments = parse_arguments()
    import torch

    torch.set_num_threads(arguments.threads)
    all_kernels = kernels(not arguments.without_math)
    print("| H, L, D | " + " | ".join(f"{name}, ms" for name in all_kernels) + " | heed / best peer |")
    print("|" + " --- |" * (len(all_kernels) + 2), flush=True)
    for heads, length, dim, causal in SHAPES:
        check(all_kernels, causal, arguments.dtype)
        inputs, slope = tensors(arguments.dtype, 1, heads, length, dim)
        rounds = [
            {name: step(attend, inputs, slope, causal) for name, attend in all_kernels.items()}
            for _ in range(arguments.rounds + 1)
        ][1:]
        cells = " | ".join(f"{statistics.median(times[name] for times in rounds) * 1e3:.0f}" for name in all_kernels)
        ratio = statistics.median(min(t for name, t in times.items() if name != "heed") / times["heed"] for times in rounds)
        print(f"| {heads}, {length}, {dim}{' causal' if causal else ''} | {cells} | {ratio:.2f} x |", flush=True)


if __name__ == "__main__":
    main()
