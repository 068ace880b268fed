"""Measures the cost of KvCache formats: how far attention weights differ from those over an f32 cache.

For every head, it prints the mean over all queries of the KL divergence sum_j p_j log(p_j / q_j), in nats. p are the
weights with the original keys, q those with the keys as the cache stores them, both in f64. All keys are appended at
once. Keys of an incomplete group are stored unquantised.

    ./run look --model induction --protocol induction --layer 1 --save induction.safetensors
    .venv/bin/python bench/python/cache_formats.py induction.safetensors

A file has query [B, H, Lq, D] and key [B, Hkv, Lk, D]; B is optional. In a document of `heed look`, key_begin and
key_end [B, Lq] give the keys that each query sees. In other files a query sees all keys, or with --causal those up to
its own position. Several files form one batch. Without a file, keys are random.
"""

import argparse
import pathlib
import sys

import numpy as np

try:
    import heed
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "python"))
    import heed

FORMATS = ["bf16", "f16", "int8", "fp8", "int4"]
ROTATING = ["int8", "fp8", "int4"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE.safetensors", help="query and key")
    parser.add_argument("--causal", action="store_true", help="queries see keys up to their own position")
    parser.add_argument("--group", type=int, default=32, help="positions that share a scale (32)")
    parser.add_argument("--rows", type=int, default=1024, help="of random keys (1024)")
    parser.add_argument("--dim", type=int, default=64, help="of random keys (64)")
    return parser.parse_args()


def read(path, causal):
    """For each batch entry: queries [H, Lq, D], keys [Hkv, Lk, D] and the keys that each query sees [Lq, Lk]."""
    from safetensors.numpy import load_file

    tensors = load_file(path)
    query, key = (tensors[name].astype(np.float32) for name in ("query", "key"))
    if query.ndim == 3:
        query, key = query[None], key[None]
    columns = np.arange(key.shape[2])
    seen = np.ones((query.shape[0], query.shape[2], key.shape[2]), bool)
    if "key_begin" in tensors:
        seen = (tensors["key_begin"][..., None] <= columns) & (columns < tensors["key_end"][..., None])
    if causal:
        seen &= columns <= np.arange(query.shape[2])[:, None] + key.shape[2] - query.shape[2]
    return list(zip(query, key, seen))


def random_entries(rows, dim):
    """Random entries: normal numbers, and keys with outliers.

    "outlier channels" makes every sixteenth key channel eight times as large; "of queries too" also makes those query
    channels twice as large. "single outliers" makes one key number in 500 thirty times as large."""
    rng = np.random.default_rng(0)
    query, key = (rng.standard_normal((4, rows, dim), dtype=np.float32) for _ in range(2))
    outlying = np.arange(dim) % 16 == 5
    large, single = np.where(outlying, np.float32(8), 1), np.where(rng.random(key.shape) < 0.002, np.float32(30), 1)
    kinds = {"normal": (query, key), "outlier channels": (query, key * large),
             "outlier channels, of queries too": (query * np.where(outlying, np.float32(2), 1), key * large),
             "single outliers": (query, key * single)}
    seen = np.tril(np.ones((rows, rows), bool))
    return {name: [(*made, seen)] for name, made in kinds.items()}


def hadamard(dim):
    """The orthonormal Hadamard matrix; its blocks have the largest power of two that divides dim."""
    block = np.ones((1, 1))
    while dim % (2 * len(block)) == 0:
        block = np.block([[block, block], [block, -block]]) / np.sqrt(2)
    return np.kron(np.eye(dim // len(block)), block)


def log_weights(query, key, seen):
    """Log weights [H, Lq, Lk]; -inf for keys that are not seen."""
    key = np.repeat(key, len(query) // len(key), 0)
    scores = query.astype(np.float64) @ key.astype(np.float64).transpose(0, 2, 1) / np.sqrt(query.shape[2])
    scores[:, ~seen] = -np.inf
    most = scores.max(-1, keepdims=True)
    return scores - most - np.log(np.exp(scores - most).sum(-1, keepdims=True))


def divergence(query, key, seen, name, rotate, group):
    """The KL divergence [H, Lq], in nats."""
    heads, rows, dim = key.shape
    cache = heed.KvCache(kv_heads=heads, key_dim=dim, value_dim=2, capacity=rows, format=name, group=group,
                         rotate=rotate)
    cache.append(key[None], np.zeros((1, heads, rows, 2), np.float32))
    turned = query.astype(np.float64) @ hadamard(dim) if rotate else query
    expected, kept = log_weights(query, key, seen), log_weights(turned, np.asarray(cache.keys(0)), seen)
    with np.errstate(invalid="ignore"):  # -inf - -inf for keys that are not seen
        return np.where(seen, np.exp(expected) * (expected - kept), 0).sum(-1)


def table(title, entries, group):
    query, key, _ = entries[0]
    if key.shape[1] < group:
        sys.exit(f"{title} has {key.shape[1]} keys; at least {group}, one group, are expected")
    columns = [(name, rotate) for name in FORMATS for rotate in (False, True) if not rotate or name in ROTATING]
    means = np.array([
        np.mean([divergence(*entry, *column, group).mean(-1) for entry in entries], 0) for column in columns
    ])
    plain, turned = (means[columns.index(("int4", rotate))] for rotate in (False, True))
    print(f"\n{title}: {len(entries)} x {key.shape[1]} keys, {query.shape[0]} heads ({len(key)} of keys), "
          f"D {key.shape[2]}; mean KL divergence, nats\n")
    names = [name + (" rotated" if rotate else "") for name, rotate in columns]
    print("| head | " + " | ".join(names) + " | int4 rotated / int4 |")
    print("|" + " --- |" * (len(names) + 2))
    for head, row in enumerate(np.c_[means, means.mean(1)].T):
        label = head if head < means.shape[1] else "mean"
        ratio = turned[head] / plain[head] if head < means.shape[1] else turned.mean() / plain.mean()
        print(f"| {label} | " + " | ".join(f"{x:.1e}" for x in row) + f" | {ratio:.2f} |")


def main():
    arguments = parse_arguments()
    if arguments.files:
        entries = [entry for path in arguments.files for entry in read(path, arguments.causal)]
        table(", ".join(arguments.files), entries, arguments.group)
    else:
        for name, entries in random_entries(arguments.rows, arguments.dim).items():
            table(name, entries, arguments.group)


if __name__ == "__main__":
    main()
