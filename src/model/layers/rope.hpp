// Rotary positions (Su et al. 2021), with Llama's pairs: component i is paired with component i + R / 2 of
// the R rotated components.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heed/tensor.hpp"
#include "model/files/config.hpp"

namespace heed::detail {

/// How the frequencies base^(-2i / R) are stretched beyond the trained length.
enum class RopeKind {
  plain,     ///< not at all
  linear,    ///< all by `factor` (Chen et al. 2023)
  llama3,    ///< the low ones by `factor`, with a blend between two wavelengths (Grattafiori et al. 2024)
  yarn,      ///< the low ones by `factor`, with a ramp over the pairs (Peng et al. 2023)
  longrope,  ///< each by a factor of its own; texts beyond the trained length have others (Ding et al. 2024)
  dynamic    ///< by a larger base, which depends on the length of texts beyond the trained length
};

struct RopeRules {
  RopeKind kind = RopeKind::plain;
  double base = 10000;
  double factor = 1;
  double low_frequency_factor = 1, high_frequency_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;                        ///< yarn: rotations in the trained length
  bool truncate = true;                                        ///< yarn: the ramp begins and ends at pairs
  std::vector<double> short_factors, long_factors;             ///< longrope
  double attention_factor = 1;                                 ///< multiplies queries and keys
  double original_context = 8192;                              ///< the trained length
  double share = 1;  ///< the share of a head's components that rotate; above 0, at most 1
};

/// Reads "rope_parameters", or "rope_scaling" in older files. If the object lacks rope_theta, the
/// configuration has it under the name `base`; if it lacks partial_rotary_factor, under the name `share`.
/// Without either, whole heads rotate. Throws Error (io) that names an unsupported kind.
[[nodiscard]] RopeRules rope_rules(const ModelConfig& config, const char* base = "rope_theta",
                                   const char* share = nullptr);
/// The same for one object of the configuration. Without an object, only the names `base` and `share` count.
[[nodiscard]] RopeRules rope_rules_in(const ModelConfig& config, const std::optional<ModelConfig>& rope,
                                      const char* base, const char* share = nullptr);
/// The same for layers of one type, "full_attention" or "sliding_attention", which has an object of its own
/// in rope_parameters. An older file has one rope_scaling, which counts for this type if `scaled`.
[[nodiscard]] RopeRules rope_rules_of_type(const ModelConfig& config, const char* type, const char* base,
                                           bool scaled);

/// The rotation of some rotated components of heads.
class Rope {
 public:
  Rope() = default;
  /// `dims` is the number R of rotated components; it is even. Throws Error (io) for rules that do not fit
  /// that number.
  Rope(const ModelConfig& config, RopeRules rules, std::int64_t dims);

  /// Angles per position, [R / 2], in a text of `length` tokens. They are computed in f32 as in transformers,
  /// so that angles at large positions agree.
  [[nodiscard]] std::vector<float> frequencies(std::int64_t length) const;
  /// A length beyond which all keys of a text have other angles (longrope).
  [[nodiscard]] std::optional<std::int64_t> turning_length() const;
  /// Multiplies rotated queries and keys.
  [[nodiscard]] float attention_factor() const { return static_cast<float>(rules_.attention_factor); }

 private:
  RopeRules rules_;
  std::int64_t dims_ = 0;
};

/// The number of rotated components of heads `head_dim` wide. Throws Error (io) unless it is even and at
/// least 2.
[[nodiscard]] std::int64_t rotated_dims(const ModelConfig& config, const RopeRules& rules,
                                        std::int64_t head_dim);

/// Rotates the first R components of a head's vector at a position of a text of `length` tokens.
void rotate(const Rope& rope, std::span<double> head, std::int64_t position, std::int64_t length);

/// Rotates the first R components of query [H, L, d] and key [Hkv, L, d] in place; row i stands at position
/// begin + i.
void rotate(const Rope& rope, const MutableTensorView& query, const MutableTensorView& key,
            std::int64_t begin, int threads);

}  // namespace heed::detail
