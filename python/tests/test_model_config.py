"""config.json of every family, compared with transformers: each key changed, missing or null, and unknown keys.

heed returns transformers' numbers or refuses the file. Both sum in f32, in different orders (test_pretrained.py).
"""

import copy
import dataclasses
import inspect
import json
import re

import numpy as np
import pytest
import torch
import transformers as t
from tiny_models import CAUSAL, DEFAULT, FAMILIES, LLAMA3, YARN, ids_of, make, save
from transformers import cache_utils, masking_utils

import heed

RELATIVE = 1e-4
# One model per class. The rotated part of GPT-NeoX's heads has four frequencies.
WINDOWS = dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)
WIDE = dict(hidden_size=64, num_attention_heads=2)
NAMES = {"bert": {}, "roberta": {}, "xlm-roberta": {}, "camembert": {}, "mpnet": {}, "nomic_bert": {}, "electra": {}, "olmo2": {}, "phi3": {}, "smollm3": {}, "granite": {}, "stablelm": {}, "starcoder2": {}, "mixtral": {}, "qwen3_moe": {}, "gpt_oss": {}, "modernbert": {}, "gemma": {}, "distilbert": {}, "gpt2": {}, "llama": {}, "mistral": {}, "qwen2-windows": {}, "qwen3": WINDOWS, "gemma2": {},
         "gemma3": {}, "gpt_neox": WIDE}
SHAPES = {"vocab_size", "hidden_size", "n_embd", "dim", "intermediate_size", "hidden_dim", "n_positions"}
LENGTH = 40  # beyond the windows of tiny models


def saved(name, folder, **other):
    """A transformers model, saved to the folder, and its config.json."""
    model = make(name, **NAMES[name] | other)
    save(model, folder)
    return model, json.loads((folder / "config.json").read_text())


def weights_of(model):
    """The weights as stored, with tied ones only once."""
    tied = model._tied_weights_keys if model.config.tie_word_embeddings else ()
    return {key: weight for key, weight in model.state_dict().items() if key not in tied}


def theirs(name, config, state, ids):
    """transformers' logits; None if it refuses the configuration or lacks weights."""
    try:
        kind, made = FAMILIES[name][0], FAMILIES[name][1].from_dict(copy.deepcopy(config))
        made._attn_implementation = "eager"
        made.tie_word_embeddings &= not set(state) & set(kind._tied_weights_keys)  # as from_pretrained does
        model = kind(made).eval()
        missing, unexpected = model.load_state_dict(state, strict=False)
        if unexpected or set(missing) - set(model._tied_weights_keys if made.tie_word_embeddings else ()):
            return None
        with torch.no_grad():
            return model(ids[None], return_dict=True).logits[0].numpy()
    except Exception:  # transformers has no specific exception for this
        return None


def ours(folder, config, ids, recwarn):
    """heed's logits, its notes about ignored settings, and its reason for refusing the folder."""
    (folder / "config.json").write_text(json.dumps(config))
    recwarn.clear()
    try:
        logits = heed.load_model(folder).logits(ids)
    except OSError as error:
        return None, "", str(error)
    return logits, " ".join(str(one.message) for one in recwarn.list), ""


def near(logits, expected):
    return np.abs(logits - expected).max() <= RELATIVE * np.abs(expected).max()


def keys_of(name):
    """The fields of the class and its bases, and further keys that the class or the model's code reads."""
    config, model = FAMILIES[name][1], FAMILIES[name][0]
    keys = {field.name for field in dataclasses.fields(config)} | set(config.attribute_map)
    base = t.PreTrainedConfig
    rope = [base.convert_rope_params_to_dict] if "rope_parameters" in keys else []
    for taken in (inspect.getmodule(config), base.__post_init__, *rope):
        keys |= set(re.findall(r'kwargs\.(?:pop|get)\(\s*"(\w+)"', inspect.getsource(taken)))
    for code in (inspect.getmodule(model), masking_utils, cache_utils):
        keys |= set(re.findall(r'getattr\((?:self\.)?config,\s*"(\w+)"', inspect.getsource(code)))
    return sorted(keys - {"model_type"} - (set() if rope else {"rope_scaling", "rope_theta"}))


OTHER = {
    "hidden_act": "relu", "hidden_activation": "relu", "activation": "relu", "activation_function": "relu", "is_causal": False,
    "rope_theta": 500.0, "rotary_emb_base": 500.0, "rotary_pct": 0.5, "partial_rotary_factor": 0.5, "rope_local_base_freq": 100.0,
    "rope_scaling": dict(rope_type="linear", factor=4.0), "sliding_window": 5, "attention_chunk_size": 5, "sliding_window_pattern": 3,
    "per_layer_config": {"0": {"rms_norm_eps": 1.0, "layer_norm_eps": 1.0, "layer_norm_epsilon": 1.0}}, "problem_type": "regression",
    "id2label": {"0": "a"}, "label2id": {"a": 0}, "architectures": ["OtherModel"], "dtype": "bfloat16", "torch_dtype": "bfloat16",
    "attn_logit_softcapping": 1.5, "final_logit_softcapping": 1.5, "original_max_position_embeddings": 128, "head_dim": 24,
    "n_inner": 40, "use_bidirectional_attention": True, "summary_type": "mean", "summary_activation": "tanh",
}


def changed(key, config, model):
    value = config.get(model.config.attribute_map.get(key, key))
    if key == "layer_types":
        return ["full_attention"] * model.config.num_hidden_layers
    if key == "rope_parameters":
        nested = isinstance(value, dict) and "full_attention" in value
        return {"full_attention": OTHER["rope_scaling"]} if nested else OTHER["rope_scaling"]
    if key in OTHER:
        return OTHER[key]
    if isinstance(value, list):  # no_rope_layers
        return [1 - one for one in value]
    if isinstance(value, str):
        return "other"
    return not value if isinstance(value, bool) or value is None else value + 1 if isinstance(value, int) else value * 3 + 0.01


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_is_changed_counts_changes_nothing_or_is_refused_by_its_name(name, tmp_path, recwarn):
    model, config = saved(name, tmp_path)
    state, ids, wrong = weights_of(model), ids_of(LENGTH), []
    base, _, _ = ours(tmp_path, config, ids, recwarn)
    assert near(base, theirs(name, config, state, ids))
    for key in keys_of(name):
        other = config | {key: changed(key, config, model)}
        expected = theirs(name, other, state, ids)
        logits, notes, refusal = ours(tmp_path, other, ids, recwarn)
        if key in notes:
            wrong.append(f"{key} is a key that heed does not know")
        elif logits is None:
            if expected is not None and key not in refusal:
                wrong.append(f"{key} {other[key]} is refused by another name: {refusal}")
        elif not near(logits, base if expected is None else expected):
            wrong.append(f"{key} {other[key]} gives other numbers than in transformers")
    assert "\n".join(wrong) == ""


@pytest.mark.parametrize("name", NAMES)
def test_null_is_what_it_is_in_transformers(name, tmp_path, recwarn):
    model, config = saved(name, tmp_path)
    state, ids, wrong = weights_of(model), ids_of(LENGTH), []
    base, _, _ = ours(tmp_path, config, ids, recwarn)
    assert near(base, theirs(name, config, state, ids))
    for key in keys_of(name):
        expected = theirs(name, config | {key: None}, state, ids)
        logits, _, refusal = ours(tmp_path, config | {key: None}, ids, recwarn)
        if expected is not None and logits is None:
            wrong.append(f"{key} null is refused: {refusal}")
        elif logits is not None and not near(logits, base if expected is None else expected):
            wrong.append(f"{key} null gives other numbers than in transformers")
    assert "\n".join(wrong) == ""


# Further settings for a model in which the key has the class's default value.
HEADS = dict(head_dim=4, num_attention_heads=8)
LONG = dict(num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
AFTER_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")  # families whose positions begin after the padding's
ALSO = {
    "num_attention_heads": {"bert": dict(hidden_size=48), "nomic_bert": dict(hidden_size=48, head_dim=None), **{name: dict(hidden_size=48) for name in AFTER_PADDING}, "distilbert": dict(dim=48), "gpt2": dict(n_embd=48),
                            "llama": dict(head_dim=4), "mistral": dict(head_dim=4), "qwen2-windows": dict(head_dim=4),
                            "gpt_neox": dict(hidden_size=512), "stablelm": dict(hidden_size=256), "modernbert": dict(hidden_size=48),
                            "starcoder2": dict(hidden_size=48), "mixtral": dict(head_dim=4), "qwen3_moe": dict(head_dim=4), "gpt_oss": dict(head_dim=4),
                            **{name: dict(head_dim=4) for name in ("olmo2", "phi3", "smollm3", "granite", "gemma")}},
    "num_key_value_heads": {"mistral": HEADS, "qwen2-windows": HEADS | dict(num_attention_heads=32),
                            "qwen3": dict(num_attention_heads=32), "gemma": dict(num_attention_heads=16),
                            "mixtral": HEADS, "gpt_oss": HEADS, "qwen3_moe": dict(head_dim=4), "stablelm": dict(num_attention_heads=32, hidden_size=256)},
    "num_local_experts": {"qwen3_moe": dict(num_experts=DEFAULT)},
    "num_experts_per_tok": {"qwen3_moe": dict(num_experts=9)},
    "layer_norm_eps": {name: dict(tie_word_embeddings=False) for name in ("bert", *AFTER_PADDING, "electra")},
    "max_window_layers": {"qwen2-windows": dict(num_hidden_layers=30), "qwen3": dict(num_hidden_layers=30)},
    "sliding_window": {"mistral": LONG, "gemma2": LONG, "gemma3": LONG, "qwen2-windows": LONG | dict(max_window_layers=0),
                       "qwen3": LONG | dict(max_window_layers=0)},
}
ALSO["n_heads"] = ALSO["n_head"] = ALSO["num_attention_heads"]


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_is_missing_has_the_default_of_the_class(name, tmp_path, recwarn):
    _, config = saved(name, tmp_path)
    wrong = []
    beyond = {"pad_token_id"} if name == "modernbert" else set()  # the default is beyond the tiny vocabulary
    for key in sorted(set(config) - {"model_type", "layer_types", "dtype"} - beyond):
        if key in SHAPES or key == "max_position_embeddings" and "rope_parameters" not in config:
            default = getattr(FAMILIES[name][1](), key)
            _, _, refusal = ours(tmp_path, {k: v for k, v in config.items() if k != key}, [1], recwarn)
            fused = name in ("phi3", "modernbert", "gpt_oss") and key == "intermediate_size"  # the file has gate and up in one matrix
            if str(2 * default if fused else default) not in refusal:
                wrong.append(f"without {key}, {default} is expected: {refusal}")
            continue
        model, full = saved(name, tmp_path, **{key: DEFAULT} | ALSO.get(key, {}).get(name, {}))
        if "eps" in key:  # a stream so small that the epsilon matters
            with torch.no_grad():
                for table in (one for one in model.modules() if isinstance(one, torch.nn.Embedding)):
                    table.weight *= full[key] ** 0.5
            save(model, tmp_path)
        ids = ids_of(4200 if key == "sliding_window" and full[key] else LENGTH)
        with torch.no_grad():
            expected = model(ids[None]).logits[0].numpy()
        if key == "use_sliding_window":  # otherwise the class ignores the window
            full["sliding_window"] = 5
        logits, _, refusal = ours(tmp_path, {k: v for k, v in full.items() if k not in (key, "layer_types")}, ids, recwarn)
        if logits is None or not near(logits, expected):
            wrong.append(f"without {key}, {full[key]} is expected{refusal and ': ' + refusal}")
        elif heed.load_model(tmp_path).info["context"] != model.config.max_position_embeddings - (
                model.config.pad_token_id + 1 if name in AFTER_PADDING else 0):
            wrong.append(f"without {key} the context is another")
    assert "\n".join(wrong) == ""


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_give_logits_where_the_class_ties_them(name, tmp_path):
    save(make(name, **NAMES[name], tie_word_embeddings=DEFAULT).base_model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    tied = config.pop("tie_word_embeddings", True)  # Nomic BERT's class does not save it
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert heed.load_model(tmp_path).info["predicts"] == (tied and name in CAUSAL)


@pytest.mark.parametrize("name", [name for name in NAMES if name in CAUSAL])
def test_a_decoder_without_an_unembedding_of_its_own_gives_hidden_states(name, tmp_path):
    theirs = make(name, **NAMES[name], tie_word_embeddings=False).base_model
    model = heed.load_model(save(theirs, tmp_path))
    with torch.no_grad():
        expected = theirs(ids_of(9)[None])[0][0].numpy()
    assert not model.info["predicts"] and near(model.hidden_states(ids_of(9)), expected)


@pytest.mark.parametrize("key, value", [("n_head", 8), ("n_layer", 6), ("rotary_emb_base", 10000), ("prenorm", True), ("activation_function", "gelu")])
def test_nomic_bert_refuses_what_its_older_folders_may_say_otherwise(key, value, tmp_path, recwarn):
    _, config = saved("nomic_bert", tmp_path)
    _, _, refusal = ours(tmp_path, config | {key: value}, [1], recwarn)
    assert f"has {key}" in refusal
    logits, notes, _ = ours(tmp_path, config | {"n_head": 12, "rotary_emb_base": 1000, "prenorm": False}, [1], recwarn)
    assert logits is not None and notes == ""


# Families with an object for each type of layer, and heads wide enough for a ramp.
NESTED = [("gemma3", {}), ("modernbert", dict(num_attention_heads=1))]
ROPES = [
    ("llama", dict(rope_parameters={}, rope_theta=500.0)),
    ("llama", dict(rope_parameters=None, rope_theta=500.0, rope_scaling={})),
    ("llama", dict(rope_parameters=None, rope_theta=500, rope_scaling=dict(type="linear", factor=4.0))),
    ("llama", dict(rope_parameters=dict(rope_type="default", type="linear", factor=4.0, attention_factor=2.0))),
    ("llama3", dict(original_max_position_embeddings=128)),
    ("llama3", dict(rope_parameters=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0))),
    ("gpt_neox", dict(rope_parameters=dict(rope_type="default"), rotary_emb_base=500.0, rotary_pct=0.5)),
    ("gpt_neox", dict(rope_parameters=None, rotary_emb_base=500.0, rope_theta=500.0, partial_rotary_factor=0.25, head_dim=32)),
    ("gpt_neox", dict(rope_parameters=None, rope_scaling=dict(type="linear", factor=2.0), rotary_pct=0.5)),
    ("gemma3", dict(rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0)), rope_theta=500.0)),
    ("gemma3", dict(rope_parameters=dict(sliding_attention=dict(rope_theta=300.0), full_attention=None))),
    ("gemma3", dict(rope_parameters=None, rope_local_base_freq=100.0, rope_scaling=dict(rope_type="linear", factor=2.0))),
    *((name, dict(rope_parameters=YARN | dict(truncate=truncate))) for name in ("llama", "gpt_oss") for truncate in (None, False, True)),
    ("llama", dict(rope_parameters=YARN | dict(attention_factor=None, beta_fast=None, beta_slow=None, mscale=None, mscale_all_dim=None))),
    *((name, dict(rope_parameters=dict(full_attention=YARN | dict(truncate=truncate)), **wide)) for name, wide in NESTED for truncate in (None, False, True)),
    *((name, dict(rope_parameters=None, rope_scaling=YARN | dict(truncate=False), **wide)) for name, wide in NESTED),
    *((name, dict(rope_parameters=dict(full_attention=dict(type="linear", factor=8.0)))) for name in ("gemma3", "modernbert")),
    *((name, dict(rope_parameters={})) for name in ("gpt_oss", "gemma3", "modernbert", "nomic_bert")),
    ("gpt_oss", dict(rope_parameters=None, rope_scaling={})),
    ("nomic_bert", dict(rope_parameters=None, rope_scaling=LLAMA3, original_max_position_embeddings=8)),
    ("gemma3", dict(use_bidirectional_attention=True, sliding_window=7)),
    ("gemma3", dict(use_bidirectional_attention=True, sliding_window=7, is_causal=False)),
    ("gpt2", dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=256)),
    ("distilbert", dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4)),
]


@pytest.mark.parametrize("name, keys", ROPES, ids=str)
def test_keys_together_mean_what_they_mean_in_transformers(name, keys, tmp_path, recwarn):
    model = make(name, **NAMES.get(name, {}))
    save(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | keys
    if name in ("gpt2", "distilbert"):  # only the alternative names
        config = {k: v for k, v in config.items() if k not in model.config.attribute_map.values()}
    expected = theirs(name, config, weights_of(model), ids_of(LENGTH))
    logits, notes, refusal = ours(tmp_path, config, ids_of(LENGTH), recwarn)
    assert not refusal and not notes and near(logits, expected)


@pytest.mark.parametrize("name", ["gemma3", "modernbert"])
def test_type_alone_in_rope_scaling_is_refused_where_transformers_ignores_it(name, tmp_path, recwarn):
    _, config = saved(name, tmp_path)
    keys = dict(rope_parameters=None, rope_scaling=dict(type="linear", factor=8.0))
    refusal = ours(tmp_path, config | keys, ids_of(3), recwarn)[2]
    assert refusal.endswith(f"has type and no rope_type in rope_scaling; heed's {config['model_type']} expects rope_type")


@pytest.mark.parametrize("keys, message", [
    (dict(rope_theta=500.0), "has rope_theta 500.0; its other keys say 10000.0"),
    (dict(partial_rotary_factor=0.5), "has partial_rotary_factor 0.5; its other keys say 0.25"),
    (dict(head_dim=16), "has head_dim 16; its other keys say 32.0"),
])
def test_keys_that_transformers_does_not_read_in_gpt_neox_may_not_say_something_else(keys, message, tmp_path, recwarn):
    _, config = saved("gpt_neox", tmp_path)
    assert message in ours(tmp_path, config | keys, ids_of(3), recwarn)[2]


@pytest.mark.parametrize("name", CAUSAL)
def test_a_decoder_that_is_not_causal_reads_texts_whole(name, tmp_path):
    theirs = make(name, is_causal=False)
    model = heed.load_model(save(theirs, tmp_path))
    ids = ids_of(LENGTH)
    with torch.no_grad():
        expected = theirs(ids[None]).logits[0].numpy()
    assert near(model.logits(ids), expected) and not model.info["causal"]
    with pytest.raises(ValueError, match="reads whole texts and has no cache"):
        model.cache()


def test_keys_that_nobody_knows_are_told_and_left_aside(tmp_path):
    model, config = saved("llama", tmp_path)
    keys = {"a_key": 1, "another\n": [2], "rope_parameters": config["rope_parameters"] | {"sections": [1]}}
    (tmp_path / "config.json").write_text(json.dumps(config | keys))
    with pytest.warns(UserWarning) as told:
        logits = heed.load_model(tmp_path).logits(ids_of(5))
    assert [str(one.message) for one in told] == [
        f"'{tmp_path}/config.json' has 'a_key', 'another?', 'rope_parameters.sections', which heed does not know and ignores"]
    with torch.no_grad():
        assert near(logits, model(ids_of(5)[None]).logits[0].numpy())
