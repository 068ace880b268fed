// What single weights and the masks alone say of each row.
#pragma once

#include <string>
#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/inspect.hpp"

namespace heed::detail {

/// position, key_begin and key_end of every row.
void fill_places(const Problem& problem, AttentionReport& report);

/// first, self, previous and next from report.lse.
void fill_shares(const Problem& problem, AttentionReport& report);

/// How many keys a row may attend to, and the mean of |p_i - j| over them.
struct AllowedKeys {
  double keys = 0;
  double distance = 0;
};
/// Of every row of a head. Only a boolean mask or a bias makes it look at single keys.
std::vector<AllowedKeys> allowed_keys_of(const Problem& problem, std::int64_t batch, std::int64_t head);

}  // namespace heed::detail
