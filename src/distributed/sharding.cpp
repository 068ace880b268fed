#include "heed/attention/sharding.hpp"

#include <algorithm>

#include "core/message.hpp"

namespace heed {
namespace {

using detail::counted;
using detail::refuse;

// A sharding lists its ranks and ranges: more would fill the memory.
constexpr int kMaxRanks = 1 << 22;
constexpr std::int64_t kMaxStripes = 1 << 24;

void require_ranks(std::int64_t ranks) {
  if (ranks < 1) refuse("ranks is ", ranks, "; at least 1 is expected");
  if (ranks > kMaxRanks) refuse("ranks is ", ranks, "; at most ", kMaxRanks, " is expected");
}

void require_length(std::int64_t length) {
  if (length < 0) refuse("length is ", length, "; at least 0 is expected");
}

// One of `chunks` consecutive ranges whose sizes differ by at most 1; the longer ones come first.
PositionRange chunk_of(std::int64_t length, std::int64_t chunks, std::int64_t chunk) {
  const auto begin = [&](std::int64_t c) { return c * (length / chunks) + std::min(c, length % chunks); };
  return {begin(chunk), begin(chunk + 1)};
}

int checked_axis(const char* name, const TensorView& tensor, int axis) {
  const int positive = axis < 0 ? axis + tensor.rank() : axis;
  if (positive < 0 || positive >= tensor.rank())
    refuse("axis is ", axis, "; an axis of ", name, " ", tensor.shape(), " is expected");
  return positive;
}

}  // namespace

// `runs` is sorted by position. Adjacent runs on the same rank become one.
Sharding::Sharding(std::span<const Run> runs, int ranks)
    : first_(static_cast<std::size_t>(ranks) + 1), rows_(static_cast<std::size_t>(ranks)) {
  for (const Run& run : runs)
    if (run.positions.begin < run.positions.end) add(run);
  list_ranges_by_rank();
}

void Sharding::add(const Run& run) {
  const auto [begin, end] = run.positions;
  if (begin > length_) refuse("position ", length_, " is on no rank; each position on one rank is expected");
  if (begin < length_)
    refuse("position ", begin, " is on rank ", run_of(begin).rank, " and on rank ", run.rank,
           "; each position on one rank is expected");
  const auto rank = static_cast<std::size_t>(run.rank);
  if (!runs_.empty() && runs_.back().rank == run.rank) {
    runs_.back().positions.end = end;
  } else {
    runs_.push_back({run.positions, run.rank, rows_[rank]});
    ++first_[rank + 1];
  }
  rows_[rank] += end - begin;
  length_ = end;
}

// A counting sort of runs_ by rank.
void Sharding::list_ranges_by_rank() {
  for (std::size_t rank = 1; rank < first_.size(); ++rank) first_[rank] += first_[rank - 1];
  ranges_.resize(runs_.size());
  first_row_.resize(runs_.size());
  std::vector<std::size_t> next = first_;
  for (const Run& run : runs_) {
    const std::size_t at = next[static_cast<std::size_t>(run.rank)]++;
    ranges_[at] = run.positions;
    first_row_[at] = run.row;
  }
}

Sharding Sharding::contiguous(std::int64_t length, int ranks) {
  require_length(length);
  require_ranks(ranks);
  std::vector<Run> runs;
  for (int rank = 0; rank < ranks; ++rank) runs.push_back({chunk_of(length, ranks, rank), rank});
  return {runs, ranks};
}

Sharding Sharding::zigzag(std::int64_t length, int ranks) {
  require_length(length);
  require_ranks(ranks);
  const std::int64_t chunks = 2 * std::int64_t{ranks};
  std::vector<Run> runs;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    runs.push_back({chunk_of(length, chunks, chunk), static_cast<int>(std::min(chunk, chunks - 1 - chunk))});
  return {runs, ranks};
}

Sharding Sharding::striped(std::int64_t length, int ranks, std::int64_t stripe) {
  require_length(length);
  require_ranks(ranks);
  if (stripe < 1) refuse("stripe is ", stripe, "; at least 1 is expected");
  if (length / stripe > kMaxStripes)
    refuse("stripe is ", stripe, "; at least ", length / kMaxStripes + 1, " is expected for a length of ",
           length);
  std::vector<Run> runs;
  int rank = 0;
  for (std::int64_t begin = 0; begin < length;) {
    const std::int64_t end = begin + std::min(stripe, length - begin);
    runs.push_back({{begin, end}, rank});
    begin = end;
    rank = rank + 1 == ranks ? 0 : rank + 1;
  }
  return {runs, ranks};
}

Sharding Sharding::from_ranges(const std::vector<std::vector<PositionRange>>& ranges) {
  if (ranges.empty()) refuse("ranges is empty; ranges of at least 1 rank are expected");
  require_ranks(std::ssize(ranges));
  std::vector<Run> runs;
  for (std::size_t rank = 0; rank < ranges.size(); ++rank)
    for (const PositionRange& range : ranges[rank]) {
      if (range.begin < 0 || range.end < range.begin)
        refuse("ranges has [", range.begin, ", ", range.end, ") on rank ", rank,
               "; 0 <= begin <= end is expected");
      runs.push_back({range, static_cast<int>(rank)});
    }
  std::ranges::sort(runs, {}, [](const Run& run) { return run.positions.begin; });
  return {runs, static_cast<int>(ranges.size())};
}

Sharding Sharding::from_ranks(std::span<const int> rank_of_position, int ranks) {
  require_ranks(ranks);
  std::vector<Run> runs;
  std::int64_t position = 0;
  for (const int rank : rank_of_position) {
    if (rank < 0 || rank >= ranks)
      refuse("rank_of_position has ", rank, " for position ", position, "; a rank of 0 to ", ranks - 1,
             " is expected");
    if (!runs.empty() && runs.back().rank == rank)
      ++runs.back().positions.end;
    else
      runs.push_back({{position, position + 1}, rank});
    ++position;
  }
  return {runs, ranks};
}

std::size_t Sharding::checked(int rank) const {
  if (rank < 0 || rank >= ranks()) refuse("rank is ", rank, "; a rank of 0 to ", ranks() - 1, " is expected");
  return static_cast<std::size_t>(rank);
}

std::int64_t Sharding::rows(int rank) const { return rows_[checked(rank)]; }

std::span<const PositionRange> Sharding::ranges(int rank) const {
  const std::size_t at = checked(rank);
  return std::span(ranges_).subspan(first_[at], first_[at + 1] - first_[at]);
}

const Sharding::Run& Sharding::run_of(std::int64_t position) const {
  if (position < 0 || position >= length_)
    refuse("position is ", position, "; a position of a sequence of ", length_, " is expected");
  const auto after =
      std::ranges::upper_bound(runs_, position, {}, [](const Run& run) { return run.positions.begin; });
  return *(after - 1);
}

int Sharding::rank_of(std::int64_t position) const { return run_of(position).rank; }

std::int64_t Sharding::row_of(std::int64_t position) const {
  const Run& run = run_of(position);
  return run.row + (position - run.positions.begin);
}

std::int64_t Sharding::position(int rank, std::int64_t row) const {
  const std::size_t at = checked(rank);
  if (row < 0 || row >= rows_[at])
    refuse("row is ", row, "; a row of the ", counted(rows_[at], "row"), " of rank ", rank, " is expected");
  const auto rows = std::span(first_row_).subspan(first_[at], first_[at + 1] - first_[at]);
  const auto range = static_cast<std::size_t>(std::ranges::upper_bound(rows, row) - rows.begin()) - 1;
  return ranges_[first_[at] + range].begin + (row - rows[range]);
}

Tensor Sharding::shard(const TensorView& whole, int axis, int rank) const {
  const int at = checked_axis("whole", whole, axis);
  if (whole.size(at) != length_)
    refuse("whole ", whole.shape(), " has ", counted(whole.size(at), "position"), " on axis ", at, "; ",
           length_, " are expected");
  Dims shape = whole.shape();
  shape[at] = rows(rank);
  Tensor rows = Tensor::uninitialized(shape, whole.dtype());
  std::int64_t row = 0;
  for (const auto [begin, end] : ranges(rank)) {
    copy(whole.narrow(at, begin, end - begin), rows.mutable_view().narrow(at, row, end - begin));
    row += end - begin;
  }
  return rows;
}

Tensor Sharding::join(std::span<const TensorView> shards, int axis) const {
  if (shards.size() != rows_.size())
    refuse("shards has ", counted(shards.size(), "entry", "entries"), "; one for each of ",
           counted(ranks(), "rank"), " is expected");
  const int at = checked_axis("shards", shards[0], axis);
  Dims shape = shards[0].shape();
  for (int rank = 0; rank < ranks(); ++rank) {
    const TensorView& shard = shards[static_cast<std::size_t>(rank)];
    shape[at] = rows(rank);
    if (shard.shape() != shape || shard.dtype() != shards[0].dtype())
      refuse("the shard of rank ", rank, " is ", shard.dtype(), " ", shard.shape(), "; ", shards[0].dtype(),
             " ", shape, " is expected");
  }
  shape[at] = length_;
  Tensor whole = Tensor::uninitialized(shape, shards[0].dtype());
  for (const Run& run : runs_) {
    const std::int64_t count = run.positions.end - run.positions.begin;
    copy(shards[static_cast<std::size_t>(run.rank)].narrow(at, run.row, count),
         whole.mutable_view().narrow(at, run.positions.begin, count));
  }
  return whole;
}

}  // namespace heed
