// Random operations on a cache, after which each sequence holds known rows. Along the way rows are evicted,
// drafts are rolled back, and sequences are forked.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "heed/attention/kv_cache.hpp"
#include "random_call.hpp"

namespace heed::test {

/// The rows to put into a cache: for sequence b the first rows[b] rows of key and value [B, Hkv, L, D].
struct CacheRows {
  TensorView key, value;
  std::vector<std::int64_t> rows;
};

/// The positions of a sequence's rows: in the end it holds those in `held`, out of `length` appended in all.
struct CacheHistory {
  std::vector<std::int64_t> held;
  std::int64_t length = 0;
};

/// Draws positions for `rows` rows: consecutive from 0, or with gaps. A ring holds its first `sinks` rows and
/// its last ones.
inline CacheHistory draw_history(Draw& draw, const KvCacheOptions& options, std::int64_t rows, bool gaps) {
  CacheHistory history;
  if (options.layout == CacheLayout::ring) {
    const std::int64_t room = options.sinks + options.window;
    history.length = rows < room ? rows : rows + (gaps ? draw.between(0, 70) : 0);
    for (std::int64_t r = 0; r < rows; ++r)
      history.held.push_back(r < options.sinks ? r : history.length - rows + r);
    return history;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    if (gaps && draw.chance(0.2)) history.length += draw.between(1, 40);
    history.held.push_back(history.length++);
  }
  if (gaps && draw.chance(0.3)) history.length += draw.between(1, 20);
  return history;
}

/// Appends and evicts rows to follow a history. `noise` chooses chunks, drafts and forks, which must leave no
/// trace.
class CacheLife {
 public:
  CacheLife(const KvCacheOptions& options, const CacheRows& rows, std::vector<CacheHistory> histories,
            Draw& noise)
      : cache(options), rows_(rows), histories_(std::move(histories)), noise_(noise) {
    for (std::size_t b = 0; b < rows_.rows.size(); ++b) sequences.push_back(static_cast<std::int64_t>(b));
    done_.assign(sequences.size(), 0);
  }

  void live() {
    while (append_some()) {
      if (noise_.chance(0.3)) draft_and_take_back();
      if (noise_.chance(0.2)) fork_one();
    }
    for (std::size_t b = 0; b < sequences.size(); ++b) evict(b);
  }

  KvCache cache;
  std::vector<std::int64_t> sequences;  ///< the sequence that holds the rows of each b

 private:
  // The row of b at a position: the one to be kept, or else any other.
  std::int64_t row_at(std::size_t b, std::int64_t position) const {
    const std::vector<std::int64_t>& held = histories_[b].held;
    const auto at = std::lower_bound(held.begin(), held.end(), position);
    return at != held.end() && *at == position ? at - held.begin() : position % rows_.key.shape()[2];
  }

  // Appends rows of several sequences as one ragged batch.
  void append(const std::vector<std::int64_t>& counts, bool drafts) {
    std::vector<std::int64_t> offsets{0};
    for (const std::int64_t count : counts) offsets.push_back(offsets.back() + count);
    const auto packed = [&](const TensorView& from) {
      Tensor to({1, from.shape()[1], offsets.back(), from.shape()[3]}, from.dtype());
      for (std::size_t b = 0; b < counts.size(); ++b)
        for (std::int64_t r = 0; r < counts[b]; ++r) {
          const std::int64_t position = done_[b] + r;
          const std::int64_t row = drafts ? (position * 7) % from.shape()[2] : row_at(b, position);
          copy(from.narrow(0, static_cast<std::int64_t>(b), 1).narrow(2, row, 1),
               to.mutable_view().narrow(2, offsets[b] + r, 1));
        }
      return to;
    };
    const TensorView ends(offsets.data(), {static_cast<std::int64_t>(offsets.size())});
    if (cache.values_in_keys())
      cache.append_keys(packed(rows_.key), ends, sequences);
    else
      cache.append(packed(rows_.key), packed(rows_.value), ends, sequences);
  }

  bool append_some() {
    std::vector<std::int64_t> counts;
    bool any = false;
    for (std::size_t b = 0; b < sequences.size(); ++b) {
      const std::int64_t left = histories_[b].length - done_[b];
      counts.push_back(std::min(left, noise_.between(0, std::max<std::int64_t>(3, left))));
      any = any || left > 0;
    }
    if (!any) return false;
    append(counts, false);
    for (std::size_t b = 0; b < counts.size(); ++b) done_[b] += counts[b];
    return true;
  }

  // Skips rings: appending drafts evicts rows that a rollback cannot restore.
  void draft_and_take_back() {
    if (cache.layout() == CacheLayout::ring || rows_.key.shape()[2] == 0) return;
    std::vector<std::int64_t> counts;
    for (std::size_t b = 0; b < sequences.size(); ++b) counts.push_back(noise_.between(0, 8));
    append(counts, true);
    for (std::size_t b = 0; b < sequences.size(); ++b) cache.truncate(sequences[b], done_[b]);
  }

  // Forks a sequence and continues with the fork. The original gets other rows, which the fork must not see.
  void fork_one() {
    const auto b =
        static_cast<std::size_t>(noise_.between(0, static_cast<std::int64_t>(sequences.size()) - 1));
    const std::int64_t before = sequences[b];
    sequences[b] = cache.fork(before);
    if (rows_.key.shape()[2] == 0) return;
    const Tensor key = Tensor::copy_of(rows_.key.narrow(0, 0, 1).narrow(2, 0, 1));
    const Tensor value = Tensor::copy_of(rows_.value.narrow(0, 0, 1).narrow(2, 0, 1));
    const std::int64_t offsets[] = {0, 1}, which[] = {before};
    if (cache.values_in_keys())
      cache.append_keys(key, TensorView(offsets, {2}), which);
    else
      cache.append(key, value, TensorView(offsets, {2}), which);
    if (noise_.chance(0.7)) cache.clear(before);
  }

  void evict(std::size_t b) {
    const std::vector<std::int64_t> wanted = histories_[b].held;
    std::vector<std::int64_t> gone;
    for (const std::int64_t position : cache.positions(sequences[b]))
      if (!std::binary_search(wanted.begin(), wanted.end(), position)) gone.push_back(position);
    const auto some = static_cast<std::ptrdiff_t>(noise_.between(0, static_cast<std::int64_t>(gone.size())));
    cache.evict(sequences[b], std::span(gone).first(static_cast<std::size_t>(some)));
    cache.evict(sequences[b], std::span(gone).subspan(static_cast<std::size_t>(some)));
  }

  const CacheRows& rows_;
  std::vector<CacheHistory> histories_;
  Draw& noise_;
  std::vector<std::int64_t> done_;
};

}  // namespace heed::test
