// Rotary positions (Su et al. 2021), with pairs as Llama lays them out: component i goes with component
// i + R / 2 of the R that rotate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/tensor.hpp"
#include "model/files/config.hpp"

namespace heed::detail {

/// How fast pairs turn.
struct RopeRules {
  double base = 10000;
  double factor = 1;    ///< all frequencies are divided by it (linear), or with llama3 the low ones
  bool llama3 = false;  ///< Llama 3.1's blend between wavelengths
  double low_frequency_factor = 1, high_frequency_factor = 4;
  double original_context = 8192;
  double share = 1;  ///< of a head's components that rotate; above 0, at most 1
};

/// Reads "rope_parameters", or "rope_scaling" of older files. Where the object lacks rope_theta, the
/// configuration has it under the name `base`; where it lacks partial_rotary_factor, under the name `share`.
/// Without that name whole heads rotate. Throws Error (io) for kinds that heed does not have, naming them.
[[nodiscard]] RopeRules rope_rules(const ModelConfig& config, const char* base = "rope_theta",
                                   const char* share = nullptr);
/// The same for one object of the configuration; without one, its names `base` and `share` say all.
[[nodiscard]] RopeRules rope_rules_in(const ModelConfig& config, const std::optional<ModelConfig>& rope,
                                      const char* base, const char* share = nullptr);

/// Angles a position, [R / 2], in f32 as transformers computes them: so that angles at large positions agree.
using Rope = std::vector<float>;
/// R = dims, which is even: those that rotate.
[[nodiscard]] Rope rope_of(const RopeRules& rules, std::int64_t dims);

/// Rotates the first R components of query [H, L, d] and key [Hkv, L, d] in place; row i stands at position
/// begin + i.
void rotate(const Rope& rope, const MutableTensorView& query, const MutableTensorView& key,
            std::int64_t begin, int threads);

}  // namespace heed::detail
