// heed plan: memory, traffic and time of attention over machines.
#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attend_arguments.hpp"
#include "bench/cases.hpp"
#include "bench/measure.hpp"
#include "command.hpp"
#include "draw/lettering.hpp"
#include "heed/distributed/plan.hpp"
#include "help.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "rank_options.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using distributed::Machines;
using distributed::PlannedCall;
using distributed::Results;
using distributed::Scheme;
using distributed::SchemePlan;

constexpr const char* kPlanDescription =
    "predict the memory, traffic and time of attention over several machines\n"
    "\n"
    "Each row is a scheme by which ranks share one call. It shows the most memory that a rank holds, the "
    "most bytes that a rank sends, the seconds, and the share of them spent on the work that one rank alone "
    "would do (docs/distributed.md). * marks the fastest scheme. Without --gflops, heed briefly measures the "
    "kernel of this machine on one thread.";

constexpr const char* kPlanExamples =
    "Examples:\n"
    "  heed plan --ranks 8 --length 131072 --causal --gbytes-per-s 12.5\n"
    "  heed plan --ranks 64 --nodes 32 --length 1000000 --heads 32 --kv-heads 8 \\\n"
    "      --head-dim 128 --dtype bf16 --causal --layout zigzag --gflops 2000\n"
    "  heed plan --ranks 16 --length 4000000 --queries 1 --heads 32 --kv-heads 8\n"
    "  heed plan --ranks 8 --length 32768 --causal --gradients --json\n";

constexpr std::int64_t kMaxRanks = 65536;
constexpr std::int64_t kMaxLength = std::int64_t{1} << 30;
constexpr std::int64_t kMaxSize = 65536;
// Sizes of the measured call, large enough for the kernel's full speed.
constexpr std::int64_t kMeasuredRows = 768;
constexpr std::int64_t kMeasuredKeys = 6144;
constexpr std::int64_t kMeasuredCalls = 5;

constexpr std::array kPlannedDTypes = {DType::f32, DType::bf16, DType::f16};

struct PlanArguments {
  std::int64_t ranks = 0;
  std::optional<std::int64_t> nodes;
  std::int64_t length = 0;
  std::optional<std::int64_t> queries;
  std::optional<std::int64_t> kv_heads;
  std::optional<double> gflops;
  Machines machines{.bytes_per_second = 12.5e9, .latency_seconds = 2e-6};
  PlannedCall call{.heads = 8};
  DType dtype = DType::f32;
  std::size_t layout = 0;
  bool json = false;
};

constexpr std::array kLayouts = {"contiguous", "zigzag", "striped"};

Sharding laid_out(std::size_t layout, std::int64_t length, int ranks) {
  return sharding_of({.sharding = static_cast<RankOptions::Kind>(1 + layout)}, false, length, ranks);
}

// The shortest text with up to six significant digits.
std::string number_text(double value) { return formatted("%.6g", value); }

std::string three_digits(double value) { return fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0); }

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return three_digits(seconds * 1e6) + " µs";
  if (seconds < 1) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 1e3) return three_digits(seconds) + " s ";
  return seconds < 1e6 ? three_digits(seconds / 3600) + " h " : three_digits(seconds / 86400) + " d ";
}

// Effective flop/s of the kernel on one thread, measured on a call similar to a rank's.
double measured_flops(const PlanArguments& arguments) {
  BenchCase what;
  const std::int64_t group = arguments.call.heads / arguments.call.kv_heads;
  const std::int64_t rows = arguments.queries.value_or(arguments.length);
  what.shape = {1,
                group,
                1,
                std::min(rows, kMeasuredRows),
                std::min(arguments.length, kMeasuredKeys),
                arguments.call.head_dim};
  what.dtype = arguments.dtype;
  what.threads = 1;
  Bench bench;
  return bench.measure(what, kMeasuredCalls).gflops() * 1e9;
}

// Fills in the values that depend on several options, and checks them.
void complete(PlanArguments& arguments) {
  PlannedCall& call = arguments.call;
  call.kv_heads = arguments.kv_heads.value_or(call.heads);
  if (call.heads % call.kv_heads != 0)
    refuse_usage("--heads is '", call.heads, "'; a multiple of --kv-heads ", call.kv_heads, " is expected");
  call.value_dim = call.head_dim;
  call.element_bytes = static_cast<int>(size_of(arguments.dtype));
  const std::int64_t nodes = arguments.nodes.value_or(arguments.ranks);
  if (arguments.ranks % nodes != 0)
    refuse_usage("--nodes is '", nodes, "'; a divisor of --ranks ", arguments.ranks, " is expected");
  arguments.machines.ranks_per_node = static_cast<int>(arguments.ranks / nodes);
  const std::int64_t queries = arguments.queries.value_or(arguments.length);
  if (queries > arguments.length)
    refuse_usage("--queries is '", queries, "'; at most --length ", arguments.length, " is expected");
  call.query_offset = arguments.length - queries;
}

std::string machines_line(const PlanArguments& arguments) {
  const Machines& machines = arguments.machines;
  const std::int64_t nodes = arguments.ranks / machines.ranks_per_node;
  return number_text(machines.flops_per_second / 1e9) + " GFLOP/s a rank" +
         (arguments.gflops ? "" : " (measured here, one thread)") + ", " + counted(arguments.ranks, "rank") +
         " on " + counted(nodes, "node") + "; between nodes " + number_text(machines.bytes_per_second / 1e9) +
         " GB/s, within one " + number_text(machines.node_bytes_per_second / 1e9) + " GB/s a rank, latency " +
         seconds_text(machines.latency_seconds);
}

void print(const PlanArguments& arguments, const std::vector<SchemePlan>& plans, Scheme chosen) {
  const auto row = [](const std::string& name, const std::string& memory, const std::string& sent,
                      const std::string& seconds, const std::string& efficiency, const std::string& note) {
    std::string line = left_aligned(name, 9) + right_aligned(memory, 11) + right_aligned(sent, 11) +
                       right_aligned(seconds, 10) + right_aligned(efficiency, 11);
    if (!note.empty()) line += "  " + note;
    std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  };
  std::cout << wrap(machines_line(arguments), 80, 0) << "\n\n";
  row("scheme", "memory", "sent", "time", "efficiency", "");
  for (const SchemePlan& one : plans) {
    const std::string name = std::string(name_of(one.scheme)) + (one.scheme == chosen ? " *" : "");
    if (one.possible)
      row(name, size_text(one.bytes_per_rank), size_text(one.bytes_sent), seconds_text(one.seconds),
          three_digits(100 * one.efficiency) + " %", one.note);
    else
      row(name, "-", "-", "-", "-", one.note);
  }
}

void print_json(const PlanArguments& arguments, const std::vector<SchemePlan>& plans, Scheme chosen) {
  const PlannedCall& call = arguments.call;
  const Machines& machines = arguments.machines;
  auto schemes = nlohmann::ordered_json::array();
  for (const SchemePlan& one : plans)
    schemes.push_back({{"scheme", name_of(one.scheme)},
                       {"possible", one.possible},
                       {"note", one.note},
                       {"bytes_per_rank", one.bytes_per_rank},
                       {"bytes_sent", one.bytes_sent},
                       {"seconds", one.seconds},
                       {"efficiency", one.efficiency}});
  const nlohmann::ordered_json object = {
      {"ranks", arguments.ranks},
      {"nodes", arguments.ranks / machines.ranks_per_node},
      {"gflops", machines.flops_per_second / 1e9},
      {"measured", !arguments.gflops.has_value()},
      {"gbytes_per_s", machines.bytes_per_second / 1e9},
      {"node_gbytes_per_s", machines.node_bytes_per_second / 1e9},
      {"latency", machines.latency_seconds},
      {"shape",
       {call.batch, call.heads, call.kv_heads, arguments.length - call.query_offset, arguments.length,
        call.head_dim}},
      {"dtype", name_of(arguments.dtype)},
      {"causal", call.causal},
      {"window", {call.window.left, call.window.right}},
      {"gradients", call.gradients},
      {"layout", kLayouts[arguments.layout]},
      {"chosen", name_of(chosen)},
      {"schemes", schemes}};
  std::cout << object.dump() << '\n';
}

void run_plan(PlanArguments arguments) {
  require_standard_output();
  complete(arguments);
  arguments.machines.flops_per_second =
      arguments.gflops ? *arguments.gflops * 1e9 : measured_flops(arguments);
  const int ranks = static_cast<int>(arguments.ranks);
  const Sharding queries = laid_out(arguments.layout, arguments.queries.value_or(arguments.length), ranks);
  const Sharding keys = laid_out(arguments.layout, arguments.length, ranks);
  const auto plans = distributed::plan(arguments.call, arguments.machines, queries, keys);
  const Scheme chosen = distributed::choose(plans);
  (arguments.json ? print_json : print)(arguments, plans, chosen);
}

void add_rate(CLI::App& app, const std::string& name, bool may_be_zero, std::function<void(double)> store,
              const std::string& help) {
  const auto checked = [name, may_be_zero, store = std::move(store)](double value) {
    if (value < 0 || (value == 0 && !may_be_zero))
      refuse_usage(name, " is '", number_text(value), "'; a number ", may_be_zero ? "of at least" : "above",
                   " 0 is expected");
    store(value);
  };
  add_real(app, name, checked, help);
}

void add_machines(CLI::App& app, PlanArguments& arguments) {
  begin_group(app, "Machines (--ranks is required)");
  Machines& machines = arguments.machines;
  add_integer(app, "--ranks", {1, kMaxRanks}, arguments.ranks, "number of processes that share the call");
  add_integer(app, "--nodes", {1, kMaxRanks}, arguments.nodes,
              "number of machines, each with the same number of ranks (default: one per rank)");
  add_rate(
      app, "--gbytes-per-s", false, [&machines](double x) { machines.bytes_per_second = x * 1e9; },
      "rate at which a rank sends, and at the same time receives, between nodes (default 12.5)");
  add_rate(
      app, "--node-gbytes-per-s", false, [&machines](double x) { machines.node_bytes_per_second = x * 1e9; },
      "the same between ranks of one node (default 8)");
  add_rate(
      app, "--latency", true, [&machines](double x) { machines.latency_seconds = x; },
      "seconds per message (default 2e-6)");
  add_rate(
      app, "--gflops", false, [&arguments](double x) { arguments.gflops = x; },
      "effective GFLOP/s of a rank, as heed bench prints them (default: measured)");
}

void add_call(CLI::App& app, PlanArguments& arguments) {
  begin_group(app, "Call (--length is required)");
  PlannedCall& call = arguments.call;
  const IntegerRange length{1, kMaxLength}, size{1, kMaxSize};
  add_integer(app, "--length", length, arguments.length,
              "number of keys, and of queries unless --queries is given");
  add_integer(app, "--queries", length, arguments.queries,
              "number of queries, if they are fewer: the last positions, as in decoding");
  add_integer(app, "--batch", size, call.batch, "batch entries (default 1)");
  add_integer(app, "--heads", size, call.heads, "query heads (default 8)");
  add_integer(app, "--kv-heads", size, arguments.kv_heads, "key heads (default: one per query head)");
  add_integer(app, "--head-dim", size, call.head_dim, "width of queries, keys and values (default 64)");
  add_choice(
      app, "--dtype", {"f32", "bf16", "f16"}, [&](std::size_t i) { arguments.dtype = kPlannedDTypes[i]; },
      "dtype of query, key, value and output (default f32)");
  add_flag(app, "--causal", call.causal, "allow keys up to the query's position");
  add_window_option(app, call.window);
  add_flag(app, "--gradients", call.gradients, "also plan the backward pass");
  add_choice(
      app, "--results", {"rows", "weights", "sums"},
      [&call](std::size_t i) {
        call.results = std::array{Results::of_rows, Results::weights, Results::sums}[i];
      },
      "results besides the output: rows (default: lse, entropy, top-k), weights (also weights or scores), or "
      "sums (also sums over rows: received, map)");
  add_choice(
      app, "--layout", {kLayouts[0], kLayouts[1], kLayouts[2]}, [&](std::size_t i) { arguments.layout = i; },
      "which positions a rank holds (default contiguous)");
}

}  // namespace

Command add_plan(CLI::App& heed) {
  CLI::App* app = add_command(heed, "plan", kPlanDescription);
  const auto arguments = std::make_shared<PlanArguments>();
  add_machines(*app, *arguments);
  add_call(*app, *arguments);
  begin_group(*app, "Results");
  add_flag(*app, "--json", arguments->json, "print one JSON object instead");
  finish_help(*app, {"--ranks N --length L [options]"}, kPlanExamples);
  return {app, [app, arguments] {
            require_option(*app, "--ranks", "the number of processes that share the call");
            require_option(*app, "--length", "the number of keys");
            run_plan(*arguments);
          }};
}

}  // namespace heed::cli
