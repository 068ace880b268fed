#include "model/layers/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kRotatedRows = 32;  // rows of a piece of work

// Wavelengths below original_context / high_frequency_factor stay. Longer ones than original_context /
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

// The pair, not rounded, whose components rotate `rotations` times in the trained length.
double pair_of_rotations(const RopeRules& rules, double rotations, double dims) {
  return dims * std::log(rules.original_context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(rules.base));
}

// The share by which pair i is stretched: 0 up to the pair of beta_fast, 1 from the pair of beta_slow on.
float yarn_ramp(const RopeRules& rules, std::size_t pair, double dims) {
  double low = pair_of_rotations(rules, rules.beta_fast, dims),
         high = pair_of_rotations(rules, rules.beta_slow, dims);
  if (rules.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  const float ramp = (static_cast<float>(pair) - static_cast<float>(low)) / static_cast<float>(high - low);
  return std::clamp(ramp, 0.0F, 1.0F);
}

double stretched_base(const RopeRules& rules, double length, double dims) {
  if (rules.kind != RopeKind::dynamic) return rules.base;
  const double times = std::max(length, rules.original_context) / rules.original_context;
  return rules.base * std::pow(rules.factor * times - (rules.factor - 1), dims / (dims - 2));
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

struct NamedKind {
  const char* name;
  RopeKind kind;
};
constexpr NamedKind kKinds[] = {
    {"default", RopeKind::plain},     {"linear", RopeKind::linear},
    {"llama3", RopeKind::llama3},     {"yarn", RopeKind::yarn},
    {"longrope", RopeKind::longrope}, {"su", RopeKind::longrope},  // its name in Phi-3's first files
    {"dynamic", RopeKind::dynamic}};

RopeKind kind_of(const ModelConfig& config, const ModelConfig& rope) {
  const std::string name = rope.text(rope.contains("rope_type") ? "rope_type" : "type", "default");
  for (const NamedKind& one : kKinds)
    if (name == one.name) return one.kind;
  config.fail("has rope_type '", name, "'; default, linear, llama3, yarn, longrope or dynamic is expected");
}

double trained_length(const ModelConfig& config, const ModelConfig& rope) {
  const char* original = "original_max_position_embeddings";
  return config.has(original)      ? config.positive(original)
         : rope.contains(original) ? rope.positive(original)
                                   : config.positive("max_position_embeddings");
}

double positive_or(const ModelConfig& rope, const char* name, double fallback) {
  return rope.has(name) ? rope.positive(name) : fallback;
}

void read_llama3(const ModelConfig& config, const ModelConfig& rope, RopeRules& rules) {
  rules.low_frequency_factor = rope.positive("low_freq_factor");
  rules.high_frequency_factor = rope.positive("high_freq_factor");
  if (rules.high_frequency_factor <= rules.low_frequency_factor)
    config.fail("has high_freq_factor that is not above low_freq_factor");
}

// Scores grow with the logarithm of the factor (Peng et al. 2023, eq. 22).
double yarn_attention(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

void read_yarn(const ModelConfig& rope, RopeRules& rules) {
  rules.beta_fast = positive_or(rope, "beta_fast", 32);
  rules.beta_slow = positive_or(rope, "beta_slow", 1);
  // In transformers null is false here.
  if (rope.contains("truncate")) rules.truncate = rope.has("truncate") && rope.flag("truncate");
  const bool weighted = rope.has("mscale") && rope.has("mscale_all_dim") && rope.real("mscale") != 0 &&
                        rope.real("mscale_all_dim") != 0;
  const double inferred = weighted ? yarn_attention(rules.factor, rope.real("mscale")) /
                                         yarn_attention(rules.factor, rope.real("mscale_all_dim"))
                                   : yarn_attention(rules.factor, 1);
  rules.attention_factor = positive_or(rope, "attention_factor", inferred);
}

void read_longrope(const ModelConfig& config, const ModelConfig& rope, RopeRules& rules) {
  rules.short_factors = rope.positives("short_factor");
  rules.long_factors = rope.positives("long_factor");
  const double factor =
      positive_or(rope, "factor", config.positive("max_position_embeddings") / rules.original_context);
  const double inferred =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(rules.original_context));
  rules.attention_factor = positive_or(rope, "attention_factor", inferred);
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
      config.fail("has rope_parameters for each type of layer, which heed's ", config.text("model_type"),
                  " does not support");
  RopeRules rules;
  rules.base = rope.contains("rope_theta") ? rope.positive("rope_theta") : config.positive(base);
  const bool own_share = rope.contains("partial_rotary_factor");
  if (own_share) share = "partial_rotary_factor";
  if (share != nullptr) rules.share = (own_share ? rope : config).positive(share);
  if (rules.share > 1) config.fail("has ", share, " above 1");
  rules.kind = kind_of(config, rope);
  if (rules.kind == RopeKind::plain) return rules;
  if (rules.kind != RopeKind::longrope) rules.factor = rope.positive("factor");
  if (rules.kind == RopeKind::linear) return rules;
  rules.original_context = rules.kind == RopeKind::dynamic ? config.positive("max_position_embeddings")
                                                           : trained_length(config, rope);
  if (rules.kind == RopeKind::llama3) read_llama3(config, rope, rules);
  if (rules.kind == RopeKind::yarn) read_yarn(rope, rules);
  if (rules.kind == RopeKind::longrope) read_longrope(config, rope, rules);
  if (!std::isfinite(rules.attention_factor))
    config.fail("has a rotary scaling whose factor of queries and keys is not finite");
  return rules;
}

RopeRules rope_rules_of_type(const ModelConfig& config, const char* type, const char* base, bool scaled) {
  const std::optional<ModelConfig> scaling = config.object("rope_scaling"),
                                   parameters = config.object("rope_parameters");
  if (scaling && parameters) config.fail("has both rope_scaling and rope_parameters; one is expected");
  std::optional<ModelConfig> own = scaled ? scaling : std::nullopt;
  if (parameters) {
    for (const auto& [name, value] : parameters->json().items())
      if (name != "full_attention" && name != "sliding_attention")
        config.fail("has rope_parameters other than full_attention and sliding_attention");
    own = parameters->object(type);
  }
  // In transformers this key does not count here.
  if (scaling && scaling->contains("type") && !scaling->contains("rope_type"))
    config.fail("has type and no rope_type in rope_scaling; heed's ", config.text("model_type"),
                " expects rope_type");
  RopeRules rules = rope_rules_in(config, own, base);
  rules.truncate = true;  // transformers does not read this key of a single type
  return rules;
}

Rope::Rope(const ModelConfig& config, RopeRules rules, std::int64_t dims)
    : rules_(std::move(rules)), dims_(dims) {
  if (rules_.kind == RopeKind::dynamic && dims == 2)
    config.fail("has rope_type 'dynamic' for 2 rotated numbers a head; at least 4 are expected");
  if (rules_.kind != RopeKind::longrope) return;
  for (const auto& [name, factors] :
       {std::pair{"short_factor", &rules_.short_factors}, std::pair{"long_factor", &rules_.long_factors}})
    if (std::ssize(*factors) != dims / 2)
      config.fail("has ", counted(factors->size(), "number"), " in ", name, "; ", dims / 2,
                  " are expected, one for each rotated pair");
}

std::vector<float> Rope::frequencies(std::int64_t length) const {
  const auto dims = static_cast<double>(dims_), tokens = static_cast<double>(length);
  const auto base = static_cast<double>(static_cast<float>(stretched_base(rules_, tokens, dims)));
  const std::vector<double>& factors =
      tokens > rules_.original_context ? rules_.long_factors : rules_.short_factors;
  const auto factor = static_cast<float>(rules_.factor);
  std::vector<float> made(static_cast<std::size_t>(dims_ / 2));
  for (std::size_t i = 0; i < made.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dims_);
    const auto slowness = static_cast<float>(std::pow(base, exponent));
    made[i] = 1 / slowness;
    if (rules_.kind == RopeKind::linear) made[i] /= factor;
    if (rules_.kind == RopeKind::llama3) made[i] = blended(made[i], rules_);
    if (rules_.kind == RopeKind::longrope) made[i] = 1 / (static_cast<float>(factors[i]) * slowness);
    if (rules_.kind == RopeKind::yarn) {
      const float kept = 1 - yarn_ramp(rules_, i, dims);
      made[i] = 1 / (factor * slowness) * (1 - kept) + made[i] * kept;
    }
  }
  return made;
}

std::optional<std::int64_t> Rope::turning_length() const {
  if (rules_.kind != RopeKind::longrope) return std::nullopt;
  return static_cast<std::int64_t>(rules_.original_context);
}

std::int64_t rotated_dims(const ModelConfig& config, const RopeRules& rules, std::int64_t head_dim) {
  const auto rotated = static_cast<std::int64_t>(static_cast<double>(head_dim) * rules.share);
  if (rotated < 2 || rotated % 2 != 0)
    config.fail("rotates ", rotated, " of ", head_dim,
                " numbers a head; an even number from 2 on is expected");
  return rotated;
}

void rotate(const Rope& rope, const MutableTensorView& query, const MutableTensorView& key,
            std::int64_t begin, int threads) {
  const std::int64_t rows = query.size(1);
  const std::vector<float> frequencies = rope.frequencies(begin + rows);
  const float factor = rope.attention_factor();
  parallel_for((rows + kRotatedRows - 1) / kRotatedRows, threads, [&](std::int64_t piece, int /*worker*/) {
    std::vector<float> cosines(frequencies.size()), sines(frequencies.size());
    for (std::int64_t row = piece * kRotatedRows; row < std::min(rows, (piece + 1) * kRotatedRows); ++row) {
      for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double angle = static_cast<float>(begin + row) * frequencies[i];  // the product is in f32
        cosines[i] = static_cast<float>(std::cos(angle)) * factor;
        sines[i] = static_cast<float>(std::sin(angle)) * factor;
      }
      rotate_row_of_heads(query, row, cosines, sines);
      rotate_row_of_heads(key, row, cosines, sines);
    }
  });
}

void rotate(const Rope& rope, std::span<double> head, std::int64_t position, std::int64_t length) {
  const std::vector<float> frequencies = rope.frequencies(length);
  const auto factor = static_cast<double>(rope.attention_factor());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = static_cast<float>(position) * frequencies[i];  // the product is in f32
    double &low = head[i], &high = head[i + frequencies.size()];
    const double cosine = std::cos(angle) * factor, sine = std::sin(angle) * factor, before = low;
    low = before * cosine - high * sine;
    high = high * cosine + before * sine;
  }
}

}  // namespace heed::detail
