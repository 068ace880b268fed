// Rotary positions (Su et al. 2021), with Llama's pairs: component i is paired with component i + R / 2 of
// the R rotated components.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/tensor.hpp"
#include "model/files/config.hpp"

namespace heed::detail {

/// The frequencies of the pairs.
struct RopeRules {
  double base = 10000;
  double factor = 1;    ///< divides all frequencies (linear), or the low ones (llama3)
  bool llama3 = false;  ///< Llama 3.1's blend between wavelengths
  double low_frequency_factor = 1, high_frequency_factor = 4;
  double original_context = 8192;
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

/// Angles per position, [R / 2], computed in f32 as in transformers, so that angles at large positions agree.
using Rope = std::vector<float>;
/// `dims` is the number R of rotated components; it is even.
[[nodiscard]] Rope rope_of(const RopeRules& rules, std::int64_t dims);

/// Rotates the first R components of query [H, L, d] and key [Hkv, L, d] in place; row i stands at position
/// begin + i.
void rotate(const Rope& rope, const MutableTensorView& query, const MutableTensorView& key,
            std::int64_t begin, int threads);

}  // namespace heed::detail
