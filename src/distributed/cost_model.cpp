#include "distributed/cost_model.hpp"

#include <algorithm>
#include <cstdio>

namespace heed::distributed {

double CostModel::seconds_per_byte() const {
  const double others = ranks() - 1;
  if (others == 0) return 0;
  const double near = std::min(machines.ranks_per_node, ranks()) - 1;
  return (near / machines.node_bytes_per_second + (others - near) / machines.bytes_per_second) / others;
}

double CostModel::slowest_seconds_per_byte() const {
  if (ranks() <= machines.ranks_per_node) return 1 / machines.node_bytes_per_second;
  if (machines.ranks_per_node == 1) return 1 / machines.bytes_per_second;
  return 1 / std::min(machines.bytes_per_second, machines.node_bytes_per_second);
}

double CostModel::cells_of(int rank) const {
  return static_cast<double>(sees().cells(queries.ranges(rank), {0, keys.length()}));
}

double CostModel::all_cells() const {
  return static_cast<double>(sees().cells(PositionRange{0, queries.length()}, {0, keys.length()}));
}

double CostModel::shard_bytes(int rank) const {
  const auto rows = static_cast<double>(call.batch * call.heads * queries.rows(rank));
  const auto key_rows = static_cast<double>(units() * keys.rows(rank));
  return (rows + key_rows) * key_bytes() * (call.gradients ? 2 : 1);
}

Traffic::Traffic(const CostModel& model)
    : model_(model), in_(static_cast<std::size_t>(model.ranks())), out_(in_.size()) {}

void Traffic::receive(int rank, double bytes, double messages) {
  OneWay& way = in_[static_cast<std::size_t>(rank)];
  way.bytes += bytes;
  way.messages += messages;
}

void Traffic::send(int rank, double bytes, double messages) {
  OneWay& way = out_[static_cast<std::size_t>(rank)];
  way.bytes += bytes;
  way.messages += messages;
}

double Traffic::seconds_of(const OneWay& way) const {
  return way.bytes * model_.seconds_per_byte() + way.messages * model_.machines.latency_seconds;
}

double Traffic::seconds() const {
  double longest = 0;
  for (const std::vector<OneWay>* ways : {&in_, &out_})
    for (const OneWay& way : *ways) longest = std::max(longest, seconds_of(way));
  return longest;
}

std::string imbalance_note(const CostModel& model) {
  constexpr double kWorthANote = 1.1;
  double most = 0;
  for (int rank = 0; rank < model.ranks(); ++rank) most = std::max(most, model.cells_of(rank));
  const double times = most * model.ranks() / model.all_cells();
  if (!(times > kWorthANote)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", times);
  return "the busiest rank has " + std::string(text) + " times the mean work";
}

namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 33;  // beyond every position

// The sum of clamp(m, 0, width) over all m < n.
std::int64_t sum_of_clamped(std::int64_t n, std::int64_t width) {
  if (n <= 0) return 0;
  const std::int64_t rising = std::min(n, width);
  return rising * (rising - 1) / 2 + (n - rising) * width;
}

// The number of keys before position + shift, summed over the queries.
std::int64_t cells_before(std::int64_t shift, PositionRange positions, PositionRange keys) {
  const std::int64_t width = keys.end - keys.begin;
  return sum_of_clamped(positions.end + shift - keys.begin, width) -
         sum_of_clamped(positions.begin + shift - keys.begin, width);
}

}  // namespace

std::int64_t Visibility::cells(PositionRange queries, PositionRange keys) const {
  if (queries.begin >= queries.end || keys.begin >= keys.end) return 0;
  const std::int64_t rows = queries.end - queries.begin;
  const PositionRange positions = {queries.begin + offset, queries.end + offset};
  std::int64_t cells = rows * (keys.end - keys.begin);
  if (causal || window.right >= 0) cells = cells_before(causal ? 1 : window.right + 1, positions, keys);
  if (window.left >= 0) cells -= cells_before(-window.left, positions, keys);
  return cells;
}

std::int64_t Visibility::cells(std::span<const PositionRange> queries, PositionRange keys) const {
  std::int64_t sum = 0;
  for (const PositionRange& range : queries) sum += cells(range, keys);
  return sum;
}

PositionRange Visibility::seen(PositionRange queries, std::int64_t length) const {
  const std::int64_t right = causal ? 0 : window.right >= 0 ? window.right : kFar;
  const std::int64_t left = window.left >= 0 ? window.left : kFar;
  const std::int64_t begin = std::clamp<std::int64_t>(queries.begin + offset - left, 0, length);
  const std::int64_t end = std::clamp<std::int64_t>(queries.end + offset + right, 0, length);
  return {begin, std::max(begin, end)};
}

}  // namespace heed::distributed
