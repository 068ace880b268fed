"""Real GGUF files, as they lie on disk, compared with what transformers gave for them (make_gguf_models_golden.py)."""

import pathlib
import pickle

import numpy as np
import pytest
import real_models
from safetensors.numpy import load_file

import heed

GOLDEN = pathlib.Path(__file__).parents[2] / "tests" / "data" / "gguf_models.safetensors"


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_a_real_file_has_the_ids_and_logits_of_transformers(name):
    model = heed.load_model(getattr(real_models, name)())
    golden = load_file(GOLDEN)
    texts = [key for key in golden if key.startswith(name + ".") and key.endswith(".text")]
    assert len(texts) == 3
    for key in texts:
        own = {part: golden[key.replace(".text", "." + part)] for part in ("ids", "logits", "likeliest")}
        text = golden[key].tobytes().decode()
        assert model.token_ids(text) == own["ids"].tolist()
        logits = model.logits(own["ids"])
        np.testing.assert_allclose(logits[:, golden[name + ".columns"]], own["logits"], rtol=0, atol=1e-4)
        assert (logits.argmax(1) == own["likeliest"]).all()


# docs/models.md states mean divergences of up to 0.0033 over longer texts; the bound leaves a factor of three for these
# 64 positions. A processor may have neither dot products of bytes nor of bf16; there fast models are exact.
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_a_fast_model_predicts_nearly_the_same(name):
    path = getattr(real_models, name)()
    exact, fast = heed.load_model(path), heed.load_model(path, fast=True)
    assert fast.info["fast"] and not exact.info["fast"] and pickle.loads(pickle.dumps(fast)).info["fast"]
    text = pathlib.Path(__file__).parents[2].joinpath("docs", "architecture.md").read_text()
    ids = exact.token_ids(text)[:96]

    def log_p(model, threads=0):
        cache = model.cache()
        at_a_stretch = model.logits(ids[:64], cache=cache, threads=threads)
        rows = [model.logits([token], cache=cache, threads=threads) for token in ids[64:]]
        logits = np.concatenate([at_a_stretch[32:], *rows]).astype(np.float64)
        return logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) - logits.max(1, keepdims=True)

    p, q = log_p(exact), log_p(fast)
    assert (np.exp(p) * (p - q)).sum(1).mean() < 0.01
    if " avx2 " in pathlib.Path("/proc/cpuinfo").read_text():
        assert (p != q).any()
    np.testing.assert_array_equal(q, log_p(fast, threads=1))
