// Starcoder 2 (Lozhkov et al. 2024): rotary positions and grouped keys as in Llama, LayerNorm and a plain MLP
// as in GPT-2, biases everywhere.
//
//   x = x + attention(norm(x)) W_O + b,   x = x + W_2 act(W_1 norm(x) + b_1) + b_2
//
// Tokens see a window if sliding_window is a number. families/gated_decoder.hpp has the block.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

std::unique_ptr<const Family> make_starcoder2(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info, "hidden_act", "norm_epsilon");
  rules.layer_norms = true;
  rules.gated = false;
  rules.up = "c_fc";
  rules.down = "c_proj";
  rules.query_key_value_bias = rules.output_bias = rules.mlp_bias = config.flag("use_bias");
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules(config));
  rules.reaches = layer_reaches(config, info.layers, sliding_window(config));
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kStarcoder2 = {
    .model_type = "starcoder2",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288,
                 "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2,
                 "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 4096,
                 "norm_epsilon": 1e-5, "sliding_window": null, "use_bias": true,
                 "tie_word_embeddings": true})",
             .unused = "embedding_dropout residual_dropout"},
    .make = make_starcoder2};

}  // namespace heed::detail
