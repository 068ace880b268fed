// The schemes that exchange tensors, compute, and return results: ulysses, decode.
#include <algorithm>
#include <vector>

#include "distributed/cost_model.hpp"

namespace heed::distributed {
namespace {

// The traffic of rows and keys from their ranks to those that compute the heads, or back.
class HeadsExchange {
 public:
  explicit HeadsExchange(const CostModel& model) : model_(model) {}

  // The arguments are the bytes of a row of all query heads of a key head, and the bytes of a key.
  [[nodiscard]] Traffic traffic(double row_bytes, double key_bytes, bool back) const {
    Traffic traffic(model_);
    const std::int64_t computing = std::min<std::int64_t>(model_.ranks(), model_.units());
    for (int rank = 0; rank < model_.ranks(); ++rank) {
      const auto of_rows = [&](std::int64_t rows, std::int64_t keys) {
        return as_double(rows) * row_bytes + as_double(keys) * key_bytes;
      };
      const std::int64_t rows = model_.queries.rows(rank);
      const std::int64_t keys = model_.keys.rows(rank);
      const double here = as_double(units_of(rank));
      const double whole = here * of_rows(model_.queries.length() - rows, model_.keys.length() - keys);
      const double shard = (as_double(model_.units()) - here) * of_rows(rows, keys);
      const double of_whole = here > 0 ? model_.ranks() - 1 : 0;
      const double of_shard = as_double(computing) - (here > 0 ? 1 : 0);
      traffic.receive(rank, back ? shard : whole, back ? of_shard : of_whole);
      traffic.send(rank, back ? whole : shard, back ? of_whole : of_shard);
    }
    return traffic;
  }

  // The number of key heads that a rank computes.
  [[nodiscard]] std::int64_t units_of(int rank) const {
    return model_.units() / model_.ranks() + (rank < model_.units() % model_.ranks() ? 1 : 0);
  }

 private:
  const CostModel& model_;
};

std::string ulysses_note(const CostModel& model) {
  const std::int64_t ranks = model.ranks();
  if (ranks > model.units())
    return std::to_string(ranks - model.units()) + " of " + std::to_string(ranks) + " ranks have no head";
  if (model.units() % ranks != 0)
    return "some ranks have " + std::to_string(model.units() / ranks + 1) + " key heads, others one fewer";
  return "";
}

// The ranks that compute the spans: the one with most of a span's keys; among equals the one whose keys come
// first.
struct SpanOwners {
  std::vector<std::int64_t> spans;  // for each rank, those that some row sees
  std::vector<std::int64_t> cells;
  std::vector<std::int64_t> received;  // keys of its spans from other ranks
  std::vector<std::int64_t> sent;
  std::int64_t all = 0;  // spans
  std::int64_t moved = 0;

  explicit SpanOwners(const CostModel& model)
      : spans(static_cast<std::size_t>(model.ranks())), cells(spans), received(spans), sent(spans) {
    const std::int64_t length = model.keys.length();
    for (std::int64_t begin = 0; begin < length; begin += kSpanKeys)
      add(model, {begin, std::min(begin + kSpanKeys, length)});
  }

 private:
  void add(const CostModel& model, PositionRange span) {
    const std::int64_t seen = model.sees().cells(PositionRange{0, model.queries.length()}, span);
    if (seen == 0) return;
    std::vector<std::pair<int, std::int64_t>> held;  // each rank and its count
    for (std::int64_t key = span.begin; key < span.end;) {
      const int rank = model.keys.rank_of(key);
      const std::int64_t end = std::min(end_of_run(model.keys, rank, key), span.end);
      const auto known = std::ranges::find_if(held, [&](const auto& one) { return one.first == rank; });
      if (known == held.end())
        held.emplace_back(rank, end - key);
      else
        known->second += end - key;
      key = end;
    }
    const auto most = std::ranges::max_element(held, {}, [](const auto& one) { return one.second; });
    const auto owner = static_cast<std::size_t>(most->first);
    ++spans[owner];
    ++all;
    cells[owner] += seen;
    for (const auto& [rank, count] : held)
      if (rank != most->first) {
        received[owner] += count;
        sent[static_cast<std::size_t>(rank)] += count;
        moved += count;
      }
  }

  // The end of the run of a rank's positions that contains `position`.
  static std::int64_t end_of_run(const Sharding& sharding, int rank, std::int64_t position) {
    const auto ranges = sharding.ranges(rank);
    const auto after = std::ranges::upper_bound(ranges, position, {}, &PositionRange::begin);
    return (after - 1)->end;
  }
};

// All queries travel to all ranks. In each round a rank has the queries of twice as many ranks.
struct QueryRounds {
  double seconds = 0;
  std::vector<double> sent;  // by each rank

  explicit QueryRounds(const CostModel& model) : sent(static_cast<std::size_t>(model.ranks())) {
    const int ranks = model.ranks();
    std::vector<std::int64_t> before = {0};  // prefix sums of the ranks' rows, over two rounds of ranks
    for (int rank = 0; rank < 2 * ranks; ++rank)
      before.push_back(before.back() + model.queries.rows(rank % ranks));
    const double row_bytes = as_double(model.call.batch * model.call.heads) * model.query_bytes();
    for (int far = 1; far < ranks; far *= 2) {
      double most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto end = static_cast<std::size_t>(rank + ranks + 1);
        const auto count = static_cast<std::size_t>(std::min(far, ranks - far));
        const double bytes = as_double(before[end] - before[end - count]) * row_bytes;
        sent[static_cast<std::size_t>(rank)] += bytes;
        most = std::max(most, bytes);
      }
      seconds += model.machines.latency_seconds + most * model.seconds_per_byte();
    }
  }
};

}  // namespace

Cost ulysses_cost(const CostModel& model) {
  const HeadsExchange exchange(model);
  const double group = model.group();
  const double most_units = as_double(exchange.units_of(0));
  const double forward = most_units * group * model.seconds_of(model.all_cells());
  std::vector<Traffic> steps = {exchange.traffic(group * model.query_bytes(), model.key_bytes(), false),
                                exchange.traffic(group * model.output_bytes(), 0, true)};
  Cost cost;
  cost.seconds = forward;
  if (model.call.gradients) {
    const double rows = model.query_bytes() + 2 * model.output_bytes() + 4;  // output, its gradient, lse
    steps.push_back(exchange.traffic(group * rows, model.key_bytes(), false));
    steps.push_back(exchange.traffic(group * model.query_bytes(), model.key_bytes(), true));
    cost.seconds += kBackwardWork * forward;
  }
  for (const Traffic& step : steps) cost.seconds += step.seconds();
  const double of_head = (group * as_double(model.queries.length()) + as_double(model.keys.length())) *
                         model.key_bytes() * (model.call.gradients ? 2 : 1);
  for (int rank = 0; rank < model.ranks(); ++rank) {
    const double heads = model.ranks() > 1 ? as_double(exchange.units_of(rank)) * of_head : 0;
    cost.memory = std::max(cost.memory, model.shard_bytes(rank) + heads);
    double sent = 0;
    for (const Traffic& step : steps) sent += step.sent(rank);
    cost.sent = std::max(cost.sent, sent);
  }
  cost.note = ulysses_note(model);
  return cost;
}

Cost decode_cost(const CostModel& model) {
  const SpanOwners owners(model);
  const QueryRounds rounds(model);
  const double heads = as_double(model.call.batch * model.call.heads);
  const double units = as_double(model.units());
  const double length = as_double(model.queries.length());
  Traffic moves(model);
  Traffic states(model);
  const auto with_spans = std::ranges::count_if(owners.spans, [](auto n) { return n > 0; });
  std::int64_t with_rows = 0;
  for (int rank = 0; rank < model.ranks(); ++rank) with_rows += model.queries.rows(rank) > 0 ? 1 : 0;
  Cost cost;
  double slowest = 0;
  const double queries = model.ranks() > 1 ? length * heads * model.query_bytes() : 0;
  for (int rank = 0; rank < model.ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const double rows = as_double(model.queries.rows(rank));
    const double spans = as_double(owners.spans[at]);
    const double key_bytes = units * model.key_bytes();
    moves.receive(rank, as_double(owners.received[at]) * key_bytes, 0);
    moves.send(rank, as_double(owners.sent[at]) * key_bytes, owners.sent[at] > 0 ? 1 : 0);
    const double in = rows * (as_double(owners.all) - spans) * heads * model.state_bytes();
    const double out = (length - rows) * spans * heads * model.state_bytes();
    states.receive(rank, in, rows > 0 ? as_double(with_spans - (spans > 0 ? 1 : 0)) : 0);
    states.send(rank, out, spans > 0 ? as_double(with_rows - (rows > 0 ? 1 : 0)) : 0);
    slowest = std::max(slowest, as_double(owners.cells[at]) * heads);
    const double held = length * spans * heads * model.state_bytes() + in;
    cost.memory = std::max(
        cost.memory, model.shard_bytes(rank) + queries + held + as_double(owners.received[at]) * key_bytes);
    cost.sent = std::max(cost.sent, rounds.sent[at] + moves.sent(rank) + states.sent(rank));
  }
  cost.seconds = rounds.seconds + moves.seconds() + model.seconds_of(slowest) + states.seconds();
  if (owners.moved > 0) cost.note = "spans of 3072 keys are divided among ranks: keys move first";
  return cost;
}

}  // namespace heed::distributed
