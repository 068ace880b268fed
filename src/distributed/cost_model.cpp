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

}  // namespace heed::distributed
