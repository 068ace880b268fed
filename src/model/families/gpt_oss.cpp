// gpt-oss (OpenAI 2025): mixtures of experts with a clamped gate, a learned sink of each head, and windows in
// every other layer.
//
//   p_ij = exp(s_ij) / (exp(sink_h) + sum_j exp(s_ij))
//   expert(x) = W_2 ((clamp(u, -l, l) + 1) g sigmoid(alpha g)) + b_2,   g = min(gate, l),   (gate, u) = W_1 x
//   + b_1
//
// families/gated_decoder.hpp has the block, layers/mlp.hpp the mixture. Experts are stored in bf16, [E,
// K, N], or in MXFP4, [E, N, K / 32, 16] and a scale of each 32 numbers; the rows N of W_1 are gates and ups
// in turns.
#include <memory>

#include "model/families/gated_decoder.hpp"
#include "model/files/weight_format.hpp"

namespace heed::detail {
namespace {

struct ExpertSizes {
  std::int64_t experts, dim, inner;
};

// MXFP4 as ggml stores it: in each 17 bytes a scale, then 16 bytes whose low halves are the first 16 numbers.
// The folder's bytes have neighbours in their halves. 4 bits a number are copied.
std::vector<WeightMatrix> mxfp4_matrices(Weights& weights, const std::string& name, std::int64_t count,
                                         std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kNumbers = 32, kBytes = 17;
  const std::int64_t blocks = columns / kNumbers;
  const std::uint8_t* codes = weights.bytes(name + "_blocks", {count, rows, blocks, kNumbers / 2});
  const std::uint8_t* scales = weights.bytes(name + "_scales", {count, rows, blocks});
  weights.do_not_count(count * rows * blocks * (kNumbers / 2 + 1) - count * rows * columns);
  auto memory = std::make_shared<Tensor>(Tensor::uninitialized({count * rows * blocks * kBytes}, DType::u8));
  auto* to = static_cast<std::uint8_t*>(memory->mutable_view().data());
  for (std::int64_t block = 0; block < count * rows * blocks; ++block, codes += kNumbers / 2) {
    *to++ = scales[block];
    for (int i = 0; i < 16; ++i) {
      const int low = codes[i / 2] >> i % 2 * 4 & 15, high = codes[8 + i / 2] >> i % 2 * 4 & 15;
      *to++ = static_cast<std::uint8_t>(low | high << 4);
    }
  }
  const WeightMatrix all = {memory->view().data(), &kStoredMxfp4, count * rows, columns, weights.fast()};
  weights.keep(memory);
  std::vector<WeightMatrix> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(rows_between(all, i * rows, rows));
  return made;
}

// The products of all experts with one name.
std::vector<LinearWeights> expert_products(Weights& weights, const std::string& name, std::int64_t experts,
                                           std::int64_t outputs, std::int64_t inputs) {
  const bool quantised = weights.contains(name + "_blocks");
  const std::vector<WeightMatrix> matrices = quantised
                                                 ? mxfp4_matrices(weights, name, experts, outputs, inputs)
                                                 : weights.matrices(name, experts, inputs, outputs);
  const WeightMatrix biases = weights.matrix(name + "_bias", experts, outputs);
  std::vector<LinearWeights> made;
  for (std::int64_t e = 0; e < experts; ++e) {
    Tensor bias = Tensor::uninitialized({outputs}, DType::f32);
    read_weight_row(biases, e, bias.values<float>().data());
    made.push_back({matrices[static_cast<std::size_t>(e)], std::move(bias), !quantised});
  }
  return made;
}

std::vector<MlpWeights> read_experts(Weights& weights, const std::string& at, const ExpertSizes& sizes,
                                     const ClampedGate& gate) {
  std::vector<LinearWeights> both = expert_products(weights, at + "gate_up_proj", sizes.experts,
                                                    2 * sizes.inner, sizes.dim),
                             down = expert_products(weights, at + "down_proj", sizes.experts, sizes.dim,
                                                    sizes.inner);
  std::vector<MlpWeights> made(both.size());
  for (std::size_t e = 0; e < made.size(); ++e) {
    made[e].up = std::move(both[e]);
    made[e].down = std::move(down[e]);
    made[e].clamped = gate;
    made[e].in_turns = true;
  }
  return made;
}

// 4-bit numbers are the only quantised ones, and only of experts.
void check_quantisation(const ModelConfig& config, const ExpertSizes& sizes) {
  const auto quantised = config.object("quantization_config");
  if (!quantised) return;
  if (quantised->text("quant_method") != "mxfp4")
    config.fail("has quantization_config of quant_method '", quantised->text("quant_method"),
                "'; mxfp4 is expected");
  if (sizes.dim % 32 != 0 || sizes.inner % 32 != 0)
    config.fail("has quantization_config mxfp4 and sizes that are not multiples of 32");
}

// Without any scaling, the class has this one. Empty rope_parameters are a plain rotation.
RopeRules rope_rules_of(const ModelConfig& config) {
  if (config.object("rope_scaling") || config.has("rope_parameters")) return rope_rules(config);
  const nlohmann::ordered_json yarn = {{"rope_type", "yarn"},
                                       {"factor", 32.0},
                                       {"truncate", false},
                                       {"original_max_position_embeddings", 4096}};
  return rope_rules_in(config, ModelConfig(yarn, config.path()), "rope_theta");
}

std::unique_ptr<const Family> make_gpt_oss(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  GatedDecoderRules rules = read_gated_decoder(config, info);
  rules.rope = rules.window_rope = whole_rope(config, info, rope_rules_of(config));
  rules.reaches = layer_reaches(config, info.layers, sliding_window(config),
                                [](std::int64_t layer) { return layer % 2 == 0; });
  rules.query_key_value_bias = rules.output_bias = config.flag("attention_bias");
  rules.sinks = true;
  MixtureRules& mixture = rules.mixture;
  mixture.experts = expert_count(config, "num_local_experts");
  mixture.chosen = chosen_experts(config, mixture.experts);
  mixture.inner = rules.inner;
  mixture.router = "router";
  mixture.bias = true;
  mixture.clamped = ClampedGate{static_cast<float>(config.real("swiglu_alpha")),
                                static_cast<float>(config.positive("swiglu_limit"))};
  const ExpertSizes sizes = {mixture.experts, info.model_dim, rules.inner};
  check_quantisation(config, sizes);
  mixture.read_experts = [sizes, gate = *mixture.clamped](Weights& all, const std::string& at) {
    return read_experts(all, at, sizes, gate);
  };
  return make_gated_decoder(config, weights, info, std::move(rules));
}

}  // namespace

const FamilyEntry kGptOss = {
    .model_type = "gpt_oss",
    .keys = {.shared = &kDecoderKeys,
             .read = R"({"vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
                 "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
                 "head_dim": 64, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                 "sliding_window": 128, "layer_types": null, "attention_bias": true,
                 "num_local_experts": 128, "num_experts_per_tok": 4, "swiglu_alpha": 1.702,
                 "swiglu_limit": 7.0, "quantization_config": null, "rope_theta": 150000.0})",
             .unused = "output_router_logits router_aux_loss_coef initial_context_length experts_per_token",
             .renamed = R"({"num_experts": "num_local_experts"})"},
    .quantised = true,
    .make = make_gpt_oss};

}  // namespace heed::detail
