#include "model/layers/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kRotatedRows = 32;  // rows of a piece of work

// Wavelengths below original_context / high_frequency_factor stay. Those above original_context /
// low_frequency_factor grow by the factor. In between the two are blended.
float blended(float frequency, const RopeRules& rules) {
  const auto context = static_cast<float>(rules.original_context);
  const auto low = static_cast<float>(rules.low_frequency_factor);
  const auto high = static_cast<float>(rules.high_frequency_factor);
  const auto factor = static_cast<float>(rules.factor);
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  if (wavelength < static_cast<float>(rules.original_context / rules.high_frequency_factor)) return frequency;
  if (wavelength > static_cast<float>(rules.original_context / rules.low_frequency_factor))
    return frequency / factor;
  const float smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

void rotate_row(float* row, const std::vector<float>& cosines, const std::vector<float>& sines) {
  const std::size_t half = cosines.size();
  for (std::size_t i = 0; i < half; ++i) {
    const float a = row[i], b = row[i + half];
    row[i] = a * cosines[i] - b * sines[i];
    row[i + half] = b * cosines[i] + a * sines[i];
  }
}

void rotate_row_of_heads(const MutableTensorView& heads, std::int64_t row, const std::vector<float>& cosines,
                         const std::vector<float>& sines) {
  for (std::int64_t head = 0; head < heads.size(0); ++head)
    rotate_row(heads.data_as<float>() + head * heads.strides()[0] + row * heads.strides()[1], cosines, sines);
}

}  // namespace

RopeRules rope_rules(const ModelConfig& config, const char* base, const char* share) {
  const std::optional<ModelConfig> scaling = config.object("rope_scaling"),
                                   parameters = config.object("rope_parameters");
  if (scaling && parameters) config.fail("has both rope_scaling and rope_parameters; one is expected");
  return rope_rules_in(config, scaling ? scaling : parameters, base, share);
}

RopeRules rope_rules_in(const ModelConfig& config, const std::optional<ModelConfig>& given, const char* base,
                        const char* share) {
  const ModelConfig rope = given.value_or(ModelConfig(nlohmann::ordered_json::object(), config.path()));
  for (const char* type : {"full_attention", "sliding_attention"})
    if (rope.has(type))
      config.fail("has rope_parameters for each type of layer, which heed's " + config.text("model_type") +
                  " does not support");
  RopeRules rules;
  rules.base = rope.contains("rope_theta") ? rope.positive("rope_theta") : config.positive(base);
  const bool own_share = rope.contains("partial_rotary_factor");
  if (own_share) share = "partial_rotary_factor";
  if (share != nullptr) rules.share = (own_share ? rope : config).positive(share);
  if (rules.share > 1) config.fail("has " + std::string(share) + " above 1");
  const std::string type = rope.text(rope.contains("rope_type") ? "rope_type" : "type", "default");
  if (type == "default") return rules;
  if (type != "linear" && type != "llama3")
    config.fail("has rope_type '" + type + "'; default, linear or llama3 is expected");
  rules.factor = rope.positive("factor");
  if (type == "linear") return rules;
  rules.llama3 = true;
  rules.low_frequency_factor = rope.positive("low_freq_factor");
  rules.high_frequency_factor = rope.positive("high_freq_factor");
  if (rules.high_frequency_factor <= rules.low_frequency_factor)
    config.fail("has high_freq_factor that is not above low_freq_factor");
  const char* original = "original_max_position_embeddings";
  rules.original_context = config.has(original)      ? config.positive(original)
                           : rope.contains(original) ? rope.positive(original)
                                                     : config.positive("max_position_embeddings");
  return rules;
}

Rope rope_of(const RopeRules& rules, std::int64_t dims) {
  Rope rope(static_cast<std::size_t>(dims / 2));
  const auto base = static_cast<double>(static_cast<float>(rules.base));
  for (std::size_t i = 0; i < rope.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
    rope[i] = 1 / static_cast<float>(std::pow(base, exponent));
    if (rules.llama3)
      rope[i] = blended(rope[i], rules);
    else
      rope[i] /= static_cast<float>(rules.factor);
  }
  return rope;
}

void rotate(const Rope& rope, const MutableTensorView& query, const MutableTensorView& key,
            std::int64_t begin, int threads) {
  const std::int64_t rows = query.size(1);
  parallel_for((rows + kRotatedRows - 1) / kRotatedRows, threads, [&](std::int64_t piece, int /*worker*/) {
    std::vector<float> cosines(rope.size()), sines(rope.size());
    for (std::int64_t row = piece * kRotatedRows; row < std::min(rows, (piece + 1) * kRotatedRows); ++row) {
      for (std::size_t i = 0; i < rope.size(); ++i) {
        const double angle = static_cast<float>(begin + row) * rope[i];  // the product is in f32
        cosines[i] = static_cast<float>(std::cos(angle));
        sines[i] = static_cast<float>(std::sin(angle));
      }
      rotate_row_of_heads(query, row, cosines, sines);
      rotate_row_of_heads(key, row, cosines, sines);
    }
  });
}

}  // namespace heed::detail
