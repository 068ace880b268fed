"""Compares a model with itself under `fast=True`, in turns in one run, and prints a Markdown table.

Speed, by processor time: a prompt of 1,024 tokens, and decoding 64 tokens after 64 others. Error: the logits of both at 256
positions of a text, after as many others: the Kullback-Leibler divergence of the fast prediction from the exact one, in nats,
and the share of positions with the same likeliest token. The prompt's row reads the text at a stretch, decoding reads it
token by token.

    PYTHONPATH=build/release/python taskset -c 0 .venv/bin/python bench/models/fast.py docs/architecture.md FILE.gguf FOLDER…
"""

import argparse
import copy
import pathlib
import statistics
import time

import numpy as np

import heed


def seconds(call):
    begin = time.process_time()
    call()
    return time.process_time() - begin


def log_probabilities(logits):
    logits = logits.astype(np.float64) - logits.max()
    return logits - np.log(np.exp(logits).sum())


def at_a_stretch(model, ids):
    return model.logits(ids, threads=1)[len(ids) // 2:]


def token_by_token(model, ids):
    cache = model.cache()
    model.hidden_states(ids[:len(ids) // 2], cache=cache, threads=1)
    return [model.logits(ids[i:i + 1], cache=cache, threads=1)[0] for i in range(len(ids) // 2, len(ids))]


def error(exact, fast):
    divergences, agreements = [], []
    for of_exact, of_fast in zip(exact, fast):
        log_p, log_q = log_probabilities(of_exact), log_probabilities(of_fast)
        divergences.append((np.exp(log_p) * (log_p - log_q)).sum())
        agreements.append(log_p.argmax() == log_q.argmax())
    return f"{np.mean(divergences):.2g} | {max(divergences):.2g} | {np.mean(agreements):.1%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5, help="5 by default")
    parser.add_argument("--positions", type=int, default=256, help="256 by default")
    arguments = parser.parse_args()
    print("| model | | exact, tokens a second | fast | factor | mean KL | largest KL | same top token |")
    print("| --- " * 8 + "|", flush=True)
    for path in arguments.models:
        both = [heed.load_model(path, fast=fast) for fast in (False, True)]
        ids = np.asarray(both[0].token_ids(arguments.text.read_text()))[:1024]
        tokens = 64

        def decode(model, cache):
            for i in range(tokens):
                model.logits(ids[i:i + 1], cache=cache, threads=1)

        caches = [model.cache() for model in both]
        for model, cache in zip(both, caches):
            model.hidden_states(ids[:64], cache=cache, threads=1)
        for name, count, call, logits in (
                ("prompt", len(ids), lambda i: both[i].hidden_states(ids, threads=1), at_a_stretch),
                ("decoding", tokens, lambda i: decode(both[i], copy.copy(caches[i])), token_by_token)):
            rounds = [[seconds(lambda i=i: call(i)) for i in (0, 1)] for _ in range(arguments.rounds + 1)][1:]
            exact, fast = (count / statistics.median(times) for times in zip(*rounds))
            factor = statistics.median(one[0] / one[1] for one in rounds)
            print(f"| {path.name} | {name} | {exact:.1f} | {fast:.1f} | {factor:.2f} | "
                  f"{error(*(logits(model, ids[:2 * arguments.positions]) for model in both))} |", flush=True)


if __name__ == "__main__":
    main()
