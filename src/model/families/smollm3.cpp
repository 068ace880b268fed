// SmolLM3 (Bakouch et al. 2025): Llama's blocks, of which every fourth has no positions (Yang et al. 2025,
// RNoPE).
//
// families/gated_decoder.hpp has the block.
#include "model/families/gated_decoder.hpp"

namespace heed::detail {
namespace {

// no_rope_layers has 0 for a layer without rotary positions; without that list every
// no_rope_layer_interval-th has none.
std::vector<bool> rotating_layers(const ModelConfig& config, std::int64_t layers) {
  std::vector<bool> rotates;
  if (!config.has("no_rope_layers")) {
    const std::int64_t interval = config.integer("no_rope_layer_interval", 1, kMaxLayers);
    for (std::int64_t n = 0; n < layers; ++n) rotates.push_back((n + 1) % interval != 0);
    return rotates;
  }
  for (const std::int64_t one : config.integers("no_rope_layers")) rotates.push_back(one != 0);
  if (std::ssize(rotates) != layers)
    config.fail("has ", rotates.size(), " no_rope_layers for ", layers, " layers");
  return rotates;
}

std::unique_ptr<const Family> make_smollm3(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules(config));
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias");
  rules.mlp_bias = config.flag("mlp_bias");
  rules.rotates = rotating_layers(config, info.layers);
  const bool slides = config.flag("use_sliding_window");
  const auto window = sliding_window(config);
  rules.reaches = layer_reaches(config, info.layers, window, [&](std::int64_t layer) {
    return slides && window && !rules.rotates[static_cast<std::size_t>(layer)];
  });
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kSmolLm3 = {
    .model_type = "smollm3",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008,
                 "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
                 "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "attention_bias": false,
                 "mlp_bias": false, "no_rope_layers": null, "no_rope_layer_interval": 4,
                 "use_sliding_window": false, "sliding_window": null, "layer_types": null,
                 "tie_word_embeddings": true, "rope_theta": 2000000.0})"},
    .make = make_smollm3};

}  // namespace heed::detail
