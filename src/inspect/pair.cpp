// heads_by_pair(): which heads make a row attend to a key, from single weights.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "attention/check/checks.hpp"
#include "core/message.hpp"
#include "heed/inspect/document.hpp"
#include "inspect/each_row.hpp"

namespace heed {
namespace {

using detail::Problem;
using detail::Row;
using detail::RowWeights;
using detail::Segment;

void check_places(const char* name, std::span<const std::int64_t> places, std::int64_t count) {
  if (places.empty()) detail::refuse(name, " is empty; at least one is expected");
  for (const std::int64_t place : places)
    if (place < 0 || place >= count)
      detail::refuse(name, " holds ", place, "; 0 to ", count - 1, " is expected");
}

// Sorts keys that are not seen (rank 0) behind weights of NaN, and those behind numbers.
double order_of(const PairWeight& one) {
  return one.rank == 0 ? -2 : std::isnan(one.weight) ? -1 : one.weight;
}

// Whether a sorts before b, both of the same head.
bool is_heavier(const PairWeight& a, const PairWeight& b) {
  if (a.rank == 0 || order_of(a) != order_of(b)) return order_of(a) > order_of(b);
  return a.row != b.row ? a.row < b.row : a.key < b.key;
}

class PairSearch {
 public:
  PairSearch(const Document& document, std::span<const std::int64_t> rows, std::span<const std::int64_t> keys)
      : lse_(document.report.lse),
        problem_(detail::check_call(document.query, document.key, document.key, document.options)),
        keys_(keys),
        is_row_(static_cast<std::size_t>(problem_.query_length)) {
    for (const std::int64_t row : rows) is_row_[static_cast<std::size_t>(row)] = true;
    for (std::int64_t batch = 0; batch < problem_.batch; ++batch)
      for (std::int64_t head = 0; head < problem_.heads; ++head)
        best_.push_back({batch, head, rows.front(), keys.front(), 0, 0});
  }

  std::vector<PairWeight> find() {
    find_best();
    count_ranks();
    std::ranges::stable_sort(best_, std::ranges::greater(), order_of);
    return std::move(best_);
  }

 private:
  PairWeight& best_of(const Row& row) {
    return best_[static_cast<std::size_t>(row.batch * problem_.heads + row.head)];
  }

  void find_best() {
    std::mutex mutex;
    const auto wanted = [&](std::int64_t, std::int64_t i) { return is_row_[static_cast<std::size_t>(i)]; };
    for_each_row(problem_, "pairs", lse_, wanted, [&](const Segment&, const Row& row, RowWeights& weights) {
      PairWeight best{row.batch, row.head, row.i, 0, 0, 0};
      for (const std::int64_t key : keys_) {
        if (!weights.allows(key)) continue;
        const PairWeight one{row.batch, row.head, row.i, key, weights.weight_of_allowed(key), 1};
        if (is_heavier(one, best)) best = one;
      }
      const std::lock_guard lock(mutex);
      if (is_heavier(best, best_of(row))) best_of(row) = best;
    });
  }

  void count_ranks() {
    std::vector<bool> is_best(static_cast<std::size_t>(problem_.batch * problem_.query_length));
    const auto place = [&](std::int64_t batch, std::int64_t i) {
      return static_cast<std::size_t>(batch * problem_.query_length + i);
    };
    for (const PairWeight& one : best_)
      if (one.rank > 0) is_best[place(one.batch, one.row)] = true;
    const auto wanted = [&](std::int64_t batch, std::int64_t i) { return is_best[place(batch, i)]; };
    for_each_row(problem_, "ranks", lse_, wanted,
                 [&](const Segment& segment, const Row& row, RowWeights& weights) {
                   PairWeight& best = best_of(row);
                   if (best.row != row.i || best.rank == 0) return;
                   const detail::KeyRange keys = detail::keys_of(problem_, segment, row.position);
                   for (std::int64_t j = keys.begin; j < keys.end; ++j)
                     best.rank += weights.weight(j) > best.weight;
                 });
  }

  const Tensor& lse_;
  Problem problem_;
  std::span<const std::int64_t> keys_;
  std::vector<bool> is_row_;
  std::vector<PairWeight> best_;  // by batch entry, then head
};

}  // namespace

std::vector<PairWeight> heads_by_pair(const Document& document, std::span<const std::int64_t> rows,
                                      std::span<const std::int64_t> keys) {
  if (!document.has_report) detail::refuse("the document has no report; fill_report() makes one");
  check_places("rows", rows, document.report.queries);
  check_places("keys", keys, document.report.keys);
  return PairSearch(document, rows, keys).find();
}

}  // namespace heed
