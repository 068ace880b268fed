"""Door models: folders that transformers wrote, read by heed.load_model, against transformers in f64. Mixtures of
experts, which PyTorch multiplies in f32 alone, are compared with f32."""

import pathlib
import sys

import torch

import heed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "tests"))
from tiny_models import FAMILIES, make, save  # noqa: E402


def call(rng, folder):
    name = list(FAMILIES)[int(rng.integers(len(FAMILIES)))]
    theirs = make(name, seed=int(rng.integers(2**31)))
    ours = heed.load_model(save(theirs, folder / "model"))
    length = int(rng.integers(1, 90))
    ids = torch.from_numpy(rng.integers(2 if "bert" in name else 0, 101, length))
    wide = not any(kind in name for kind in ("mixtral", "moe", "gpt_oss"))
    with torch.no_grad():
        expected = (theirs.double() if wide else theirs)(ids[None], output_attentions=True)
    got = torch.from_numpy(ours.logits(ids)).double()
    off = (got - expected.logits[0]).abs().max() / expected.logits.abs().max()
    assert off <= 3e-4, f"{name}, {length} tokens: logits are off by {off} of the largest"
    for layer, weights in enumerate(expected.attentions):
        off = (torch.from_numpy(ours.weights(ids, layer)).double() - weights[0]).abs().max()
        assert off <= 3e-5, f"{name}, {length} tokens: weights of layer {layer} are off by {off}"
    return {"tokens": length}
