// A random call with its expected results. Tests of a kernel need no other header.
//
//   for (index …) {
//     CheckedCall checked = checked_call(seed, index);
//     const auto result = attention(checked.call.query, checked.call.key, checked.call.value,
//     checked.call.options); ASSERT_EQ(compare_results(result, checked.call.options, checked.naive,
//     rounding), "") << describe(checked.call);
//   }
#pragma once

#include <cstdint>

#include "compare_results.hpp"
#include "describe_call.hpp"
#include "naive_attention.hpp"
#include "random_call.hpp"

namespace heed::test {

struct CheckedCall {
  RandomCall call;
  Naive naive;
};

/// Whether any row of a query head that reads this key head attends key j.
inline bool is_seen(const Naive& naive, std::int64_t kv_heads, std::int64_t b, std::int64_t kv_head,
                    std::int64_t j) {
  const std::int64_t group = naive.heads / kv_heads;
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
    for (std::int64_t i = 0; i < naive.queries; ++i)
      if (naive.final_scores(b, h, i, j) != kMinusInfinity) return true;
  return false;
}

inline CheckedCall checked_call(std::uint64_t seed, std::uint64_t index, const CallLimits& limits = {}) {
  RandomCall call = random_call(seed, index, limits);
  Naive naive = naive_attention(call.query, call.key, call.value, call.options);
  if (limits.poison && index % 2 == 1) {
    const std::int64_t kv_heads = call.key.rank() > 2 ? call.key.size(-3) : 1;
    poison_keys(call, [&](std::int64_t b, std::int64_t kv_head, std::int64_t j) {
      return !is_seen(naive, kv_heads, b, kv_head, j);
    });
    naive = naive_attention(call.query, call.key, call.value, call.options);  // the raw scores have changed
  }
  return {std::move(call), std::move(naive)};
}

}  // namespace heed::test
