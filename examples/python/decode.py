"""Decoding with a KV cache. At each step one query attends to the rows of all words so far, and the program prints what
it attends to.

    python examples/python/decode.py
"""

import heed
import numpy as np

WORDS = "the cat sat on the mat , the cat sat on the rug".split()
SHARP = 6.0  # the score of a match; all other scores are 0


def row(step):
    """Returns the key, value and query [1, 1, 1, D] of the word at `step`. The key is the previous word, so the query
    for a word finds what followed it last time. The value is the word itself."""
    kinds = sorted(set(WORDS))
    one_hot = lambda word: np.array([kind == word for kind in kinds], np.float32).reshape(1, 1, 1, -1)
    before = WORDS[step - 1] if step else None
    return one_hot(before), one_hot(WORDS[step]), SHARP * one_hot(WORDS[step])


def main():
    dim = len(set(WORDS))
    cache = heed.KvCache(kv_heads=1, key_dim=dim, layout="paged", page_size=4, capacity=len(WORDS))
    for step, word in enumerate(WORDS):
        key, value, query = row(step)
        cache.append(key, value)
        result = heed.attention(query, cache, scale=1, top_k=2, need=("entropy", "received"))
        cache.add_received(result.received)
        seen = ", ".join(f"{WORDS[position]} at {position}: {weight:.2f}" for position, weight in
                         zip(result.top_k_index[0, 0, 0], result.top_k_weight[0, 0, 0]) if position >= 0)
        print(f"{step:2} {word:4} attends to {seen}; entropy {result.entropy[0, 0, 0]:.2f}")
    received = cache.received(0)[0]
    most = received.argsort()[::-1][:3]
    print("received most:", ", ".join(f"{WORDS[i]} at {i}: {received[i]:.2f}" for i in most))
    print(cache)


if __name__ == "__main__":
    main()
