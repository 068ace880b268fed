// The keys of config.json that decide a GPT-2's numbers. heed trains such models, and reads them.
#pragma once

namespace heed::detail {

/// JSON: the keys that are read, each with the value of a missing one.
inline constexpr const char* kGpt2Keys =
    R"({"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": null,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": true,
        "scale_attn_by_inverse_layer_idx": false, "tie_word_embeddings": true, "is_causal": true})";
/// JSON: the keys for which heed has one value.
inline constexpr const char* kGpt2OnlyKeys = R"({"add_cross_attention": false})";

/// JSON: other names of keys that are read.
inline constexpr const char* kGpt2Renamed =
    R"({"hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer"})";

}  // namespace heed::detail
