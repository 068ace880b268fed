// heed bench: the speed of attention on this machine, beside what the hardware allows.
#include <algorithm>
#include <array>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases.hpp"
#include "bench/measure.hpp"
#include "command.hpp"
#include "draw/lettering.hpp"
#include "heed/attention/targets.hpp"
#include "heed/parallel.hpp"
#include "help.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using ceiling::Limit;

constexpr const char* kBenchDescription =
    "measure the speed of attention on this machine, and its share of the machine's ceiling\n"
    "\n"
    "Each row shows one call: its median time, its effective flops (4 B H Lq Lk D, half of that if causal), "
    "and its share of the ceiling. The ceiling is measured between the calls. It is the time of the "
    "arithmetic in registers alone (fma; bf16: dot products; tiles: matrix tiles) or, if longer, of reading "
    "the keys and values from memory (read) or writing the weights to it (write).";

constexpr const char* kBenchExamples =
    "Examples:\n"
    "  heed bench\n"
    "  heed bench --shape 16,2048,2048,64 --causal --threads 1,2\n"
    "  heed bench --shape 8,4096,4096,128 --dtype bf16 --all\n"
    "  heed bench --shape 1,32,8,1,8192,128 --dtype bf16 --json\n"
    "  heed bench --shape 16,2048,2048,64 --need lse,entropy,top8 --repeat 20\n"
    "  heed bench --cache --threads 1\n"
    "  heed bench --cache int8,paged --shape 1,32,8,1,32768,128\n";

constexpr std::array kDTypes = {DType::f32, DType::bf16, DType::f16};

struct BenchArguments {
  BenchChoice choice;
  std::optional<std::int64_t> repeat;
  bool all = false;  // measure all targets
  bool json = false;
};

constexpr std::array kShortNames = {"fma", "bf16", "tiles", "tiles", "read", "write"};
static_assert(kShortNames.size() == 1 + static_cast<std::size_t>(Limit::memory_write));

const char* short_name(Limit limit) { return kShortNames[static_cast<std::size_t>(limit)]; }

// Three significant digits: "1.23 ms".
std::string time_text(double seconds) {
  const double value = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;
  const char* unit = seconds < 1e-3 ? " µs" : seconds < 1 ? " ms" : " s ";
  return fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0) + unit;
}

// The table, with columns as wide as the widest shape and needs.
class BenchTable {
 public:
  explicit BenchTable(const std::vector<BenchCase>& cases) {
    std::vector<std::string> shapes = {kShapeTitle};
    std::vector<std::string> needs = {kNeedTitle};
    std::vector<std::string> caches = {kCacheTitle};
    for (const BenchCase& what : cases) {
      shapes.push_back(to_string(what.shape));
      needs.push_back(to_string(what.needs));
      caches.push_back(to_string(what.cache));
    }
    const bool has_caches = !cases.empty() && cases[0].cache;
    widths_ = {-widest(shapes), -5, has_caches ? -widest(caches) : 0, -6, -widest(needs), -10, 7, 8, 8, 5};
  }

  [[nodiscard]] std::string header() const {
    return line({kShapeTitle, "dtype", kCacheTitle, "causal", kNeedTitle, "target", "threads", "time  ",
                 "GFLOP/s", "share"}) +
           " of";
  }
  [[nodiscard]] std::string row(const BenchCase& what, const Measured& m) const {
    const std::string_view kept = what.cache ? heed::name_of(what.cache->format) : heed::name_of(what.dtype);
    return line({to_string(what.shape), std::string(kept), to_string(what.cache), what.causal ? "yes" : "",
                 to_string(what.needs), m.isa, std::to_string(what.threads), time_text(m.seconds),
                 fixed(m.gflops(), 1), fixed(100 * m.share(), 0)}) +
           " % " + short_name(m.limit);
  }

 private:
  static constexpr const char* kShapeTitle = "H,Lq,Lk,D";
  static constexpr const char* kNeedTitle = "need";
  static constexpr const char* kCacheTitle = "cache";

  // Cells with a space between.
  [[nodiscard]] std::string line(const std::vector<std::string>& cells) const {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (widths_[i] != 0) text += (text.empty() ? "" : " ") + in_columns({cells[i]}, {widths_[i]});
    return text;
  }

  std::vector<int> widths_;  // as in_columns() takes them; 0: no case reads a cache
};

// The ceilings that rows were compared with, each at its best rate, in order of appearance: "f32 FMA (avx512)
// 128 GFLOP/s on 1 thread".
class SeenCeilings {
 public:
  void add(const BenchCase& what, const Measured& m) {
    for (Seen& one : seen_)
      if (one.limit == m.limit && one.threads == what.threads && one.isa == m.isa) {
        one.rate = std::max(one.rate, m.rate);
        return;
      }
    seen_.push_back({m.limit, what.threads, m.isa, m.rate});
  }
  void print() const {
    std::cout << "\nbest measured ceilings:\n";
    for (const Seen& one : seen_) {
      const bool memory = one.limit == Limit::memory_read || one.limit == Limit::memory_write;
      std::cout << "  " << left_aligned(short_name(one.limit), 5) << "  "
                << left_aligned(name_of(one.limit, one.isa), 22)
                << right_aligned(fixed(one.rate / 1e9, memory ? 1 : 0), 6)
                << (memory ? " GB/s   " : " GFLOP/s") << " on " << counted(one.threads, "thread") << '\n';
    }
  }

 private:
  struct Seen {
    Limit limit;
    int threads;
    std::string isa;
    double rate;
  };
  std::vector<Seen> seen_;
};

nlohmann::ordered_json json_of(const BenchCase& what, const Measured& m) {
  const BenchShape& s = what.shape;
  nlohmann::ordered_json cache;  // null
  if (what.cache)
    cache = {{"format", heed::name_of(what.cache->format)},
             {"layout", heed::name_of(what.cache->layout)},
             {"values_in_keys", what.cache->values_in_keys}};
  return {{"shape", {s.batch, s.heads, s.kv_heads, s.query_length, s.key_length, s.head_dim}},
          {"dtype", heed::name_of(what.dtype)},
          {"cache", cache},
          {"causal", what.causal},
          {"need", what.needs},
          {"isa", m.isa},
          {"threads", what.threads},
          {"seconds", m.seconds},
          {"gflops", m.gflops()},
          {"ceiling", name_of(m.limit, m.isa)},
          {"ceiling_gflops", m.ceiling_gflops()},
          {"share", m.share()}};
}

// The targets to measure: the one that calls use, or all of this machine's except the emulations built for
// tests.
std::vector<std::string> targets_to_measure(bool all) {
  std::vector<std::string> names;
  for (const Target& target : targets())
    if (all ? target.available && !target.name.ends_with("_emulated") : target.chosen)
      names.push_back(target.name);
  return names;
}

void bench(const BenchArguments& arguments) {
  require_standard_output();
  if (arguments.choice.caches && arguments.choice.dtype)
    refuse_usage("--dtype is given together with --cache; --cache names the formats that a cache stores");
  const std::vector<BenchCase> cases = bench_cases(arguments.choice);
  const BenchTable table(cases);
  SeenCeilings ceilings;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  ProgressBar progress(ProgressBar::Milliseconds(0));  // a row takes seconds
  Bench runner;
  if (!arguments.json) std::cout << table.header() << std::endl;
  const std::vector<std::string> names = targets_to_measure(arguments.all);
  const std::size_t count = cases.size() * names.size();
  for (std::size_t i = 0; i < count; ++i) {
    const BenchCase& what = cases[i / names.size()];
    progress.show(std::to_string(i) + "/" + std::to_string(count) + "  " + to_string(what.shape),
                  static_cast<double>(i) / static_cast<double>(count));
    set_target(names[i % names.size()]);
    const Measured measured = runner.measure(what, arguments.repeat);
    progress.clear();
    if (arguments.json) {
      rows.push_back(json_of(what, measured));
    } else {
      ceilings.add(what, measured);
      std::cout << table.row(what, measured) << std::endl;
    }
  }
  if (arguments.json)
    std::cout << rows.dump() << '\n';
  else
    ceilings.print();
}

void add_calls(CLI::App& app, BenchChoice& choice) {
  begin_group(app, "Calls (without --shape: those of docs/performance.md)");
  add_texts_option(
      app, "--shape", "SHAPE",
      [&choice](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) choice.shapes.push_back(parse_bench_shape(text));
      },
      "H,Lq,Lk,D or B,H,Hkv,Lq,Lk,D; may be repeated");
  add_choice(
      app, "--dtype", {"f32", "bf16", "f16"}, [&choice](std::size_t i) { choice.dtype = kDTypes[i]; },
      "dtype of query, key, value and output (default f32 with --shape)");
  add_optional_text(
      app, "--cache", "NAMES",
      [&choice](const std::string& text) { choice.caches = parse_bench_caches(text); },
      "read KV caches with these formats (f32, bf16, f16, int8, int4, fp8) and layouts (contiguous, paged, "
      "ring), separated by commas; values-in-keys stores rows once; sequence b of B, counted from 0, holds "
      "Lk (b + 1) / B keys");
  add_flag(app, "--causal", choice.causal, "allow keys up to the query's position");
  add_text_option(
      app, "--need", "NAMES", [&choice](const std::string& text) { choice.needs = parse_bench_needs(text); },
      "also compute " + bench_need_names() + " (64 x 64), separated by commas");
}

void add_computing(CLI::App& app, BenchArguments& arguments) {
  begin_group(app, "Computing");
  add_text_option(
      app, "--threads", "N",
      [&arguments](const std::string& text) {
        const std::vector<std::int64_t> counts = whole_numbers(text, ',');
        constexpr auto kMost = std::numeric_limits<std::int16_t>::max();
        if (counts.empty() || std::ranges::min(counts) < 0 || std::ranges::max(counts) > kMost)
          refuse_value("--threads", text, "a list of whole numbers from 0 to 32767, separated by commas,");
        for (const std::int64_t count : counts)
          arguments.choice.threads.push_back(count == 0 ? default_threads() : static_cast<int>(count));
      },
      "use at most N threads, or measure each of N,M,…; 0 is all of the machine (default 1,0)");
  add_integer(app, "--repeat", {1}, arguments.repeat,
              "time each call N times (default: for half a second, at least 3 times)");
  add_flag(app, "--all", arguments.all, "measure each call on every target of this machine (see heed info)");
  add_flag(app, "--json", arguments.json, "print a JSON list instead, one object per row");
}

}  // namespace

Command add_bench(CLI::App& heed) {
  CLI::App* app = add_command(heed, "bench", kBenchDescription);
  const auto arguments = std::make_shared<BenchArguments>();
  add_calls(*app, arguments->choice);
  add_computing(*app, *arguments);
  finish_help(*app, {"[options]"}, kBenchExamples);
  return {app, [arguments] { bench(*arguments); }};
}

}  // namespace heed::cli
