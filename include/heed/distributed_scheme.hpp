// How attention is computed whose sequence is cut over machines (docs/distributed.md).
#pragma once

#include <string_view>

#include "heed/export.hpp"

namespace heed::distributed {

enum class Scheme {
  automatic,  ///< the fastest by the cost model that gives all results asked for
  /// Keys and values travel in blocks, in the order of positions, beside the computation (after Liu et al.
  /// 2023, Ring Attention): for row results.
  ring,
  /// Each rank has all keys and values of one key head after the other (Dubey et al. 2024, The Llama 3 Herd
  /// of Models, section 3.3.2).
  gather,
  /// Each rank has all rows and keys of some heads (Jacobs et al. 2023, DeepSpeed Ulysses).
  ulysses,
  /// Queries travel, and the softmax states of their rows come back: for few rows.
  decode,
};

/// "ring". Throws Error (invalid_argument) for a number that is no Scheme.
[[nodiscard]] HEED_API std::string_view name_of(Scheme scheme);
/// The inverse. Throws Error (invalid_argument), which lists the names.
[[nodiscard]] HEED_API Scheme scheme_of(std::string_view name);

}  // namespace heed::distributed
