// OLMo 2 (Walsh et al. 2025): Llama's blocks with norms after attention and MLP, and norms of all queries and
// all keys.
//
//   q, k = rope(norm(W_Q x)), rope(norm(W_K x))        each norm over all heads at once
//   x = x + norm(attention(q, k, W_V x) W_O),   x = x + norm(mlp(x))
//
// families/gated_decoder.hpp has the block.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

std::unique_ptr<const Family> make_olmo2(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = whole_rope(config, info, rope_rules(config));
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias");
  rules.whole_norms = rules.post_norms = true;
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kOlmo2 = {
    .model_type = "olmo2",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
                 "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
                 "rms_norm_eps": 1e-5, "attention_bias": false})"},
    .make = make_olmo2};

}  // namespace heed::detail
