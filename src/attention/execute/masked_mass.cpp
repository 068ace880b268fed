#include "attention/execute/masked_mass.hpp"

#include <algorithm>
#include <cmath>

#include "attention/problem/elements.hpp"

namespace heed::detail {
namespace {

// Limit of 1 / sum, below which a sink dominates the sum.
constexpr double kSmallestInverse = 0x1p-100;

// The ratio of the two weight sums is as exact as the sums; a difference of lse is not.
double masked_mass(double masked_inverse, double inverse, double shift) {
  const double kept = masked_inverse == 0 ? 0 : inverse / masked_inverse * std::exp2(shift);
  return inverse == 0 ? 0 : std::max(0.0, 1 - kept);
}

}  // namespace

std::vector<cpu::RowStatus> write_masked_mass(const Problem& p, const RowSums& masked,
                                              const RowSums& unmasked) {
  std::vector<cpu::RowStatus> left;
  for (std::size_t row = 0; row < masked.status.size(); ++row) {
    if (masked.status[row] == cpu::RowStatus::out_of_range) continue;  // recomputed with all its results
    const auto masked_inverse = static_cast<double>(masked.inverse[row]);
    const auto inverse = static_cast<double>(unmasked.inverse[row]);
    const bool known = unmasked.status[row] != cpu::RowStatus::out_of_range &&
                       (!p.sinks || (masked_inverse > kSmallestInverse && inverse > kSmallestInverse));
    if (!known) {
      left.resize(masked.status.size(), cpu::RowStatus::done);
      left[row] = cpu::RowStatus::out_of_range;
      continue;
    }
    const double shift = static_cast<double>(masked.shift[row]) - static_cast<double>(unmasked.shift[row]);
    const std::int64_t at = static_cast<std::int64_t>(row), head = at / p.query_length;
    write(p.masked_mass, masked_mass(masked_inverse, inverse, shift), head / p.heads, head % p.heads,
          at % p.query_length);
  }
  return left;
}

}  // namespace heed::detail
