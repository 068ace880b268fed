"""Tiny models of every family that heed.load_model reads, made with transformers, with random weights."""

import copy
import functools

import torch
import transformers as t

SIZES = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, vocab_size=101,
             max_position_embeddings=256)
GROUPED = SIZES | dict(num_key_value_heads=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.2, 1.5, 2.0], long_factor=[1.0, 2.0, 4.0, 6.0])
GEMMA = GROUPED | dict(head_dim=16, query_pre_attn_scalar=24, sliding_window=8, final_logit_softcapping=3.0)

FAMILIES = {
    "bert": (t.BertForMaskedLM, t.BertConfig, SIZES),
    "bert-untied": (t.BertForMaskedLM, t.BertConfig, SIZES | dict(tie_word_embeddings=False, hidden_act="gelu_new")),
    "roberta": (t.RobertaForMaskedLM, t.RobertaConfig, SIZES | dict(pad_token_id=1)),
    "xlm-roberta": (t.XLMRobertaForMaskedLM, t.XLMRobertaConfig, SIZES | dict(pad_token_id=1, type_vocab_size=1)),
    "camembert": (t.CamembertForMaskedLM, t.CamembertConfig, SIZES | dict(pad_token_id=5, tie_word_embeddings=False)),
    "mpnet": (t.MPNetForMaskedLM, t.MPNetConfig, SIZES | dict(pad_token_id=1)),
    "modernbert": (t.ModernBertForMaskedLM, t.ModernBertConfig, SIZES | dict(local_attention=8, pad_token_id=1)),
    "nomic_bert": (t.NomicBertForMaskedLM, t.NomicBertConfig, SIZES | dict(pad_token_id=1)),
    "electra": (t.ElectraForMaskedLM, t.ElectraConfig, SIZES | dict(embedding_size=16)),
    "electra-wide": (t.ElectraForMaskedLM, t.ElectraConfig, SIZES | dict(embedding_size=32, hidden_act="relu")),
    "distilbert": (t.DistilBertForMaskedLM, t.DistilBertConfig,
                   dict(dim=32, n_layers=3, n_heads=4, hidden_dim=48, vocab_size=101, max_position_embeddings=256)),
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config, dict(n_embd=32, n_layer=3, n_head=4, vocab_size=101, n_positions=256)),
    "gpt2-scaled": (t.GPT2LMHeadModel, t.GPT2Config,
                    dict(n_embd=32, n_layer=3, n_head=4, n_inner=40, vocab_size=101, n_positions=256, activation_function="relu",
                         scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False)),
    "llama": (t.LlamaForCausalLM, t.LlamaConfig, GROUPED),
    "llama3": (t.LlamaForCausalLM, t.LlamaConfig,
               GROUPED | dict(rope_parameters=LLAMA3, head_dim=16, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "llama-linear": (t.LlamaForCausalLM, t.LlamaConfig,
                     SIZES | dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
    "llama-yarn": (t.LlamaForCausalLM, t.LlamaConfig, GROUPED | dict(rope_parameters=YARN)),
    "llama-dynamic": (t.LlamaForCausalLM, t.LlamaConfig,
                      GROUPED | dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0), max_position_embeddings=32)),
    "mistral": (t.MistralForCausalLM, t.MistralConfig, GROUPED | dict(sliding_window=8)),
    "mistral-whole": (t.MistralForCausalLM, t.MistralConfig, GROUPED | dict(sliding_window=None, head_dim=12)),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config, GROUPED | dict(tie_word_embeddings=True)),
    "qwen2-windows": (t.Qwen2ForCausalLM, t.Qwen2Config,
                      GROUPED | dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config, GROUPED | dict(head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "olmo2": (t.Olmo2ForCausalLM, t.Olmo2Config, GROUPED),
    "phi3": (t.Phi3ForCausalLM, t.Phi3Config, GROUPED),
    "phi3-long": (t.Phi3ForCausalLM, t.Phi3Config, GROUPED | dict(rope_parameters=LONGROPE, original_max_position_embeddings=32)),
    "phi3-partial": (t.Phi3ForCausalLM, t.Phi3Config, GROUPED | dict(
        rope_parameters=LONGROPE | dict(partial_rotary_factor=0.75, short_factor=[1.0, 1.5, 2.0], long_factor=[3.0, 8.0, 16.0]),
        original_max_position_embeddings=32)),
    "phi3-windows": (t.Phi3ForCausalLM, t.Phi3Config, GROUPED | dict(sliding_window=8)),
    "smollm3": (t.SmolLM3ForCausalLM, t.SmolLM3Config,
                GROUPED | dict(num_hidden_layers=4, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=8)),
    "granite": (t.GraniteForCausalLM, t.GraniteConfig,
                GROUPED | dict(embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.2, logits_scaling=4.0,
                               attention_bias=True, mlp_bias=True)),
    "stablelm": (t.StableLmForCausalLM, t.StableLmConfig, GROUPED | dict(use_qkv_bias=True)),
    "stablelm-parallel": (t.StableLmForCausalLM, t.StableLmConfig, GROUPED | dict(use_parallel_residual=True)),
    "starcoder2": (t.Starcoder2ForCausalLM, t.Starcoder2Config, GROUPED | dict(sliding_window=8)),
    "mixtral": (t.MixtralForCausalLM, t.MixtralConfig, GROUPED | dict(num_local_experts=5)),
    "qwen3_moe": (t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig,
                  GROUPED | dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, mlp_only_layers=[1])),
    "gpt_oss": (t.GptOssForCausalLM, t.GptOssConfig,
                GROUPED | dict(head_dim=16, num_local_experts=5, num_experts_per_tok=2, sliding_window=8, intermediate_size=32)),
    "gemma": (t.GemmaForCausalLM, t.GemmaConfig, GROUPED | dict(head_dim=16)),
    "gemma2": (t.Gemma2ForCausalLM, t.Gemma2Config, GEMMA | dict(attn_logit_softcapping=2.0)),
    "gemma3": (t.Gemma3ForCausalLM, t.Gemma3TextConfig,
               GEMMA | dict(num_hidden_layers=7, rope_parameters=dict(
                   full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                   sliding_attention=dict(rope_type="default", rope_theta=1e4)))),
    "gpt_neox": (t.GPTNeoXForCausalLM, t.GPTNeoXConfig, SIZES),
    "gpt_neox-serial": (t.GPTNeoXForCausalLM, t.GPTNeoXConfig,
                        SIZES | dict(use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True,
                                     rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
}
CAUSAL = [name for name in FAMILIES if all(kind not in name for kind in ("bert", "electra", "mpnet"))]


DEFAULT = object()  # stands for the class's default of a setting


@functools.cache
def config_of(name, **other):
    _, config, settings = FAMILIES[name]
    given = {key: value for key, value in (settings | other).items() if value is not DEFAULT}
    tokens = {name: None for name in ("bos_token_id", "eos_token_id", "pad_token_id")
              if not (name in settings and other.get(name) is DEFAULT)}
    return config(**tokens | given, attn_implementation="eager")


def make(name, dtype=torch.float32, seed=1, **other):
    """A model with random weights of dtype `dtype`, stored in f32.

    Their size makes attention neither flat nor concentrated on one key. Norms differ from 1, and biases from 0."""
    generator = torch.Generator().manual_seed(seed)
    model = FAMILIES[name][0](config_of(name, **other)).eval()
    with torch.no_grad():
        for weight in {id(one): one for one in model.parameters()}.values():
            scale = 0.3 if weight.ndim == 1 else 1.5 * weight.shape[-1] ** -0.5
            drawn = torch.randn(weight.shape, generator=generator) * scale
            norm = weight.ndim == 1 and bool((weight == 1).all())
            weight.copy_((drawn + norm).to(dtype))
    return model


def save(model, folder, dtype=torch.float32, **how):
    """Saves weights of `dtype` and returns the folder. The model, including its rotary frequencies, stays unchanged."""
    copy.deepcopy(model).to(dtype).save_pretrained(folder, **how)
    return folder


def ids_of(length, vocabulary=101, seed=3):
    return torch.randint(0, vocabulary, (length,), generator=torch.Generator().manual_seed(seed + length))
