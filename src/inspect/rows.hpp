// Row results that need single weights or only the masks.
#pragma once

#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/inspect/reports.hpp"

namespace heed::detail {

/// Fills position, key_begin and key_end of every row.
void fill_places(const Problem& problem, AttentionReport& report);

/// Fills first, self, previous and next from report.lse.
void fill_shares(const Problem& problem, AttentionReport& report);

/// The number of keys that a row may attend, and the mean of |p_i - j| over them.
struct AllowedKeys {
  double keys = 0;
  double distance = 0;
};
/// The allowed keys of every row of a head. Inspects single keys only if there is a mask, a
/// sparse mask or a bias.
std::vector<AllowedKeys> allowed_keys_of(const Problem& problem, std::int64_t batch, std::int64_t head);

}  // namespace heed::detail
