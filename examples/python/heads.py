"""Four hand-made heads that differ in what they attend to, and heed's picture of them.

    python examples/python/heads.py heads.png
"""

import sys

import heed
import numpy as np

WORDS = "the cat sat on the mat , the cat sat on the rug".split()
SHARP = 6.0  # the score of a match; all other scores are 0


def heads(words):
    """Returns the queries and keys [1, 4, L, D] of four heads. They look for the previous word, for the word that
    followed this one last time, for the first word, and for nothing in particular."""
    count = len(words)
    place = np.eye(count, dtype=np.float32)
    word = np.array([[a == b for b in words] for a in words], np.float32)[:, [words.index(w) for w in words]]
    before = lambda x: np.vstack([np.zeros_like(x[:1]), x[:-1]])
    nothing = np.zeros_like(place)
    first = np.zeros_like(place)
    first[:, 0] = 1
    query = np.stack([before(place), word, first, nothing])
    key = np.stack([place, before(word) / word.sum(-1, keepdims=True), place, nothing])
    return SHARP * query[None], key[None]


def main():
    query, key = heads(WORDS)
    report = heed.look(query, key, query, tokens=WORDS, causal=True, scale=1)
    print(report)
    report.plot().savefig(sys.argv[1] if len(sys.argv) > 1 else "heads.png", dpi=90)


if __name__ == "__main__":
    main()
