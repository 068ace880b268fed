// Selection of the rows to evict.
#include "eviction/policy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/message.hpp"

namespace heed {
namespace {

constexpr std::array<std::string_view, 3> kKinds{"streaming", "h2o", "snapkv"};

// [rows]: the weight that each row received from all heads.
std::vector<double> sums_of(const KvCache& cache, std::int64_t sequence) {
  const Tensor received = cache.received(sequence);
  std::vector<double> sums(static_cast<std::size_t>(received.size(1)));
  for (std::int64_t h = 0; h < received.size(0); ++h)
    for (std::int64_t row = 0; row < received.size(1); ++row) {
      const float weight = received.at<float>(h, row);
      if (!std::isnan(weight)) sums[static_cast<std::size_t>(row)] += static_cast<double>(weight);
    }
  return sums;
}

// Sums over windows of `pool` rows, with zeros beyond the ends: SnapKV's mean pooling times `pool`. It keeps
// the neighbours of a winner, too.
std::vector<double> pooled(const std::vector<double>& votes, std::int64_t pool) {
  const auto rows = std::ssize(votes);
  const std::int64_t reach = std::min(pool / 2, rows);
  std::vector<double> sums(votes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = votes.begin() + std::max<std::int64_t>(0, row - reach);
    const auto end = votes.begin() + std::min(rows, row + reach + 1);
    sums[static_cast<std::size_t>(row)] = std::accumulate(begin, end, 0.0);
  }
  return sums;
}

// Ranking keys of the first `count` rows; the largest stay.
std::vector<double> ranks_of(const KvCache& cache, std::int64_t sequence, const EvictionPolicy& policy,
                             std::int64_t count) {
  std::vector<double> ranks(static_cast<std::size_t>(count));
  if (policy.kind == EvictionKind::streaming) {
    for (std::int64_t row = 0; row < count; ++row)
      ranks[static_cast<std::size_t>(row)] = -static_cast<double>(row);
    return ranks;
  }
  ranks = sums_of(cache, sequence);
  ranks.resize(static_cast<std::size_t>(count));
  return policy.kind == EvictionKind::snapkv ? pooled(ranks, policy.pool) : ranks;
}

std::vector<std::int64_t> exceeding(const KvCache& cache, std::int64_t sequence,
                                    const EvictionPolicy& policy) {
  const std::int64_t rows = cache.rows(sequence);
  const std::int64_t competing = rows - std::min(rows, policy.recent);
  if (competing <= policy.chosen) return {};
  const std::vector<double> ranks = ranks_of(cache, sequence, policy, competing);
  std::vector<std::int64_t> going(static_cast<std::size_t>(competing));
  std::iota(going.begin(), going.end(), std::int64_t{0});
  const auto goes_before = [&](std::int64_t a, std::int64_t b) {
    const double x = ranks[static_cast<std::size_t>(a)], y = ranks[static_cast<std::size_t>(b)];
    return x < y || (x == y && a < b);
  };
  const auto end = going.end() - policy.chosen;
  std::nth_element(going.begin(), end, going.end(), goes_before);
  going.erase(end, going.end());
  std::ranges::sort(going);
  const std::vector<std::int64_t> positions = cache.positions(sequence);
  for (std::int64_t& row : going) row = positions[static_cast<std::size_t>(row)];
  return going;
}

}  // namespace

void detail::check(const EvictionPolicy& policy) {
  check_listed("kind", policy.kind, EvictionKind::snapkv);
  if (policy.chosen < 0) refuse("chosen is ", policy.chosen, "; 0 or more rows are expected");
  if (policy.recent < 1) refuse("recent is ", policy.recent, "; 1 or more rows are expected");
  if (!(policy.decay >= 0 && policy.decay <= 1)) refuse("decay is ", policy.decay, "; 0 to 1 is expected");
  if (policy.pool < 1 || policy.pool % 2 == 0)
    refuse("pool is ", policy.pool, "; an odd number of at least 1 is expected");
}

std::string_view name_of(EvictionKind kind) noexcept {
  const auto at = static_cast<std::size_t>(kind);
  return at < kKinds.size() ? kKinds[at] : std::string_view();
}

std::optional<EvictionKind> eviction_kind_named(std::string_view name) noexcept {
  const auto at = std::ranges::find(kKinds, name);
  if (at == kKinds.end()) return std::nullopt;
  return static_cast<EvictionKind>(at - kKinds.begin());
}

std::vector<std::int64_t> positions_to_evict(const KvCache& cache, std::int64_t sequence,
                                             const EvictionPolicy& policy) {
  return detail::with_memory_errors([&] {
    detail::check(policy);
    return exceeding(cache, sequence, policy);
  });
}

}  // namespace heed
