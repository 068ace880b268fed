#include <array>
#include <cmath>
#include <string_view>

#include "core/message.hpp"
#include "distributed/cost_model.hpp"
#include "heed/distributed/scheme.hpp"

namespace heed::distributed {
namespace {

using detail::counted;
using detail::refuse;

constexpr std::int64_t kMax = std::int64_t{1} << 30;  // so that cells fit 63 bits

constexpr std::int64_t kMaxHeads = 65536;

void require_length(const char* name, std::int64_t length) {
  if (length < 1 || length > kMax) refuse("the length of ", name, " is ", length, "; 1 to 2^30 is expected");
}

void require_rate(const char* name, double rate) {
  if (!(rate > 0) || std::isinf(rate)) refuse(name, " is ", rate, "; a finite number above 0 is expected");
}

void require_call(const PlannedCall& call) {
  detail::check_range("batch", call.batch, 1, kMaxHeads);
  detail::check_range("heads", call.heads, 1, kMaxHeads);
  detail::check_range("kv_heads", call.kv_heads, 1, kMaxHeads);
  detail::check_range("head_dim", call.head_dim, 1, kMaxHeads);
  detail::check_range("value_dim", call.value_dim, 1, kMaxHeads);
  detail::check_range("element_bytes", call.element_bytes, 1, kMaxHeads);
  if (call.heads % call.kv_heads != 0)
    refuse("heads is ", call.heads, "; a multiple of kv_heads ", call.kv_heads, " is expected");
  if (call.batch * call.kv_heads > kMaxHeads)
    refuse("batch * kv_heads is ", call.batch * call.kv_heads, "; at most 65536 is expected");
  for (const std::int64_t side : {call.window.left, call.window.right})
    if (side < -1 || side > kMax) refuse("window has ", side, "; -1 to 2^30 is expected");
  if (call.query_offset < -kMax || call.query_offset > kMax)
    refuse("query_offset is ", call.query_offset, "; -2^30 to 2^30 is expected");
}

void require_shardings(const Sharding& queries, const Sharding& keys) {
  require_length("queries", queries.length());
  require_length("keys", keys.length());
  if (queries.ranks() != keys.ranks())
    refuse("keys has ", counted(keys.ranks(), "rank"), "; ", queries.ranks(),
           ", as in queries, are expected");
}

// Why a scheme cannot give the requested results; empty if it can.
std::string_view why_not(Scheme scheme, const PlannedCall& call) {
  const bool streams = scheme == Scheme::ring || scheme == Scheme::decode;
  if (call.results == Results::sums && scheme != Scheme::ulysses)
    return "no rank has all rows of a head, so sums over rows would round in another order";
  if (call.results == Results::weights && streams) return "weights need a row's final sum over all keys";
  if (call.gradients && streams) return "the backward pass works only with gather or ulysses";
  return "";
}

struct Formula {
  Scheme scheme;
  Cost (*cost)(const CostModel&);
};

constexpr std::array<Formula, 4> kFormulas = {{{Scheme::ring, ring_cost},
                                               {Scheme::gather, gather_cost},
                                               {Scheme::ulysses, ulysses_cost},
                                               {Scheme::decode, decode_cost}}};

// The time of all the arithmetic on one rank.
double alone(const CostModel& model) {
  return model.seconds_of(model.all_cells()) * static_cast<double>(model.call.batch * model.call.heads) *
         (model.call.gradients ? 1 + kBackwardWork : 1);
}

SchemePlan planned(const Formula& formula, const CostModel& model) {
  SchemePlan plan;
  plan.scheme = formula.scheme;
  plan.note = why_not(formula.scheme, model.call);
  if (!plan.note.empty()) return plan;
  Cost cost = formula.cost(model);
  plan.possible = true;
  plan.note = std::move(cost.note);
  plan.bytes_per_rank = cost.memory;
  plan.bytes_sent = cost.sent;
  plan.seconds = cost.seconds;
  plan.efficiency = cost.seconds > 0 ? alone(model) / (model.ranks() * cost.seconds) : 1;
  return plan;
}

}  // namespace

void check_machines(const Machines& machines) {
  if (machines.ranks_per_node < 1)
    refuse("ranks_per_node is ", machines.ranks_per_node, "; at least 1 is expected");
  require_rate("flops_per_second", machines.flops_per_second);
  require_rate("bytes_per_second", machines.bytes_per_second);
  require_rate("node_bytes_per_second", machines.node_bytes_per_second);
  if (!(machines.latency_seconds >= 0) || std::isinf(machines.latency_seconds))
    refuse("latency_seconds is ", machines.latency_seconds, "; a finite number of at least 0 is expected");
}

std::vector<SchemePlan> plan(const PlannedCall& call, const Machines& machines, const Sharding& queries,
                             const Sharding& keys) {
  require_call(call);
  detail::check_listed("results", call.results, Results::sums);
  check_machines(machines);
  require_shardings(queries, keys);
  const CostModel model = {call, machines, queries, keys};
  std::vector<SchemePlan> plans;
  for (const Formula& formula : kFormulas) plans.push_back(planned(formula, model));
  return plans;
}

Scheme choose(std::span<const SchemePlan> plans) {
  const SchemePlan* best = nullptr;
  for (const SchemePlan& one : plans)
    if (one.possible && (best == nullptr || one.seconds < best->seconds)) best = &one;
  if (best == nullptr) refuse("plans has no possible scheme; one is expected");
  return best->scheme;
}

namespace {

constexpr std::array<std::string_view, 5> kNames = {"automatic", "ring", "gather", "ulysses", "decode"};

}  // namespace

std::string_view name_of(Scheme scheme) {
  detail::check_listed("scheme", scheme, Scheme::decode);
  return kNames[static_cast<std::size_t>(scheme)];
}

Scheme scheme_of(std::string_view name) {
  for (std::size_t at = 0; at < kNames.size(); ++at)
    if (kNames[at] == name) return static_cast<Scheme>(at);
  detail::refuse("scheme is '", name, "'; automatic, ring, gather, ulysses or decode is expected");
}

}  // namespace heed::distributed
