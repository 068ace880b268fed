// Schemes of attention over a sequence that is split across machines (docs/distributed.md).
#pragma once

#include <string_view>

#include "heed/export.hpp"

namespace heed::distributed {

/// How the ranks share a call.
enum class Scheme {
  automatic,  ///< the fastest by the cost model that gives all requested results
  /// Sends keys and values in blocks, in the order of positions, during the computation (after Liu et al.
  /// 2023, Ring Attention). For row results only.
  ring,
  /// Each rank gathers all keys and values of one key head after the other (Dubey et al. 2024, The Llama 3
  /// Herd of Models, section 3.3.2).
  gather,
  /// Each rank computes all rows and keys of some heads (Jacobs et al. 2023, DeepSpeed Ulysses).
  ulysses,
  /// Sends queries, and returns partial results (softmax states) of their rows. For few rows.
  decode,
};

/// The name, such as "ring". Throws Error (invalid_argument) for an invalid value.
[[nodiscard]] HEED_API std::string_view name_of(Scheme scheme);
/// Inverse of name_of(). Throws Error (invalid_argument) that lists the names.
[[nodiscard]] HEED_API Scheme scheme_of(std::string_view name);

}  // namespace heed::distributed
