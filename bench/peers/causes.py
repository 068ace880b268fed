"""Compares what heads cause with TransformerLens: the same numbers, time and memory, as a Markdown table.

Each measurement runs in a process of its own, one thread, in turns; the table has medians, and the peak of memory beyond the
loaded model. TransformerLens keeps the activations of all layers; its scores of composition are `all_composition_scores`, and
its shares in a logit `stack_head_results` with `logit_attrs`, after its processing of weights (without centring the
unembedding, which changes the shares). FOLDER is a model of transformers:

    PYTHONPATH=build/release/python taskset -c 0 python bench/peers/causes.py FOLDER [--tokens 512 1024 2048]
    PYTHONPATH=build/release/python taskset -c 0 python bench/peers/causes.py FOLDER --composition --layers 12

circuit-tracer answers for transcoders, trained networks that replace the MLPs; heed has none, so the two have no number in
common.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time


def tokens_of(count):
    import numpy as np

    return np.random.default_rng(1).integers(100, 1000, count).tolist()


def lens(folder):
    import torch
    import transformers
    from transformer_lens.model_bridge import TransformerBridge

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    bridge = TransformerBridge.boot_transformers(folder, hf_model=model,
                                                 tokenizer=transformers.AutoTokenizer.from_pretrained(folder))
    bridge.enable_compatibility_mode(disable_warnings=True, center_unembed=False)

    def shares(count):
        logits, cache = bridge.run_with_cache(torch.tensor([tokens_of(count)]))
        heads = cache.stack_head_results(-1, pos_slice=-1)
        return cache.logit_attrs(heads, tokens=int(logits[0, -1].argmax()), pos_slice=-1, has_batch_dim=True).flatten()

    return {"composition": lambda _: bridge.all_composition_scores("K").permute(2, 3, 0, 1).flatten(), "shares": shares}


def ours(folder):
    import heed

    model = heed.load_model(folder)
    return {"composition": lambda _: model.composition(threads=1).key.flatten(),
            "shares": lambda count: model.attribute(tokens_of(count), threads=1).heads.flatten()}


def first_layers(folder, count, to):
    """Saves a model's first layers."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype="float32").save_pretrained(to)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(to)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # GiB


def measure(tool, folder, question, count):
    """What one process prints: seconds, GiB beyond the model, and numbers to compare."""
    run = {"heed": ours, "TransformerLens": lens}[tool](folder)[question]
    before, begin = peak(), time.perf_counter()
    found = run(count)
    print(json.dumps([time.perf_counter() - begin, peak() - before, [float(one) for one in found]]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--composition", action="store_true", help="compare the scores of composition instead")
    parser.add_argument("--layers", type=int, help="take only so many layers of the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        tool, question, count = arguments.measure
        return measure(tool, arguments.folder, question, int(count))
    if arguments.layers:
        kept = tempfile.TemporaryDirectory()
        first_layers(arguments.folder, arguments.layers, kept.name)
        arguments.folder = kept.name
    print("| question | heed | TransformerLens | times as fast | heed, GiB | TransformerLens, GiB | largest difference |")
    print("| --- " * 7 + "|", flush=True)
    questions = [("composition", 0)] if arguments.composition else [("shares", count) for count in arguments.tokens]
    for question, count in questions:
        told = {"heed": [], "TransformerLens": []}
        for _ in range(arguments.rounds):
            for tool, rounds in told.items():
                done = subprocess.run([sys.executable, __file__, arguments.folder, "--measure", tool, question, str(count)],
                                      capture_output=True, text=True)
                if done.returncode == -9:
                    sys.exit(f"{tool} was killed at '{question}', {count} tokens: this machine's memory does not suffice")
                if done.returncode != 0:
                    sys.exit(done.stderr)
                rounds.append(json.loads(done.stdout.splitlines()[-1]))
        seconds, memory = ([statistics.median(one[at] for one in rounds) for rounds in told.values()] for at in (0, 1))
        largest = max(abs(a - b) for a, b in zip(*(rounds[0][2] for rounds in told.values()), strict=True))
        what = "composition scores" if question == "composition" else f"shares of all heads, {count:,} tokens"
        print(f"| {what} | {seconds[0]:.2f} s | {seconds[1]:.2f} s | {seconds[1] / seconds[0]:.1f} | {memory[0]:.2f} | "
              f"{memory[1]:.2f} | {largest:.1e} |", flush=True)


if __name__ == "__main__":
    main()
