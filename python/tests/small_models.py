"""The models of the installed transformers, made small through their configs' fields, and inputs for them."""

import copy
import dataclasses
import inspect
import re

import torch
import transformers
from transformers import PreTrainedConfig
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 64
LENGTH, DECODED = 9, 7
HEAD = 16
LAYERS = r"(.*_)?(num_hidden_layers|(num_|n_)?layers|n_layer|depth|num_blocks|hidden_layers)"
SHARED_HEADS = r"(.*_)?(num_key_value_heads|num_kv_heads|n_kv_heads|multi_query_group_num)"
SIZES = {  # the first pattern that matches the whole name counts; smaller values stay
    r".*(intermediate_size|ffn_dim|d_ff|mlp_dim|ffn_hidden_size|n_inner|ffn_size|intermediate_dim|feedforward_dim"
    r"|dim_feedforward|dim_ff|hidden_size_mlp)": 64,
    r"max_position_embeddings|n_positions|max_seq_len|max_(source|target)_positions|n_ctx|max_sequence_length"
    r"|max_2d_position_embeddings": 64,
    LAYERS: 2,
    SHARED_HEADS: 2,
    r"(.*_)?(num_attention_heads|attention_heads|num_heads|n_heads?|attn_heads)": 4,
    r"(.*_)?qk_(rope|nope)_head_dim": 8,
    r"(.*_)?(head_dim|d_kv|dim_head|attention_head_size|d_head|rotary_dim)": HEAD,
    r"(.*_)?(hidden_size|d_model|n_embd|embed_dim|hidden_dim|dim|projection_dim|embedding_size|embedding_dim|emb_dim"
    r"|model_dim|d_embed|width|hidden_channels|output_dim|pooler_output_size|project_dim|projection_size"
    r"|adapter_input_size|entity_emb_size)": 64,
    r"(.*_)?vocab_size(_\w+)?": VOCABULARY,
    r"(q|kv|o)_lora_rank": 16,
    r"(.*_)?(num_experts|n_routed_experts|num_local_experts)": 4,
    r"num_experts_per_tok(en)?|moe_top_?k|top_k_experts|moe_k|n_group|topk_group": 2,
    r"index_topk": 4,  # fewer than there are tokens
    r"image_size|input_size": 32,
    r"patch_size": 8,
    r"num_queries|num_query_tokens": 6,
}
PATTERNS = [(re.compile(pattern), size) for pattern, size in SIZES.items()]
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# Further settings that a config needs, for example where its defaults make no valid model.
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16}
ALSO = {
    "bamba": MAMBA | {"attn_layer_indices": [1]},
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"],
                            "rope_parameters": {"sliding_attention": MROPE, "full_attention": MROPE}},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 0, "mask_token_id": 5},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 128},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "glm4v_moe_text": {"rope_parameters": MROPE | {"mrope_section": [2, 1, 1]}},
    "glm4v_text": {"rope_parameters": MROPE},
    "glm5_next_text": {"index_topk": 16},
    "glm_image_text": {"rope_parameters": MROPE},
    "glm_ocr_text": {"rope_parameters": MROPE},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": MAMBA | {"layer_types": ["mamba", "attention"]},
    "granite_speech5_ctc": {"context_size": 32},
    "granite_speech5_encoder": {"context_size": 32},
    "hunyuan_v1_dense": {"head_dim": HEAD},
    "hunyuan_v1_moe": {"head_dim": HEAD},
    "hunyuan_vl_text": {"head_dim": HEAD, "rope_parameters": MROPE},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "longcat_flash": {"head_dim": 8},
    "lw_detr_vit": {"num_windows": 4},
    "mamba2": {"num_heads": 8},
    "ministral": {"head_dim": HEAD},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": {"n_groups": 2, "mamba_num_heads": 8},
    "paddleocr_vl_text": {"rope_parameters": MROPE},
    "qwen2_5_omni_text": {"rope_parameters": MROPE},
    "qwen2_5_vl_text": {"rope_parameters": MROPE},
    "qwen2_vl_text": {"rope_parameters": MROPE},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": HEAD, "indexer_budget": 4,
                       "indexer_compress_ratio": 2},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "sam3_lite_text_text_model": {"use_repmixer_blocks": False},
    "swin": {"embed_dim": 48, "depths": (1, 1), "image_size": 56, "patch_size": 4},
    "vjepa2": {"crop_size": 32, "frames_per_clip": 4},
    "xmod": {"default_language": "en_XX"},
    "yolos": {"image_size": [32, 32]},
    "zamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1,
              "layers_block_type": ["mamba", "hybrid"] * 2, "attention_hidden_size": 128, "attention_head_dim": 32},
}


def model_types():
    """{type: its classes in transformers' auto mappings}, as names."""
    found = {}
    for name in dir(modeling_auto):
        if re.fullmatch(r"MODEL.*_MAPPING", name):
            for kind, classes in getattr(modeling_auto, name)._model_mapping.items():
                known = found.setdefault(kind, [])
                known += [x for x in (classes if isinstance(classes, tuple | list) else [classes]) if x not in known]
    return found


def classes(names):
    """The classes, except those of libraries that are not installed."""
    found = (getattr(transformers, name, None) for name in names)
    return [x for x in found if isinstance(x, type) and issubclass(x, transformers.PreTrainedModel)]


def is_size(value):
    return isinstance(value, int) and not isinstance(value, bool)


def small(config):
    """A config of the same class with small sizes: two layers, or one of each kind."""
    old = dict(config.__dict__)
    names = [field.name for field in dataclasses.fields(config)]
    depths = {old.get(name) for name in names if is_size(old.get(name)) and PATTERNS[2][0].fullmatch(name)}

    def is_per_layer(name):
        value = old.get(name)
        return isinstance(value, list | tuple) and len(value) > 1 and len(value) in depths and name != "architectures"

    kinds = [len(set(old[name])) for name in names if is_per_layer(name) and isinstance(old[name][0], str)]
    depth = max([2, *kinds])
    free = iter(range(VOCABULARY - 1, 3, -1))
    given = {}
    for name in names:
        value = old.get(name)
        if isinstance(value, PreTrainedConfig):
            given[name] = small(value)
        elif is_per_layer(name):
            each = list(dict.fromkeys(value)) if isinstance(value[0], str) else list(value)
            given[name] = type(value)((each * depth)[:depth])
        elif re.fullmatch(r".*token_(id|index)|.*_token", name) and is_size(value) and value >= VOCABULARY:
            given[name] = SPECIAL[name] if name in SPECIAL else next(free)
        elif name == "eos_token_id" and isinstance(value, list | tuple):
            given[name] = SPECIAL[name]
        elif name in ("rope_parameters", "rope_scaling") and isinstance(value, dict):
            given[name] = small_rope(value, old)
        elif is_size(value):
            given |= small_size(name, value, old, depth)
    return type(config)(**given | ALSO.get(config.model_type, {}))


def small_size(name, value, old, depth):
    for pattern, size in PATTERNS:
        if pattern.fullmatch(name):
            if pattern.pattern == LAYERS:
                size = depth
            elif pattern.pattern == SHARED_HEADS:  # shared or not, as before
                heads = old.get(re.sub("key_value_heads|kv_heads", "attention_heads", name))
                size = 4 if value == heads else min(value, 2)
            return {name: min(value, size)}
    return {}


def small_rope(value, old):
    head = old.get("head_dim") or (old.get("hidden_size") or 64) // (old.get("num_attention_heads") or 4)
    value = copy.deepcopy(value)
    for each in (value, *(x for x in value.values() if isinstance(x, dict))):
        if "mrope_section" in each:
            size, parts = sum(each["mrope_section"]) * HEAD // head, len(each["mrope_section"])
            each["mrope_section"] = [size - (parts - 1) * (size // parts), *[size // parts] * (parts - 1)]
        for name in ("long_factor", "short_factor"):
            if name in each:
                each[name] = [1.0] * (HEAD // 2)
        if "original_max_position_embeddings" in each:
            each["original_max_position_embeddings"] = 32
    return value


@torch.no_grad()
def randomise(model):
    """Draws parameters that make attention uneven, gates open and biases nonzero."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in sorted(model.named_parameters()):
        if not parameter.is_floating_point():
            continue
        drawn = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() < 2:
            parameter.add_(0.1 * drawn)
        elif (parameter.dim() == 2 and name.endswith("weight") or parameter.dim() == 3
              or not parameter.isfinite().all() or parameter.std() < 1e-6):
            inputs = parameter.shape[-1] if parameter.dim() == 2 else parameter[0].numel()
            parameter.copy_(1.2 / max(1, inputs) ** 0.5 * drawn)


def find(config, *names, default=None):
    """The first of these settings that a config or one of its parts has."""
    for name in names:
        if config.__dict__.get(name) is not None:
            return config.__dict__[name]
    parts = (getattr(config, name, None) for name in config.sub_configs)
    found = (find(part, *names) for part in parts if part is not None)
    return next((value for value in found if value is not None), default)


def inputs(model):
    """Arguments that forward() may accept, likeliest first: words with a picture, video or sound, or one of those
    alone."""
    config, arguments = model.config, inspect.signature(model.forward).parameters
    generator = torch.Generator().manual_seed(2)

    def draw(*shape):
        return torch.rand(shape, generator=generator)

    words = {name: torch.randint(4, 24, (2, length), generator=generator)
             for name, length in (("input_ids", LENGTH), ("decoder_input_ids", DECODED)) if name in arguments}
    if "bbox" in arguments:
        words["bbox"] = (torch.arange(4).expand(2, LENGTH, 4) * 3 + 1).to(
            torch.float32 if config.model_type == "udop" else torch.int64)
    if "token_type_ids" in arguments and "pali" in config.model_type:  # its processor always gives them
        words["token_type_ids"] = (torch.arange(LENGTH) > 3).long().expand(2, -1)
    channels = find(config, "num_channels", "in_channels", "in_chans", default=3)
    frames = find(config, "num_frames", "frames_per_clip", default=2)
    mels = find(config, "num_mel_bins", "feature_size", "feature_projection_input_dim", "input_size", default=80)
    size = find(config, "image_size", default=64)
    size = tuple(size) if isinstance(size, list | tuple) else (size, size)
    patches = [16, channels * find(config, "patch_size", default=8) ** 2] if "grid_thw" in arguments else []
    grid = {"grid_thw": torch.tensor([[1, 4, 4]])}
    shapes = {
        "pixel_values": [(2, channels, *size), (2, frames, channels, *size)],
        "pixel_values_videos": [(2, frames, 3, *size)],
        "input_values": [(2, 2000), (2, 1, 2000), (2, find(config, "max_length", default=64), mels), (2, 1920)],
        "input_features": [(2, mels, 128), (2, 64, mels), (2, mels, 64), (2, mels, 3000)],
        "past_values": [(2, find(config, "context_length", default=32), find(config, "num_input_channels", default=1))],
    }
    media = [{name: draw(*shape)} for name, tried in shapes.items() if name in arguments for shape in tried]
    if patches:
        name = "hidden_states" if "hidden_states" in arguments else "pixel_values"
        media = [{name: draw(16, patches[1] * times), **grid} for times in (1, 2)] + media
    yield from (words | each for each in media)
    yield words
    if "input_ids" in words:
        del words["input_ids"]
        yield from (words | each for each in media)
