"""Compares small transformers with attn_implementation "heed" and "sdpa" under masks; prints a Markdown table.

Models without sdpa use "eager". The masks are not plain causal. The columns are the difference of the outputs, times,
memory, and the time with capture of the weights of two heads in the first layer.

    python3 -m venv .venv && .venv/bin/pip install .[transformers]
    .venv/bin/python bench/python/transformers_masks.py
    .venv/bin/python bench/python/transformers_masks.py --length 1024 --rounds 1   # a quick check

Each model and implementation has its own process; the implementations take turns in each round. The table shows medians
over the rounds. Memory is the growth of a process's peak resident set over a forward pass of 128 tokens. On a shared
machine, trust the factors rather than the times.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MODELS = {  # class and settings; the mask; the implementation to compare with (sdpa has no softcap)
    "Llama": ("LlamaModel", {}, "causal, a quarter padded on the left", "sdpa"),
    "Mistral": ("MistralModel", {"sliding_window": 1024}, "window of 1,024", "sdpa"),
    "Gemma 2": ("Gemma2Model", {"sliding_window": 1024}, "window and causal", "eager"),
    "BERT": ("BertModel", {}, "a quarter padded on the right", "sdpa"),
}
PADDED = {"Llama": "left", "BERT": "right"}
HEADS = [0, 5]  # heads of the first layer to capture
# Two layers of f32 products, in which attention differs by some rounding errors; hidden states are around 1.
TOLERANCE = 1e-4


def make(name, implementation, length, threads):
    import torch
    import transformers

    import heed.transformers

    heed.transformers.register()
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    kind, settings, *_ = MODELS[name]
    settings = {"vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
                "num_attention_heads": 8, "max_position_embeddings": length, "pad_token_id": 0, "bos_token_id": 1,
                "eos_token_id": None} | settings
    settings |= {} if name == "BERT" else {"num_key_value_heads": 2, "head_dim": 64}
    torch.manual_seed(1)
    config = getattr(transformers, kind.replace("Model", "Config"))(**settings)
    model = getattr(transformers, kind)._from_config(config, attn_implementation=implementation).eval()
    for parameter in model.parameters():  # small initial weights would make all attention uniform
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.08)

    def run(tokens):
        torch.manual_seed(2)
        given = {"input_ids": torch.randint(3, 1000, (1, tokens)),
                 "attention_mask": torch.ones(1, tokens, dtype=torch.int64)}
        padded = {"left": slice(0, tokens // 4), "right": slice(-(tokens // 4), None)}.get(PADDED.get(name))
        if padded is not None:
            given["attention_mask"][:, padded] = 0
        if name != "BERT":
            given["use_cache"] = False
        with torch.no_grad():
            return model(**given).last_hidden_state[given["attention_mask"].bool()]

    return run


def serve(name, implementation, length, threads):
    """Answers requests on stdin: "output PATH", "time", "captured". The first output line gives the memory growth."""
    import contextlib
    import resource
    import time

    import numpy as np

    import heed.transformers

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    run = make(name, implementation, length, threads)
    run(128)
    before = peak()
    run(length)
    print(peak() - before, flush=True)
    for line in sys.stdin:
        what, *path = line.split()
        if what == "output":
            np.save(path[0], run(length).numpy())
            print(0, flush=True)
            continue
        begun = time.perf_counter()
        limited = heed.transformers.capture(weights=True, layers=0, heads=HEADS)
        with limited if what == "captured" else contextlib.nullcontext():
            run(length)
        print(time.perf_counter() - begun, flush=True)


class Served:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", json.dumps(arguments)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.memory = float(self.process.stdout.readline())

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(name, length, rounds, threads):
    import numpy as np

    ours, theirs = (Served(name, implementation, length, threads) for implementation in ("heed", MODELS[name][3]))
    with tempfile.TemporaryDirectory() as folder:
        outputs = []
        for place, one in enumerate((ours, theirs)):
            path = os.path.join(folder, f"{place}.npy")
            one.ask(f"output {path}")
            outputs.append(np.load(path))
    difference = float(np.abs(outputs[0] - outputs[1]).max())
    times = {"heed": [], "peer": [], "captured": []}
    for _ in range(rounds):
        times["peer"].append(theirs.ask("time"))
        times["heed"].append(ours.ask("time"))
        times["captured"].append(ours.ask("captured"))
    for one in (ours, theirs):
        one.end()
    return difference, {key: statistics.median(value) for key, value in times.items()}, ours.memory, theirs.memory


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(*json.loads(arguments.serve))
    print(f"{arguments.length} tokens, 2 layers of 8 heads of 64, f32, {arguments.threads} threads, {arguments.rounds} "
          "rounds\n")
    print("| Model | Mask | Peer | Difference | Peer, s | heed, s | Peer / heed | with 2 heads' weights | Peer, MiB "
          "| heed, MiB |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    wrong = False
    for name in arguments.models:
        difference, times, memory, their_memory = measure(name, arguments.length, arguments.rounds, arguments.threads)
        wrong |= not difference <= TOLERANCE
        _, _, mask, peer = MODELS[name]
        print(f"| {name} | {mask} | {peer} | {difference:.1e} | {times['peer']:.3f} | {times['heed']:.3f} | "
              f"{times['peer'] / times['heed']:.2f} | {times['captured'] / times['heed']:.2f}x | {their_memory:.0f} | "
              f"{memory:.0f} |", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
