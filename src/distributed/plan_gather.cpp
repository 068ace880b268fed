// gather: keys and values of one key head after the other. Gradients have tasks, each a key head and a split
// of its keys.
#include <algorithm>
#include <limits>
#include <vector>

#include "distributed/cost_model.hpp"

namespace heed::distributed {
namespace {

// The same numbers as in the backward pass (src/attention/execute/backward.cpp).
constexpr std::int64_t kEnoughTasks = 16;
constexpr std::int64_t kSplitKeys = 768;
constexpr std::int64_t kSplitStep = 192;

// Each rank passes its latest block to the next rank, until all ranks have all blocks.
double forward_sent(const CostModel& model, int rank) {
  if (model.ranks() == 1) return 0;
  const int next = (rank + 1) % model.ranks();
  return as_double(model.units() * (model.keys.length() - model.keys.rows(next))) * model.key_bytes();
}

// The next head's keys travel during a head's computation.
Cost forward_cost(const CostModel& model) {
  const int ranks = model.ranks();
  const double units = as_double(model.units());
  const double length = as_double(model.keys.length());
  Cost cost;
  double most_cells = 0;
  double most_keys = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double keys = as_double(model.keys.rows(rank));
    most_keys = std::max(most_keys, keys);
    most_cells = std::max(most_cells, model.cells_of(rank));
    const double buffers = ranks > 1 ? std::min(2.0, units) * length * model.key_bytes() : 0;
    cost.memory = std::max(cost.memory, model.shard_bytes(rank) + buffers);
    cost.sent = std::max(cost.sent, forward_sent(model, rank));
  }
  const double compute = model.group() * model.seconds_of(most_cells);
  const double transfer = (ranks - 1) * (model.machines.latency_seconds +
                                         most_keys * model.key_bytes() * model.slowest_seconds_per_byte());
  cost.seconds = transfer + (units - 1) * std::max(transfer, compute) + compute;
  cost.note = imbalance_note(model);
  return cost;
}

// The tasks of one key head: the splits of its keys.
struct Split {
  PositionRange keys;
  double cells = 0;
};

std::vector<Split> splits_of(const CostModel& model) {
  const std::int64_t length = model.keys.length();
  const std::int64_t count = std::clamp<std::int64_t>(
      std::min(ceil_div(kEnoughTasks, model.units()), ceil_div(length, kSplitKeys)), 1, kEnoughTasks);
  const std::int64_t each = ceil_div(ceil_div(length, count), kSplitStep) * kSplitStep;
  std::vector<Split> splits;
  for (std::int64_t begin = 0; begin < length; begin += each) {
    const PositionRange keys = {begin, std::min(begin + each, length)};
    const auto cells = model.sees().cells(PositionRange{0, model.queries.length()}, keys);
    splits.push_back({keys, as_double(cells)});
  }
  return splits;
}

// Assigns consecutive tasks to ranks: the middles of a task and its rank lie at the same share of all the
// work.
class Shares {
 public:
  explicit Shares(const CostModel& model) : model_(model), splits_(splits_of(model)) {
    for (const Split& split : splits_) head_cells_ += split.cells;
    double before = 0;
    for (std::int64_t unit = 0; unit < model.units(); ++unit)
      for (std::size_t split = 0; split < splits_.size(); ++split) {
        const double all = head_cells_ * as_double(model.units());
        const double share = all > 0 ? (before + splits_[split].cells / 2) / all : 0;
        ranks_.push_back(std::min(model.ranks() - 1, static_cast<int>(share * model.ranks())));
        before += splits_[split].cells;
      }
  }

  [[nodiscard]] std::int64_t count() const { return as_signed(ranks_.size()); }
  [[nodiscard]] std::size_t splits() const { return splits_.size(); }

  // Adds the data that ranks gather, and the results that they return.
  void add_to(Traffic& in, Traffic& out, std::vector<double>& cells, std::vector<double>& held) const {
    const double group = model_.group();
    const double row_bytes = group * (model_.query_bytes() + 2 * model_.output_bytes() + 4);
    // Partial sums over keys are kept in f32 until all of them are added.
    const double part_bytes =
        group * (splits_.size() > 1 ? 4 * as_double(model_.call.head_dim) : model_.query_bytes());
    for (std::size_t task = 0; task < ranks_.size(); ++task) {
      const int rank = ranks_[task];
      const Split& split = splits_[task % splits_.size()];
      const bool new_rows = task % splits_.size() == 0 || ranks_[task - 1] != rank;
      const double keys = as_double(split.keys.end - split.keys.begin);
      const double rows = as_double(model_.queries.length());
      cells[static_cast<std::size_t>(rank)] += split.cells;
      // The keys of a split count as spread evenly over all ranks, because over all tasks of a head each rank
      // sends its own.
      const double of_keys = keys / as_double(model_.keys.length());
      for (int other = 0; other < model_.ranks(); ++other) {
        if (other == rank) continue;
        const double their_rows = as_double(model_.queries.rows(other));
        const double their_keys = as_double(model_.keys.rows(other)) * of_keys * model_.key_bytes();
        const double gathered = (new_rows ? their_rows * row_bytes : 0) + their_keys;
        const double returned = their_rows * part_bytes + their_keys;
        in.send(other, gathered, new_rows ? 1 : 0);
        in.receive(rank, gathered, new_rows ? 1 : 0);
        out.send(rank, returned, new_rows ? 1 : 0);
        out.receive(other, returned, new_rows ? 1 : 0);
      }
      double& here = held[static_cast<std::size_t>(rank)];
      here += (new_rows ? rows * row_bytes : 0) + rows * part_bytes + 2 * keys * model_.key_bytes();
    }
  }

 private:
  static std::int64_t as_signed(std::size_t n) { return static_cast<std::int64_t>(n); }

  const CostModel& model_;
  std::vector<Split> splits_;
  double head_cells_ = 0;
  std::vector<int> ranks_;  // of each task: by key head, then by split
};

// A rank sends after its computation. A receiver waits for the first sender, and then for its own link.
double backward_seconds(const CostModel& model, const Traffic& in, const Traffic& out,
                        const std::vector<double>& cells) {
  double all_sent = 0;
  double first = std::numeric_limits<double>::infinity();
  double receiving = 0;
  double most_sending = 0;
  for (int rank = 0; rank < model.ranks(); ++rank) most_sending = std::max(most_sending, in.sending(rank));
  for (int rank = 0; rank < model.ranks(); ++rank) {
    const double of_rank = cells[static_cast<std::size_t>(rank)];
    receiving = std::max(receiving, out.receiving(rank));
    if (of_rank == 0) continue;
    const double computed = std::max(most_sending, in.receiving(rank)) +
                            kBackwardWork * model.group() * model.seconds_of(of_rank);
    first = std::min(first, computed);
    all_sent = std::max(all_sent, computed + out.sending(rank));
  }
  return all_sent > 0 ? std::max(all_sent, first + receiving) : 0;
}

// The parts of dQ return to the ranks of the rows, which add them in the order of the splits.
Cost backward_cost(const CostModel& model) {
  const Shares shares(model);
  Traffic in(model);
  Traffic out(model);
  std::vector<double> cells(static_cast<std::size_t>(model.ranks()));
  std::vector<double> held(cells);
  shares.add_to(in, out, cells, held);
  Cost cost;
  cost.seconds = backward_seconds(model, in, out, cells);
  for (int rank = 0; rank < model.ranks(); ++rank) {
    const double parts = as_double(model.queries.rows(rank) * model.call.batch * model.call.heads) * 4 *
                         as_double(model.call.head_dim) *
                         as_double(static_cast<std::int64_t>(shares.splits()));
    const double buffers = model.ranks() > 1 ? held[static_cast<std::size_t>(rank)] + parts : 0;
    cost.memory = std::max(cost.memory, model.shard_bytes(rank) + buffers);
    cost.sent = std::max(cost.sent, forward_sent(model, rank) + in.sent(rank) + out.sent(rank));
  }
  if (shares.count() < model.ranks())
    cost.note = "the backward pass has " + std::to_string(shares.count()) + " tasks for " +
                std::to_string(model.ranks()) + " ranks";
  return cost;
}

}  // namespace

Cost gather_cost(const CostModel& model) {
  Cost cost = forward_cost(model);
  if (!model.call.gradients) return cost;
  Cost backward = backward_cost(model);
  cost.memory = std::max(cost.memory, backward.memory);
  cost.sent = backward.sent;
  cost.seconds += backward.seconds;
  if (!backward.note.empty()) cost.note = std::move(backward.note);
  return cost;
}

}  // namespace heed::distributed
