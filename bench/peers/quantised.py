"""Compares decoding of GGUF files with llama.cpp and transformers, in turns in one run, and prints a Markdown table.

llama.cpp is PyPI's `xllamacpp` (pip install xllamacpp accelerate). transformers takes the weights as f32. All decode the same number of
tokens, greedily, after the same prompt; heed also with fast=True. The time of a token is the difference of two runs' times divided by the difference of their
tokens. Pin the process to a core for one thread:

    PYTHONPATH=build/release/python taskset -c 0 .venv/bin/python bench/peers/quantised.py FILE.gguf…
"""

import argparse
import pathlib
import statistics
import time

import torch
import transformers
import xllamacpp
from models import processor

import heed

PROMPT = "Once upon a time there was a"
FEW, MANY = 8, 72


def seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def a_token(write):
    return (seconds(lambda: write(MANY)) - seconds(lambda: write(FEW))) / (MANY - FEW)


def llama(path):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.n_ctx, parameters.n_parallel, parameters.warmup = 512, 1, False
    server = xllamacpp.Server(parameters)
    return lambda count: server.handle_completions({"prompt": PROMPT, "max_tokens": count, "n_predict": count,
                                                    "temperature": 0, "ignore_eos": True, "cache_prompt": False})


def transformer(path):
    torch.set_num_threads(1)
    files = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**files, dtype=torch.float32)
    prompt = transformers.AutoTokenizer.from_pretrained(**files)(PROMPT, return_tensors="pt")
    return lambda count: model.generate(**prompt, max_new_tokens=count, min_new_tokens=count, do_sample=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5, help="5 by default")
    arguments = parser.parse_args()
    print(f"{processor()}; xllamacpp {xllamacpp.__version__ if hasattr(xllamacpp, '__version__') else ''}\n")
    print("| file | heed, tokens a second | heed, fast | llama.cpp | transformers | heed's time to theirs |\n" + "| --- " * 6 + "|", flush=True)
    for path in arguments.files:
        writes = {name: lambda count, model=heed.load_model(path, fast=fast): model.generate(PROMPT, count, temperature=0)
                  for name, fast in (("heed", False), ("fast", True))} | {"llama.cpp": llama(path), "transformers": transformer(path)}
        for write in writes.values():
            write(FEW)
        rounds = [{name: a_token(write) for name, write in writes.items()} for _ in range(arguments.rounds)]
        speeds = " | ".join(f"{1 / statistics.median(one[name] for one in rounds):.1f}" for name in writes)
        factors = "; ".join(f"{statistics.median(one['llama.cpp'] / one[name] for one in rounds):.2f}" for name in ("heed", "fast"))
        print(f"| {path.name} | {speeds} | {factors} |", flush=True)


if __name__ == "__main__":
    main()
