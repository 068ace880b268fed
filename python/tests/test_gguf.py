"""heed.load_model of GGUF files, made with the package `gguf`, compared with folders of the same weights."""

import json
import tempfile
from pathlib import Path

import gguf
import numpy as np
import pytest
import tokenizers as tk
import torch
import transformers as t
from safetensors.torch import load_file
from tiny_models import ids_of, make, save

import heed

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA = NAMES | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                 "post_feedforward_layernorm": "post_ffw_norm"}
OTHER_NAMES = {
    "olmo2": {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"},
    "phi3": {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    "gemma2": GEMMA, "gemma3_text": GEMMA, "starcoder2": {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "mixtral": {"block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.experts.w1": "ffn_gate_exps",
                "block_sparse_moe.experts.w3": "ffn_up_exps", "block_sparse_moe.experts.w2": "ffn_down_exps"},
    "gpt_oss": {"post_attention_layernorm": "post_attention_norm", "self_attn.sinks": "attn_sinks", "mlp.router": "ffn_gate_inp",
                **{f"mlp.experts.{name}_proj": f"ffn_{name}_exps" for name in ("gate", "up", "down")}},
    "qwen3_moe": {"mlp.gate": "ffn_gate_inp", **{f"mlp.experts.{name}_proj": f"ffn_{name}_exps" for name in ("gate", "up", "down")}},
}
# Families whose tensors do not stand under "model.": {what stands before a block's number: names}.
ROOTS = {"gpt2": "transformer.h.", "gpt_neox": "gpt_neox.layers.", "bert": "bert.encoder.layer.",
         "nomic_bert": "nomic_bert.encoder.layers."}
OTHER_NAMES |= {
    "gpt2": {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
             "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
             "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "gpt_neox": {"gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output",
                 "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
                 "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"},
    "bert": {"bert.embeddings.word_embeddings": "token_embd", "bert.embeddings.position_embeddings": "position_embd",
             "bert.embeddings.token_type_embeddings": "token_types", "bert.embeddings.LayerNorm": "token_embd_norm",
             "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
             "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
             "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"},
}
OTHER_NAMES["nomic_bert"] = {
    "nomic_bert.embeddings.word_embeddings": "token_embd", "nomic_bert.embeddings.token_type_embeddings": "token_types",
    "nomic_bert.emb_ln": "token_embd_norm", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm1": "attn_output_norm",
    "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down", "norm2": "layer_output_norm"}
INTERLEAVED = ("llama", "smollm3", "granite", "mixtral")
ARCHITECTURES = {"gemma3_text": "gemma3", "gpt_neox": "gptneox", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss",
                 "nomic_bert": "nomic-bert"}  # where it is not model_type
EPSILONS = {"starcoder2": "norm_epsilon", "stablelm": "layer_norm_eps", "gpt2": "layer_norm_epsilon",
            "gpt_neox": "layer_norm_eps", "bert": "layer_norm_eps", "nomic_bert": "layer_norm_eps"}
TYPES = gguf.GGMLQuantizationType


def gguf_name(name, family):
    names = NAMES | OTHER_NAMES.get(family, {})
    stem, ending = name.rsplit(".", 1)
    root = ROOTS.get(family, "model.layers.")
    if stem.startswith(root):
        layer, part = stem.removeprefix(root).split(".", 1)
        return f"blk.{layer}.{names[part]}.{ending}"
    return f"{names[stem]}.{ending}"


def interleaved(rows, heads):
    """Rows of queries or keys in the order of Llama's GGUF files."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write(path, config, state, kind=None, stored=(), edit=None, tensors_a_part=0):
    """Writes `state` {name: tensor} as a GGUF file.

    Tensors in `stored` are bytes of type `kind`. `edit` makes changes through the writer."""
    family = config.model_type
    writer = gguf.GGUFWriter(str(path), ARCHITECTURES.get(family, family), split_max_tensors=tensors_a_part)
    heads, groups = config.num_attention_heads, getattr(config, "num_key_value_heads", config.num_attention_heads)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(4 * config.n_embd if family == "gpt2" else config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    if family in EPSILONS:
        writer.add_layer_norm_eps(getattr(config, EPSILONS[family]))
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if family in ("bert", "nomic_bert"):
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.MEAN)
    if family in ("stablelm", "gpt_neox", "phi3"):
        writer.add_rope_dimension_count(int(config.rope_parameters["partial_rotary_factor"] * config.hidden_size // heads))
    if family in ("stablelm", "gpt_neox"):
        writer.add_parallel_residual(config.use_parallel_residual)
    if family in ("mixtral", "qwen3_moe", "gpt_oss"):
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if family in ("qwen3_moe", "gpt_oss"):
        writer.add_expert_feed_forward_length(getattr(config, "moe_intermediate_size", config.intermediate_size))
    rope = getattr(config, "rope_parameters", {"rope_theta": 10000.0, "rope_type": "default"})
    rope = rope.get("full_attention", rope)
    if family in ("phi3", "gpt_oss") and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)
    if family == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if family in ("gemma2", "gemma3_text"):
        writer.add_sliding_window(config.sliding_window)
        for cap, add in (("attn_logit_softcapping", writer.add_attn_logit_softcapping),
                         ("final_logit_softcapping", writer.add_final_logit_softcapping)):
            if getattr(config, cap, None) and (family == "gemma2" or cap.startswith("final")):
                add(getattr(config, cap))
    writer.add_rope_freq_base(rope["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "longrope":
        for kind in ("long", "short"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))
        factor = config.max_position_embeddings / rope["original_max_position_embeddings"]
        writer.add_rope_scaling_attn_factors((1 + np.log(factor) / np.log(rope["original_max_position_embeddings"])) ** 0.5)
    if rope["rope_type"] in ("yarn", "longrope"):
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if edit:
        edit(writer)
    for name, tensor in state.items():
        rows, raw = (stored[name], kind) if name in stored else (tensor.numpy(), None)
        if family in INTERLEAVED and (".q_proj." in name or ".k_proj." in name):
            rows = interleaved(rows, heads if ".q_proj." in name else groups)
        if family == "gpt2" and ".c_" in name:  # Conv1D
            rows = rows.T
        if family == "gpt_neox" and ".query_key_value." in name:
            rows = rows.reshape(heads, 3, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)
        if family.startswith("gemma") and name.endswith("norm.weight"):
            rows = rows + np.float32(1)
        writer.add_tensor(gguf_name(name, family), np.ascontiguousarray(rows), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def state_of(model):
    """The weights as files name them. Matrices of experts are [E, N, K]."""
    state = {}
    if model.config.model_type == "nomic_bert":  # transformers changes the names as it reads and saves them
        with tempfile.TemporaryDirectory() as folder:
            stored = load_file(save(model, Path(folder)) / "model.safetensors")
        return {name: weight for name, weight in stored.items() if not name.startswith("cls.")}
    for name, weight in model.state_dict().items():
        if model.config.model_type == "mixtral":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        gate, up, down = ("w1", "w3", "w2") if "block_sparse_moe" in name else ("gate_proj", "up_proj", "down_proj")
        if model.config.model_type == "gpt_oss" and name.endswith("_proj") and "experts" in name:
            weight = weight.transpose(1, 2)
            if "gate_up" in name:  # gates and ups in turns
                weight = torch.cat([weight[:, ::2], weight[:, 1::2]], 1)
        if name.endswith("self_attn.sinks"):
            name += ".weight"
        if name.endswith("experts.gate_up_proj"):
            for part, half in zip((gate, up), weight.chunk(2, dim=1)):
                state[name.replace("gate_up_proj", part + ".weight")] = half
        elif name.endswith("experts.gate_up_proj_bias"):
            for part, half in ((gate, weight[:, ::2]), (up, weight[:, 1::2])):
                state[name.replace("gate_up_proj_bias", part + ".bias")] = half
        elif name.endswith("experts.down_proj_bias"):
            state[name.replace("down_proj_bias", down + ".bias")] = weight
        elif name.endswith("experts.down_proj"):
            state[name.replace("down_proj", down + ".weight")] = weight
        else:
            state[name] = weight
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return {name: weight for name, weight in state.items() if not name.startswith("cls.")}  # files hold BERT's encoder alone


def folder_and_file(tmp_path, model, **how):
    folder = save(model, tmp_path / "folder")
    return heed.load_model(folder), heed.load_model(write(tmp_path / "m.gguf", model.config, state_of(model), **how))


# Files of Gemma have norms of 1 + w: a rounding of w. Their scores are divided by the root of head_dim. gpt-oss's folder
# has other layouts of experts, whose products sum in another order.
@pytest.mark.parametrize("name, settings, tolerance", [
    ("llama", {}, 0), ("llama-linear", {}, 0), ("qwen2", {}, 0), ("qwen3", {}, 0), ("olmo2", {}, 0), ("phi3", {}, 0),
    ("phi3-windows", {}, 0), ("phi3-long", {}, 0), ("phi3-partial", {}, 0), ("smollm3", dict(no_rope_layer_interval=4, use_sliding_window=False), 0),
    ("granite", dict(attention_multiplier=0.25, mlp_bias=False), 0), ("llama-yarn", {}, 0), ("stablelm", {}, 0),
    ("stablelm-parallel", {}, 0), ("starcoder2", dict(sliding_window=None), 0), ("mixtral", {}, 0),
    ("gpt2", {}, 0), ("gpt_neox", {}, 0), ("gpt_neox-serial", {}, 0),
    ("gpt_oss", {}, 1e-5), ("qwen3_moe", dict(mlp_only_layers=None, norm_topk_prob=True), 0), ("gemma", {}, 1e-5),
    ("gemma2", dict(query_pre_attn_scalar=16), 1e-5), ("gemma3", dict(query_pre_attn_scalar=16), 1e-5)])
def test_a_file_of_f32_gives_the_logits_of_its_folder(name, settings, tolerance, tmp_path):
    folder, file = folder_and_file(tmp_path, make(name, **settings))
    assert {**file.info, "context": 0} == {**folder.info, "context": 0}
    expected = folder.logits(ids_of(40))
    np.testing.assert_allclose(file.logits(ids_of(40)), expected, rtol=0, atol=tolerance * np.abs(expected).max())


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "animal", "un", "##believ", "##able", ",", "é", "e", "##s", "中"]


@pytest.mark.parametrize("marked", [True, False], ids=["with types of tokens", "without"])
def test_bert_gives_the_hidden_states_and_ids_of_its_folder(marked, tmp_path):
    model = make("bert")

    def vocabulary(writer):
        control = [word.startswith("[") for word in WORDS]
        writer.add_tokenizer_model("bert")
        writer.add_token_list([word if special else word[2:] if word.startswith("##") else "\u2581" + word
                               for word, special in zip(WORDS, control)])
        if marked:
            writer.add_token_types([gguf.TokenType.CONTROL if special else gguf.TokenType.NORMAL for special in control])
        writer.add_unk_token_id(WORDS.index("[UNK]"))
        writer.add_sep_token_id(WORDS.index("[SEP]"))
        writer.add_uint32(f"tokenizer.ggml.{'cls' if marked else 'bos'}_token_id", WORDS.index("[CLS]"))

    folder, file = folder_and_file(tmp_path, model, edit=vocabulary)
    np.testing.assert_array_equal(file.hidden_states(ids_of(40)), folder.hidden_states(ids_of(40)))
    assert not file.info["causal"] and not file.info["predicts"]
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    theirs = tk.BertWordPieceTokenizer(str(tmp_path / "vocab.txt"), lowercase=True)
    for text in ("The animal", "Unbelievable, animals", "É es 中中", "xyz the", "", "the\x00 \u200b animal"):
        assert file.token_ids(text) == theirs.encode(text).ids, text
    with pytest.raises(OSError, match="is_causal"):  # as llama.cpp takes it
        heed.load_model(write(tmp_path / "causal.gguf", model.config, state_of(model), edit=without("attention.causal")))


def test_nomic_bert_gives_the_hidden_states_of_its_folder(tmp_path):
    model = make("nomic_bert")
    folder, file = folder_and_file(tmp_path, model)
    np.testing.assert_array_equal(file.hidden_states(ids_of(40)), folder.hidden_states(ids_of(40)))
    assert not file.info["causal"] and not file.info["predicts"] and folder.info["predicts"]
    # Without the key, llama.cpp rotates by a base of 10,000.
    bare = heed.load_model(write(tmp_path / "bare.gguf", model.config, state_of(model), edit=without("rope.freq_base")))
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 10000.0
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config))
    theirs = heed.load_model(tmp_path / "folder")
    np.testing.assert_array_equal(bare.hidden_states(ids_of(40)), theirs.hidden_states(ids_of(40)))
    with pytest.raises(OSError, match="is_causal"):
        heed.load_model(write(tmp_path / "causal.gguf", model.config, state_of(model), edit=without("attention.causal")))


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "bert", "stablelm"])
def test_heads_that_are_not_a_share_of_the_stream_are_refused(name, tmp_path):
    model = make(name)
    path = write(tmp_path / "m.gguf", model.config, state_of(model), edit=lambda writer: writer.add_key_length(4))
    with pytest.raises(OSError, match="has heads that together are not as wide as the stream"):
        heed.load_model(path)


def test_gemma_has_the_defaults_of_llama_cpp(tmp_path):
    """Gemma 2 without its values: a window of 4096, caps of 50 and 30. Gemma 3 without a window: all layers see all keys."""
    model = make("gemma2", query_pre_attn_scalar=16, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, sliding_window=4096)
    path = write(tmp_path / "2.gguf", model.config, state_of(model),
                 edit=without("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"))
    folder = heed.load_model(save(model, tmp_path / "gemma2"))
    np.testing.assert_allclose(heed.load_model(path).logits(ids_of(40)), folder.logits(ids_of(40)), rtol=0, atol=1e-4)
    model = make("gemma3", query_pre_attn_scalar=16)
    folder = save(model, tmp_path / "gemma3")
    config = json.loads((folder / "config.json").read_text())
    config["layer_types"] = ["full_attention"] * 7
    (folder / "config.json").write_text(json.dumps(config))
    path = write(tmp_path / "3.gguf", model.config, state_of(model), edit=without("attention.sliding_window"))
    np.testing.assert_allclose(heed.load_model(path).logits(ids_of(40)), heed.load_model(folder).logits(ids_of(40)), rtol=0,
                               atol=1e-4)


def test_the_parts_of_a_split_file_are_one_model(tmp_path):
    model = make("llama")
    whole = heed.load_model(write(tmp_path / "whole.gguf", model.config, state_of(model)))
    write(tmp_path / "m.gguf", model.config, state_of(model), tensors_a_part=11)
    parts = sorted(tmp_path.glob("m-*.gguf"))
    assert [part.name for part in parts] == [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    np.testing.assert_array_equal(heed.load_model(parts[0]).logits(ids_of(20)), whole.logits(ids_of(20)))
    with pytest.raises(OSError, match="is part 2 of 3; the first part, whose name ends in -00001-of-00003.gguf, is expected"):
        heed.load_model(parts[1])
    other = parts[0].rename(tmp_path / "other.gguf")
    with pytest.raises(OSError, match="is the first of 3 parts; a name that ends in -00001-of-00003.gguf is expected"):
        heed.load_model(other)
    other.rename(parts[0])
    parts[2].rename(parts[1])
    with pytest.raises(OSError, match="m-00002-of-00003.gguf' is not part 2 of 3"):
        heed.load_model(parts[0])
    parts[1].unlink()
    with pytest.raises(OSError, match="m-00002-of-00003.gguf"):
        heed.load_model(parts[0])


def test_the_divisors_of_llama_3_are_its_rule(tmp_path):
    rope = dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=8192)
    model = of_width_256(rope_parameters=rope, max_position_embeddings=131072)
    base = 500000.0 ** -(np.arange(0, 64, 2) / 64)
    length = 2 * np.pi / base
    smooth = (8192 / length - 1) / 3
    divisors = np.where(length < 2048, 1, np.where(length > 8192, 32, 1 / ((1 - smooth) / 32 + smooth)))

    def add(writer, by=1.0):
        writer.add_tensor("rope_freqs.weight", (divisors * np.where(np.arange(32) == 20, by, 1)).astype(np.float32))

    folder, file = folder_and_file(tmp_path, model, edit=add)
    np.testing.assert_array_equal(file.logits(ids_of(60)), folder.logits(ids_of(60)))
    path = write(tmp_path / "other.gguf", model.config, state_of(model), edit=lambda writer: add(writer, 1.2))
    with pytest.raises(OSError, match="rope_freqs.weight that does not follow Llama 3's rule"):
        heed.load_model(path)


def test_the_factors_of_longrope_are_all_there_and_alone(tmp_path):
    model = make("llama")

    def refusal(*kinds, factor=1.0):
        def edit(writer):
            for kind in kinds:
                writer.add_tensor(f"rope_factors_{kind}.weight", np.ones(4, np.float32))
            writer.add_float32("llama.rope.scaling.factor", factor)
        with pytest.raises(OSError) as error:
            heed.load_model(write(tmp_path / "m.gguf", model.config, state_of(model), edit=edit))
        return str(error.value)

    assert "has no tensor rope_factors_short.weight" in refusal("long")
    assert "has no tensor rope_factors_long.weight" in refusal("short")
    assert "has both rope_factors_long.weight and llama.rope.scaling.factor; one is expected" in refusal("long", "short", factor=2.0)
    assert "has no llama.rope.scaling.original_context_length" in refusal("long", "short")


def without(*names):
    return lambda writer: [writer.kv_data[0].pop(f"{writer.arch}.{name}") for name in names]


def scaled(factor, kind=None, key="rope.scaling.factor"):
    def edit(writer):
        writer.add_float32(f"llama.{key}", factor)
        if kind is not None:
            writer.add_rope_scaling_type(kind)
    return edit


def with_the_old_name(writer):
    without("rope.scaling.type", "rope.scaling.factor")(writer)
    scaled(4.0, key="rope.scale_linear")(writer)


SCALING = gguf.RopeScalingType


# llama.cpp defines the meaning of missing values; other values change the model.
@pytest.mark.parametrize("name, settings, edit, other", [
    ("llama", {}, without("rope.freq_base"), {}),
    ("qwen2", {}, without("rope.freq_base"), {}),
    ("llama", dict(num_key_value_heads=4), without("attention.head_count_kv"), {}),
    ("qwen3", dict(head_dim=8), without("attention.key_length", "attention.value_length"), {}),
    ("llama-linear", {}, without("rope.scaling.type"), {}),
    ("llama-linear", {}, with_the_old_name, {}),
    ("llama", {}, scaled(0.0), {}),
    ("llama", {}, scaled(4.0, SCALING.NONE), {}),
    ("llama", {}, lambda writer: writer.add_rope_scaling_type(SCALING.LINEAR), {}),
    ("llama", {}, lambda writer: writer.add_causal_attention(False), dict(is_causal=False)),
    ("llama", {}, lambda writer: writer.add_causal_attention(True), {}),
    ("qwen3", {}, lambda writer: writer.add_pooling_type(gguf.PoolingType.LAST), {}),
    ("llama", {}, lambda writer: (writer.add_rope_scaling_orig_ctx_len(64), writer.add_rope_scaling_finetuned(True)), {}),
    ("llama", {}, lambda writer: (writer.add_expert_count(0), writer.add_expert_used_count(0)), {}),
    ("llama", {}, lambda writer: (writer.add_tensor_data_layout("reference"), writer.add_quantization_version(2)), {}),
])
def test_values_mean_what_they_mean_in_llama_cpp(name, settings, edit, other, tmp_path):
    model = make(name, **settings)
    path = write(tmp_path / "m.gguf", model.config, state_of(model), edit=edit)
    folder = heed.load_model(save(make(name, **settings | other), tmp_path / "folder"))
    np.testing.assert_array_equal(heed.load_model(path).logits(ids_of(40)), folder.logits(ids_of(40)))


def test_every_value_of_the_architecture_is_read_unused_or_refused(tmp_path):
    """All keys that the package `gguf` knows, with a number and with a boolean."""
    model = make("llama")
    state, plain = state_of(model), write(tmp_path / "plain.gguf", model.config, state_of(model))
    expected = heed.load_model(plain).logits(ids_of(9))
    unused = []
    for group in (gguf.Keys.LLM, gguf.Keys.Attention, gguf.Keys.Rope):
        for key in (value.replace("{arch}", "llama") for value in vars(group).values() if "{arch}." in str(value)):
            for add in (lambda writer: writer.add_uint32(key, 5), lambda writer: writer.add_bool(key, False)):
                try:
                    logits = heed.load_model(write(tmp_path / "m.gguf", model.config, state, edit=lambda w: put(w, key, add)))
                except OSError:
                    continue
                if np.array_equal(logits.logits(ids_of(9)), expected):
                    unused.append(key)
    assert sorted(set(unused)) == ["llama.context_length", "llama.expert_used_count", "llama.pooling_type",
                                   "llama.rope.scaling.finetuned", "llama.rope.scaling.original_context_length",
                                   "llama.rope.scaling.yarn_beta_fast", "llama.rope.scaling.yarn_beta_slow",  # another type
                                   "llama.tensor_data_layout"]


def put(writer, key, add):
    writer.kv_data[0].pop(key, None)
    add(writer)


def test_values_that_nobody_knows_are_told_and_left_aside(tmp_path):
    model = make("llama")
    path = write(tmp_path / "m.gguf", model.config, state_of(model),
                 edit=lambda writer: (writer.add_uint32("qwen2.block_count", 9), writer.add_string("general.author", "me")))
    with pytest.warns(UserWarning, match="m.gguf' has 'qwen2.block_count', which heed does not know and ignores"):
        heed.load_model(path)


def of_width_256(**settings):
    config = t.LlamaConfig(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                           intermediate_size=512, vocab_size=101, bos_token_id=None, eos_token_id=None,
                           **dict(max_position_embeddings=256) | settings)
    torch.manual_seed(5)
    return t.LlamaForCausalLM(config).eval()


# Where blocks have factors in f16.
FACTORS = {TYPES.Q8_0: (0,), TYPES.Q4_0: (0,), TYPES.Q4_1: (0, 2), TYPES.Q5_0: (0,), TYPES.Q5_1: (0, 2), TYPES.Q2_K: (80, 82),
           TYPES.Q3_K: (108,), TYPES.Q4_K: (0, 2), TYPES.Q5_K: (0, 2), TYPES.Q6_K: (208,), TYPES.IQ4_NL: (0,), TYPES.IQ4_XS: (0,)}
LARGEST = {256: 5e-5, 32: 1e-3}  # of weights of a usual size, by the numbers of a block


def random_blocks(kind, shape, generator):
    """Bytes of a quantised matrix: random codes and scales, with factors (f16) of typical weight size."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (shape[0], shape[1] // values, size), dtype=np.uint8)
    if kind == TYPES.MXFP4:
        blocks[..., 0] = generator.integers(118, 122, blocks.shape[:2])  # an exponent
    for at in FACTORS.get(kind, ()):
        scale = generator.uniform(0.2, 1, blocks.shape[:2]) * LARGEST[values]
        blocks[..., at:at + 2] = scale.astype(np.float16)[..., None].view(np.uint8)
    return blocks.reshape(shape[0], -1)


# The numbers are equal. Differences are one rounding each on processors that fuse d q - m l.
@pytest.mark.parametrize("kind", [*FACTORS, TYPES.MXFP4, TYPES.F16, TYPES.BF16])
def test_quantised_weights_are_those_of_the_gguf_package(kind, tmp_path):
    generator = np.random.default_rng(3)
    model = of_width_256()
    state, stored = state_of(model), {}
    for name, tensor in state.items():
        if tensor.ndim != 2:
            continue
        shape = tuple(tensor.shape)
        if kind in (TYPES.F16, TYPES.BF16):
            stored[name] = gguf.quants.quantize(tensor.numpy(), kind)
        else:
            stored[name] = random_blocks(kind, shape, generator)
        tensor.copy_(torch.from_numpy(gguf.quants.dequantize(stored[name], kind).reshape(shape)))
    folder = heed.load_model(save(model, tmp_path / "folder"))
    path = write(tmp_path / "m.gguf", model.config, state, kind=kind, stored=stored)
    for length in (1, 3, 40):  # few rows use other kernels
        expected = folder.logits(ids_of(length))
        np.testing.assert_allclose(heed.load_model(path).logits(ids_of(length)), expected, rtol=0,
                                   atol=1e-5 * np.abs(expected).max())


TEXTS = ["the cat sat on the mat, the cat's 12345 hats!", "  naïve café \n\n\tx = [1, 22, 333];  ", "Füße 日本語 🤗 emoji",
         "I'LL we'll don't", "<|end|>after"]


def trained(cut, normalizer=None, **model):
    made = tk.Tokenizer(tk.models.BPE(**model))
    made.normalizer = normalizer
    level = tk.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut is None)
    made.pre_tokenizer = level if cut is None else tk.pre_tokenizers.Sequence(
        [tk.pre_tokenizers.Split(tk.Regex(cut), "isolated"), level])
    made.decoder = tk.decoders.ByteLevel()
    made.train_from_iterator(TEXTS * 3, tk.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|end|>"], initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return made


CUT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
       r"|\s+(?!\S)|\s+")


# From llama-vocab.cpp of llama.cpp: names that share a pre-tokenizer, and whether texts begin with BOS by default.
PRE = {
    "llama-bpe": (True, ["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"]),
    "gpt-2": (False, ["gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "modern-bert", "exaone4", "jina-es", "jina-de",
                      "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code", "roberta-bpe", "mpt", "olmo", "jais", "trillion",
                      "granite-docling"]),
    "qwen2": (False, ["qwen2", "megrez", "deepseek-r1-qwen", "kormo", "stablelm2"]),
    "smollm": (False, ["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"]),
    "dbrx": (False, ["dbrx", "smaug-bpe"]),
}


@pytest.mark.parametrize("pre", PRE)
def test_byte_level_tokens_are_those_of_tokenizers(pre, tmp_path):
    cut = {"gpt-2": None, "smollm": None, "llama-bpe": CUT % "{1,3}", "dbrx": CUT % "{1,3}", "qwen2": CUT % ""}[pre]
    theirs = trained(cut, tk.normalizers.NFC() if pre == "qwen2" else None, ignore_merges=pre == "llama-bpe")
    if pre == "smollm":
        theirs.pre_tokenizer = tk.pre_tokenizers.Sequence([tk.pre_tokenizers.Digits(individual_digits=True), theirs.pre_tokenizer])
    data = json.loads(theirs.to_str())["model"]
    tokens = sorted(data["vocab"], key=data["vocab"].get)
    model = make("llama", vocab_size=len(tokens))
    begins, names = PRE[pre]

    def file(name, begin=None, end=None):
        def add(writer):
            writer.add_tokenizer_model("gpt2")
            writer.add_tokenizer_pre(name)
            writer.add_token_list(tokens)
            writer.add_token_types([3 if token == "<|end|>" else 1 for token in tokens])
            writer.add_token_merges([" ".join(merge) for merge in data["merges"]])
            writer.add_bos_token_id(7)
            writer.add_eos_token_id(8)
            if begin is not None:
                writer.add_add_bos_token(begin)
            if end is not None:
                writer.add_add_eos_token(end)
        return heed.load_model(write(tmp_path / "m.gguf", model.config, state_of(model), edit=add))

    for name in names:
        ours = file(name)
        for text in TEXTS:
            assert ours.token_ids(text) == [7] * begins + theirs.encode(text).ids
    for begin in (False, True):
        for end in (False, True):
            assert file(pre, begin, end).token_ids(TEXTS[0]) == [7] * begin + theirs.encode(TEXTS[0]).ids + [8] * end


def test_texts_begin_and_end_with_the_tokens_of_the_metadata(tmp_path):
    model = make("llama")
    letters = sorted(tk.pre_tokenizers.ByteLevel.alphabet())[:100]
    tokens = [*letters, letters[0] + letters[1]]

    def file(begin, end, of="eos"):
        def add(writer):
            writer.add_tokenizer_model("gpt2")
            writer.add_tokenizer_pre("gpt-2")
            writer.add_token_list(tokens)
            writer.add_token_merges([" ".join(letters[:2])])
            writer.add_bos_token_id(begin)
            writer.add_eos_token_id(end if of == "eos" else 100)
            if of != "eos":
                writer.add_uint32(f"tokenizer.ggml.{of}_token_id", end)
        return heed.load_model(write(tmp_path / f"{begin}-{end}-{of}.gguf", model.config, state_of(model), edit=add))

    first, second, *_ = (int(file(3, 100).logits(ids).argmax(1)[-1]) for ids in ([3], [7]))
    assert first != second and 100 not in (first, second)
    def written(begin, end, of="eos"):
        return [token["id"] for token in file(begin, end, of).watch("", tokens=4, temperature=0)]

    assert written(3, 100)[:2] == [3, first] and written(7, 100)[:2] == [7, second]
    assert len(written(7, 100)) == 4 and written(7, second) == [7, second]
    for turn in ("eot", "eom"):  # these end a text too, as in llama.cpp
        assert written(7, second, turn) == [7, second] and len(written(7, 2**32 - 1, turn)) == 4


def sentence_piece(text, scores):
    """Ids from the rule itself: merge the neighbours whose joined piece has the best score, the first of equals."""
    pieces = list("\u2581" + text.replace(" ", "\u2581"))
    while True:
        found = [(-scores[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in scores]
        if not found:
            return pieces
        at = min(found)[1]
        pieces[at:at + 2] = [pieces[at] + pieces[at + 1]]


def test_sentence_piece_tokens_are_those_of_its_rule(tmp_path):
    letters = sorted(set("\u2581" + "".join(TEXTS[0])))
    merged = ["he", "th", "the", "\u2581the", "at", "cat", "\u2581c", "\u2581cat", "\u2581the\u2581cat", "on", "\u2581o", "\u2581on", "12", "34"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *merged, *letters]
    scores = [0.0] * 259 + [-float(i) for i in range(len(merged))] + [-1000.0] * len(letters)
    types = [2, 3, 3, *[6] * 256, *[1] * (len(merged) + len(letters))]

    model = make("llama", vocab_size=len(tokens))

    def file(edit=lambda writer: None):
        def add(writer):
            writer.add_tokenizer_model("llama")
            writer.add_token_list(tokens)
            writer.add_token_scores(scores)
            writer.add_token_types(types)
            edit(writer)
        return heed.load_model(write(tmp_path / "m.gguf", model.config, state_of(model), edit=add))

    ours = file()
    known = dict(zip(tokens[259:], scores[259:]))
    for text in ("the cat sat on the mat", "cat the on 1234", "thethe  on"):
        text = text.translate({ord(c): None for c in text if c not in "\u2581 " and c not in letters})
        expected = [1, *(tokens.index(piece) for piece in sentence_piece(text, known))]
        assert ours.token_ids(text) == expected
    assert [tokens[i] for i in ours.token_ids("é")] == ["<s>", "\u2581", "<0xC3>", "<0xA9>"]
    ends = file(lambda writer: (writer.add_add_bos_token(False), writer.add_add_eos_token(True)))
    assert [tokens[i] for i in ends.token_ids("the cat")] == [*sentence_piece("the cat", known), "</s>"]


@pytest.mark.parametrize("edit, message", [
    (lambda writer: writer.add_expert_count(4), "has no llama.expert_used_count"),
    (lambda writer: writer.add_clamp_kqv(4.0), "has 'llama.attention.clamp_kqv', which heed does not know"),
    (lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), "rope.scaling.type 'longrope'"),
    (lambda writer: writer.add_rope_dimension_count(6), "rope.dimension_count 6; heads are 8 wide"),
    (lambda writer: writer.add_tensor("blk.0.other.weight", np.zeros(3, np.float32)),
     "has a tensor 'blk.0.other.weight' that is not a parameter of the model of its metadata"),
    (lambda writer: writer.add_tensor("blk.0.other.weight", np.zeros(3, np.int32)), "of type I32; heed reads F32"),
])
def test_what_is_not_understood_is_refused(edit, message, tmp_path):
    model = make("llama")
    path = write(tmp_path / "m.gguf", model.config, state_of(model), edit=edit)
    with pytest.raises(OSError) as error:
        heed.load_model(path)
    assert path in str(error.value) and message in str(error.value)
