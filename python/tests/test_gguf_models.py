"""Real GGUF files, as they lie on disk, compared with what transformers gave for them (make_gguf_models_golden.py)."""

import pathlib

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
