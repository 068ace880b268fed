"""The Python code in documents runs verbatim."""

import pathlib
import re

import pytest
import real_models

import heed

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnx")

ROOT = pathlib.Path(__file__).parents[2]


def small_model(*_, **settings):
    """Replaces a model from the network."""
    config = transformers.LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, bos_token_id=1, eos_token_id=None)
    model = transformers.LlamaForCausalLM(config)
    model.set_attn_implementation(settings["attn_implementation"])
    return model


@pytest.mark.parametrize("document, least", [("README.md", 1), ("docs/python.md", 15), ("docs/forms.md", 1)])
def test_each_block_of_python_runs_after_those_before_it(document, least, monkeypatch, tmp_path):
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", small_model)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)
    assert len(blocks) >= least
    names = {}
    for block in blocks:
        exec(compile(block, document, "exec"), names)
    if document == "README.md":
        assert names["result"].weights.shape == (1, 8, 64, 64) and (tmp_path / "look.html").exists()
    elif document == "docs/python.md":
        assert len(names["maps"]) >= 2 and names["maps"][0].top_k_index.shape[-1] == 8


def test_a_model_takes_messages_as_the_document_says():
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/models.md").read_text(), re.M | re.S)
    names = {"model": heed.load_model(real_models.smollm2())}
    exec(compile(block, "docs/models.md", "exec"), names)
    assert names["ids"][-1] == names["model"].chat_ids("Hello")[-1]
