// ring: every rank takes the blocks of keys that its rows see, in the order of positions; the next block
// arrives during the computation of the last.
//
// Alone, a rank takes for each block the time of its computation, or of its transfer if that is longer. With
// other ranks it also waits, because an owner serves one request after another. If all ranks wanted a block
// of one owner at once, a block would take the wait w that keeps the owner just busy: the sum over ranks of
// service / max(computation, w) is 1. (Ranks that compute longer leave room to others.) This happens only
// once; then ranks follow one another from owner to owner. So they wait for the consecutive blocks of one
// owner (the first ones at the very beginning), and at the next owner for all but the two that each rank has
// under way.
#include <algorithm>
#include <vector>

#include "distributed/cost_model.hpp"

namespace heed::distributed {
namespace {

constexpr std::int64_t kUnderWay = 2;  // blocks under way per rank
constexpr std::int64_t kMaxCounts = 20'000'000;
constexpr std::int64_t kLeastGroups = 64;
constexpr std::int64_t kMaxGroups = 4096;

std::int64_t overlap(PositionRange a, PositionRange b) {
  return std::max<std::int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

// The mean blocks of one rank within a group.
struct InGroup {
  double seen = 0;     // blocks that it takes
  double others = 0;   // blocks among these of which it lacks some keys
  double missing = 0;  // the share of those blocks' keys on other ranks
  double compute = 0;  // seconds of a block
};

struct RankTime {
  bool begun = false;  // has taken blocks of others
  double alone = 0;    // seconds if the other ranks asked only for the first block
  double waiting = 0;
};

class Ring {
 public:
  explicit Ring(const CostModel& model)
      : model_(model),
        length_(model.keys.length()),
        blocks_(ceil_div(length_, kSpanKeys)),
        wanted_(static_cast<std::size_t>(blocks_) + 1) {
    for (int rank = 0; rank < model.ranks(); ++rank) {
      seen_.push_back(seen_by(rank));
      for (const PositionRange& run : seen_.back()) {
        wanted_[index(run.begin)] += 1;
        wanted_[index(run.end)] -= 1;
      }
    }
    for (std::size_t block = 1; block < wanted_.size(); ++block) wanted_[block] += wanted_[block - 1];
    measure_pieces();
  }

  [[nodiscard]] double block_bytes() const {
    return as_double(std::min(kSpanKeys, length_)) * as_double(model_.units()) * model_.key_bytes();
  }

  // The bytes of the rank that sends the most: its keys, to all others that see their blocks.
  [[nodiscard]] double most_sent() const {
    double most = 0;
    for (int rank = 0; rank < model_.ranks(); ++rank) {
      double keys = 0;
      for (const PositionRange& range : model_.keys.ranges(rank))
        for (std::int64_t block = range.begin / kSpanKeys; block * kSpanKeys < range.end; ++block) {
          const double others = wanted_[index(block)] - (sees(rank, block) ? 1 : 0);
          keys += as_double(overlap(range, keys_of({block, block + 1}))) * others;
        }
      most = std::max(most, keys);
    }
    return most * as_double(model_.units()) * model_.key_bytes();
  }

  [[nodiscard]] double seconds() const {
    std::int64_t ranges = 0;
    for (int rank = 0; rank < model_.ranks(); ++rank)
      ranges += static_cast<std::int64_t>(model_.queries.ranges(rank).size());
    const std::int64_t groups = std::min(
        blocks_, std::clamp(kMaxCounts / std::max<std::int64_t>(1, ranges), kLeastGroups, kMaxGroups));
    std::vector<RankTime> times(index(model_.ranks()));
    for (std::int64_t group = 0; group < groups; ++group)
      add_group({blocks_ * group / groups, blocks_ * (group + 1) / groups}, times);
    double longest = 0;
    for (const RankTime& time : times) longest = std::max(longest, time.alone + time.waiting);
    return longest;
  }

 private:
  static std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

  [[nodiscard]] PositionRange keys_of(PositionRange blocks) const {
    return {blocks.begin * kSpanKeys, std::min(blocks.end * kSpanKeys, length_)};
  }

  // The blocks that a rank's rows see, as ascending runs with gaps between them.
  [[nodiscard]] std::vector<PositionRange> seen_by(int rank) const {
    std::vector<PositionRange> runs;
    for (const PositionRange& rows : model_.queries.ranges(rank)) {
      const PositionRange keys = model_.sees().seen(rows, length_);
      if (keys.begin == keys.end) continue;
      const PositionRange run = {keys.begin / kSpanKeys, ceil_div(keys.end, kSpanKeys)};
      if (!runs.empty() && run.begin <= runs.back().end)
        runs.back().end = std::max(runs.back().end, run.end);
      else
        runs.push_back(run);
    }
    return runs;
  }

  [[nodiscard]] bool sees(int rank, std::int64_t block) const {
    const std::vector<PositionRange>& runs = seen_[index(rank)];
    const auto after = std::ranges::upper_bound(runs, block, {}, &PositionRange::begin);
    return after != runs.begin() && block < (after - 1)->end;
  }

  // Measures two means: the keys of a block on one rank, and the consecutive blocks of which a rank holds
  // some keys.
  void measure_pieces() {
    double runs = 0;
    double pieces = 0;
    for (int rank = 0; rank < model_.ranks(); ++rank) {
      std::int64_t last = -2;
      for (const PositionRange& range : model_.keys.ranges(rank))
        for (std::int64_t block = range.begin / kSpanKeys; block * kSpanKeys < range.end; ++block) {
          if (block == last) continue;
          if (block != last + 1) runs += 1;
          pieces += 1;
          last = block;
        }
    }
    piece_ = as_double(length_) / pieces;
    blocks_in_a_row_ = pieces / runs;
  }

  void add_group(PositionRange blocks, std::vector<RankTime>& times) const {
    std::vector<InGroup> ranks;
    for (int rank = 0; rank < model_.ranks(); ++rank) ranks.push_back(in_group(rank, blocks));
    const double count = as_double(blocks.end - blocks.begin);
    const PositionRange keys = keys_of(blocks);
    const double seconds_of_key = as_double(model_.units()) * model_.key_bytes() * model_.seconds_per_byte();
    const double transfer = as_double(keys.end - keys.begin) / count * seconds_of_key;
    const double service = std::min(piece_ * seconds_of_key, transfer);
    const double wait = wait_of(ranks, service);
    const double latency = model_.machines.latency_seconds;
    double asked = 0;  // time on the owner's link for all requests of one block
    for (const InGroup& one : ranks) asked += one.missing * service;
    const double in_a_row = blocks_in_a_row_ - 1 + std::max(0.0, blocks_in_a_row_ - kUnderWay);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const InGroup& one = ranks[rank];
      const double arriving = one.missing * transfer;
      const double each = std::max({one.compute, arriving, (latency + arriving) / kUnderWay});
      RankTime& time = times[rank];
      time.alone += (one.seen - one.others) * one.compute + one.others * each;
      if (one.others == 0) continue;
      time.waiting = std::max(time.waiting, in_a_row * (one.missing * wait - each));
      // Nothing runs during the first transfer, which all request at once.
      if (!time.begun) time.alone += latency + std::max(arriving, asked) - (each - one.compute);
      time.begun = true;
    }
  }

  [[nodiscard]] InGroup in_group(int rank, PositionRange blocks) const {
    InGroup group;
    double missing = 0;
    for (const PositionRange& run : seen_[index(rank)]) {
      const PositionRange part = {std::max(run.begin, blocks.begin), std::min(run.end, blocks.end)};
      if (part.begin >= part.end) continue;
      group.seen += as_double(part.end - part.begin);
      const PositionRange keys = keys_of(part);
      std::int64_t own = 0;
      std::int64_t own_blocks = 0;
      for (const PositionRange& range : ranges_within(rank, keys)) {
        const PositionRange held = {std::max(range.begin, keys.begin), std::min(range.end, keys.end)};
        own += held.end - held.begin;
        const std::int64_t end = held.end == length_ ? blocks_ : held.end / kSpanKeys;
        own_blocks += std::max<std::int64_t>(0, end - ceil_div(held.begin, kSpanKeys));
      }
      group.others += as_double(part.end - part.begin - own_blocks);
      missing += as_double(keys.end - keys.begin - own);
    }
    if (group.seen == 0) return group;
    const double cells = as_double(model_.sees().cells(model_.queries.ranges(rank), keys_of(blocks)));
    group.compute = model_.seconds_of(cells * as_double(model_.call.batch * model_.call.heads)) / group.seen;
    if (group.others > 0) group.missing = std::min(1.0, missing / (group.others * as_double(kSpanKeys)));
    return group;
  }

  [[nodiscard]] std::span<const PositionRange> ranges_within(int rank, PositionRange keys) const {
    const auto ranges = model_.keys.ranges(rank);
    const auto first = std::ranges::partition_point(
        ranges, [&](const PositionRange& range) { return range.end <= keys.begin; });
    const auto last = std::partition_point(
        first, ranges.end(), [&](const PositionRange& range) { return range.begin < keys.end; });
    return {first, last};
  }

  // The wait at which an owner is just busy; 0 if it never is.
  [[nodiscard]] static double wait_of(std::vector<InGroup> ranks, double service) {
    std::erase_if(ranks, [](const InGroup& one) { return one.others == 0; });
    std::ranges::sort(ranks, std::ranges::greater(), &InGroup::compute);
    double waiting = 0;  // link time per block of the ranks whose computation is no longer than the wait
    for (const InGroup& one : ranks) waiting += one.missing * service;
    double busy = 0;  // share of the link used by the others
    for (const InGroup& one : ranks) {
      const double wait = waiting / (1 - busy);
      if (wait >= one.compute) return wait;
      busy += one.missing * service / one.compute;
      waiting -= one.missing * service;
      if (busy >= 1) return one.compute;
    }
    return 0;
  }

  const CostModel& model_;
  std::int64_t length_;
  std::int64_t blocks_;
  std::vector<std::vector<PositionRange>> seen_;  // blocks of each rank
  std::vector<double> wanted_;                    // for each block, the number of ranks that take it
  double piece_ = 1;
  double blocks_in_a_row_ = 1;
};

}  // namespace

Cost ring_cost(const CostModel& model) {
  const Ring ring(model);
  const double blocks = model.ranks() > 1 ? kUnderWay * ring.block_bytes() : 0;
  const double heads = as_double(model.call.batch * model.call.heads);
  Cost cost;
  for (int rank = 0; rank < model.ranks(); ++rank)
    cost.memory =
        std::max(cost.memory, model.shard_bytes(rank) + blocks +
                                  as_double(model.queries.rows(rank)) * heads * model.state_bytes());
  cost.sent = ring.most_sent();
  cost.seconds = ring.seconds();
  cost.note = imbalance_note(model);
  return cost;
}

}  // namespace heed::distributed
