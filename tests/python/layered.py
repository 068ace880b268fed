"""Pages of several layers: the weights of random heads, and a document that assigns the heads to layers."""

import json
import struct

import numpy as np

WORDS = ["the", "cat", "</script>", "<b>sat</b>", "on", "the", "mat", "it", "=1+1", "liked"]


def weights_of(query, key, causal):
    """The weights [H, L, L] for q and k [H, L, D], in f64."""
    scores = query.astype(np.float64) @ key.astype(np.float64).swapaxes(1, 2) / np.sqrt(query.shape[-1])
    if causal:
        scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def with_layers(path, layers):
    """Sets the layers of the heads in a saved document: [[name, heads], …]."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    header["__metadata__"]["layers"] = json.dumps(layers)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size:])


def layered_page(heed, folder, layers, length, *options, causal=True, words=WORDS, spread=1.5):
    """Writes page.html for random heads, some of which attend to the previous word. Returns their weights, [H, L, L].
    Queries and keys have the standard deviation `spread`."""
    heads = sum(count for _, count in layers)
    draw = np.random.default_rng(7)
    query, key, value = (draw.standard_normal((heads, length, 16), dtype=np.float32) * spread for _ in range(3))
    places = draw.standard_normal((length, 16), dtype=np.float32) * 2
    for head in range(1, heads, 4):
        query[head, 1:], key[head] = places[:-1], places
    for name, tensor in (("q", query), ("k", key), ("v", value)):
        np.save(folder / f"{name}.npy", tensor)
    (folder / "words.txt").write_text("".join(words[i % len(words)] + "\n" for i in range(length)))
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", *(["--causal"] if causal else []), "--tokens",
         "words.txt", "--save", "doc.safetensors")
    with_layers(folder / "doc.safetensors", layers)
    heed("look", "doc.safetensors", "--html", "page.html", *options)
    return weights_of(query, key, causal)
