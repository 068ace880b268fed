"""Four heads that can be told apart by what they attend to, made by hand, and the picture of them that heed draws.

    python examples/python/heads.py heads.png
"""

import sys

import heed
import numpy as np

WORDS = "the cat sat on the mat , the cat sat on the rug".split()
SHARP = 6.0  # the score of a match; all else scores 0


def heads(words):
    """Query and key [1, 4, L, D] of heads that look for the word before, for what followed this word last time, for
    the first word, and for nothing in particular."""
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
