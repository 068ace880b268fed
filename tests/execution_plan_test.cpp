// The plans of many calls, without running them: tests/data/plans.txt says, target by target, which unit
// takes a call, on which path, and how its work is divided. A change of a decision changes this file. The
// variable HEED_PLANS_OUT names a file to write the plans of this machine's targets to.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "attention/check/checks.hpp"
#include "attention/check/results.hpp"
#include "attention/isa/dispatch.hpp"
#include "attention/plan/execution_plan.hpp"
#include "attention/plan/tasks.hpp"
#include "heed/attention/plan.hpp"
#include "heed/attention/targets.hpp"
#include "heed/error.hpp"

namespace {

using heed::AttentionOptions;
using heed::Dims;
using heed::DType;
using heed::Need;
using heed::TensorView;
using Index = std::int64_t;

struct Shape {
  Index batch, heads, kv_heads, queries, keys, dim;
};

// A call whose tensors have shapes and strides, but no memory that anybody may read.
struct Call {
  std::string name;
  Shape shape;
  DType dtype;
  AttentionOptions options;

  [[nodiscard]] TensorView query() const { return view(shape.heads, shape.queries); }
  [[nodiscard]] TensorView key() const { return view(shape.kv_heads, shape.keys); }

 private:
  [[nodiscard]] TensorView view(Index heads, Index length) const {
    static const double kNoMemory = 0;
    return {&kNoMemory, dtype, Dims{shape.batch, heads, length, shape.dim}};
  }
};

std::string name_of(const Shape& s) {
  std::ostringstream text;
  text << s.batch << 'x' << s.heads << '/' << s.kv_heads << " q" << s.queries << " k" << s.keys << " d"
       << s.dim;
  return text.str();
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {1, 8, 8, 1, 512, 64},      {1, 8, 2, 1, 20000, 64},      {4, 32, 8, 1, 4096, 128},
      {1, 8, 2, 3, 5000, 64},     {1, 8, 2, 4, 700, 40},        {1, 1, 1, 12, 100, 64},
      {1, 1, 1, 13, 100, 64},     {2, 4, 4, 32, 1000, 64},      {1, 2, 2, 127, 4000, 128},
      {1, 2, 2, 128, 4000, 128},  {1, 8, 8, 512, 512, 64},      {1, 8, 2, 4096, 4096, 128},
      {1, 1, 1, 20000, 20000, 8}, {1, 12, 12, 1024, 1024, 1024}};
  return all;
}

// Options that change a plan.
std::vector<std::pair<std::string, AttentionOptions>> variants() {
  AttentionOptions weights, received, map, top_k, masked_mass, scores, dropout, one_thread, f32_output;
  weights.need = Need::weights;
  received.need = Need::received;
  map.map = {64, 64};
  top_k.top_k = 100;
  top_k.need = Need::lse | Need::entropy | Need::max_score;
  masked_mass.need = Need::masked_mass;
  masked_mass.window = {100, 0};
  scores.need = Need::scores;
  scores.scores_stage = heed::ScoresStage::raw;
  dropout.dropout.probability = 0.1;
  one_thread.threads = 1;
  f32_output.output_dtype = DType::f32;
  return {{"", {}},
          {"weights", weights},
          {"received", received},
          {"map", map},
          {"top_k", top_k},
          {"masked_mass", masked_mass},
          {"raw scores", scores},
          {"dropout", dropout},
          {"one thread", one_thread},
          {"f32 output", f32_output}};
}

std::vector<Call> calls() {
  std::vector<Call> all;
  for (const auto& [name, options] : variants())
    for (const Shape& shape : shapes())
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const bool few = !name.empty() && (shape.batch > 1 || dtype == DType::f16);
        if (few || (name == "f32 output" && dtype == DType::f32)) continue;
        AttentionOptions complete = options;
        if (complete.threads == 0) complete.threads = 4;
        all.push_back(
            {std::string(heed::name_of(dtype)) + " " + name_of(shape) + (name.empty() ? "" : " ") + name,
             shape, dtype, complete});
      }
  return all;
}

std::string text_of(const heed::AttentionPlan& plan) {
  std::ostringstream text;
  for (const heed::PlannedPass& pass : plan.passes)
    text << (&pass == plan.passes.data() ? "" : "; ") << pass.name << ' ' << pass.unit << ' ' << pass.path
         << ' ' << pass.schedule << ' ' << pass.tasks << " tasks " << pass.rows << 'x' << pass.keys << ' '
         << pass.threads << " threads";
  return text.str();
}

// [target] -> call -> plan
std::map<std::string, std::map<std::string, std::string>> expected_plans() {
  std::ifstream file(std::string(HEED_TEST_DATA) + "/plans.txt");
  std::map<std::string, std::map<std::string, std::string>> plans;
  std::string target;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('[')) target = line.substr(1, line.size() - 2);
    if (const std::size_t colon = line.find(": "); colon != std::string::npos)
      plans[target][line.substr(0, colon)] = line.substr(colon + 2);
  }
  return plans;
}

// Selects a target for the duration of a scope.
class Selected {
 public:
  explicit Selected(const std::string& target) { heed::set_target(target); }
  ~Selected() { heed::set_target(before_); }
  Selected(const Selected&) = delete;
  Selected& operator=(const Selected&) = delete;

 private:
  std::string before_{heed::detail::cpu::kernels().name()};
};

TEST(ExecutionPlan, OfEachCallIsTheOneThatTheTableHas) {
  const auto expected = expected_plans();
  const char* out = std::getenv("HEED_PLANS_OUT");
  std::ofstream written(out == nullptr ? "/dev/null" : out);
  std::string missing;
  for (const heed::Target& target : heed::targets()) {
    const auto table = expected.find(target.name);
    if (!target.available || (table == expected.end() && out == nullptr)) {
      missing += (missing.empty() ? "" : ", ") + target.name;
      continue;
    }
    const Selected selected(target.name);
    written << '[' << target.name << "]\n";
    for (const Call& call : calls()) {
      const std::string plan =
          text_of(heed::plan_attention(call.query(), call.key(), call.key(), call.options));
      written << call.name << ": " << plan << '\n';
      if (out != nullptr) continue;
      const auto line = table->second.find(call.name);
      ASSERT_NE(line, table->second.end()) << target.name << ", " << call.name;
      EXPECT_EQ(plan, line->second) << target.name << ", " << call.name;
    }
  }
  if (!missing.empty()) GTEST_SKIP() << "not on this processor, or not in the table: " << missing;
}

// Each row of each head is in one task, each task in one item; the spans of a task cover the keys that it
// sees.
void expect_whole(const heed::detail::Problem& p, const heed::detail::ForwardPass& pass) {
  std::set<std::pair<Index, Index>> rows;  // (head, row)
  Index count = 0;
  for (const auto& task : pass.tasks) {
    EXPECT_LE((task.row_end - task.row_begin) * task.head_count, std::max(pass.tiling.rows, task.head_count));
    for (Index h = task.head_begin; h < task.head_begin + task.head_count; ++h)
      for (Index i = task.row_begin; i < task.row_end; ++i, ++count)
        rows.insert({task.batch * p.heads + h, i});
  }
  EXPECT_EQ(count, static_cast<Index>(rows.size()));
  EXPECT_EQ(count, p.batch * p.heads * p.query_length);
  EXPECT_EQ(pass.items.front(), 0u);
  EXPECT_EQ(pass.items.back(), pass.tasks.size());
  EXPECT_TRUE(std::is_sorted(pass.items.begin(), pass.items.end()));
  if (pass.schedule != heed::detail::Schedule::split_kv &&
      pass.schedule != heed::detail::Schedule::shared_spans)
    return;
  for (std::size_t t = 0; t < pass.tasks.size(); ++t) {
    const heed::detail::KeyRange spans = spans_of(p, pass.tasks[t]);
    for (std::size_t s = pass.first_span[t]; s < pass.first_span[t + 1]; ++s) {
      EXPECT_EQ(pass.spans[s].task, t);
      EXPECT_EQ(pass.spans[s].span, spans.begin + static_cast<Index>(s - pass.first_span[t]));
    }
    EXPECT_EQ(static_cast<Index>(pass.first_span[t + 1] - pass.first_span[t]), spans.end - spans.begin);
  }
  const std::set<std::size_t> order(pass.span_order.begin(), pass.span_order.end());
  EXPECT_EQ(order.size(), pass.spans.size());
  EXPECT_EQ(pass.span_items.back(), pass.spans.size());
}

TEST(ExecutionPlan, DividesEachRowAndEachKeyOnce) {
  for (const heed::Target& target : heed::targets()) {
    if (!target.available) continue;
    const Selected selected(target.name);
    for (const Call& call : calls()) {
      SCOPED_TRACE(target.name + ", " + call.name);
      heed::detail::Problem problem =
          heed::detail::check_call(call.query(), call.key(), call.key(), call.options);
      heed::detail::expect_results(problem, call.options);
      const heed::detail::ExecutionPlan plan(problem, heed::Kernel::fused);
      for (const auto& pass : plan.forward()) expect_whole(problem, pass);
      heed::detail::recycle(problem);
    }
  }
}

// The words of each unit that the plan of an f32 call passes on its way to one that takes it.
TEST(ExecutionPlan, SaysOfEachUnitWhichCallsItTakes) {
  const std::map<std::string, std::string> words = {
      {"amx", "only bf16 calls whose output is bf16, with 13 or more rows a key head"},
      {"amx_f32", "only f32 calls with 128 or more rows a key head"},
      {"amx_f16", "only f16 calls with 128 or more rows a key head"},
      {"avx512bf16", "only bf16 calls without dropout: many rows whose output is bf16, or few rows"},
      {"avx512bf16_tiles", "only gradients of bf16 calls with many rows"},
      {"avx512", "every call"},
      {"avx2", "every call"},
      {"plain", "every call"}};
  const Call call{"", {1, 2, 2, 5, 5, 8}, DType::f32, {}};
  std::size_t told = 0;
  for (const heed::Target& target : heed::targets()) {
    if (!target.available) continue;
    const Selected selected(target.name);
    const std::string because =
        heed::plan_attention(call.query(), call.key(), call.key()).passes.front().because;
    for (const auto& [unit, takes] : words)
      for (const std::string& name : {unit, unit + "_emulated"}) {
        const std::size_t at = because.find(name + " takes ");
        if (at == std::string::npos || (at > 0 && because[at - 1] != ' ')) continue;
        EXPECT_EQ(because.substr(at + name.size() + 7, takes.size()), takes) << because;
        ++told;
      }
  }
  EXPECT_GT(told, 0u);
}

TEST(ExecutionPlan, OfACallThatTheFusedKernelDoesNotTakeIsTheReferences) {
  const Call f64{"", {1, 2, 2, 5, 5, 8}, DType::f64, {}};
  const heed::AttentionPlan plan = heed::plan_attention(f64.query(), f64.key(), f64.key());
  EXPECT_EQ(plan.kernel, heed::Kernel::reference);
  EXPECT_TRUE(plan.passes.empty());
  EXPECT_EQ(plan.multiply_adds, 2 * 5 * 5 * (8 + 8));
  EXPECT_EQ(plan.result_bytes, 2u * 5 * 8 * 8);
  AttentionOptions fused;
  fused.kernel = heed::Kernel::fused;
  EXPECT_THROW((void)heed::plan_attention(f64.query(), f64.key(), f64.key(), fused), heed::Error);
}

TEST(ExecutionPlan, CountsTheKeysThatPositionsAllow) {
  AttentionOptions options;
  options.causal = true;
  options.need = Need::weights;
  const Call call{"", {2, 3, 1, 7, 7, 16}, DType::bf16, options};
  const heed::AttentionPlan plan = heed::plan_attention(call.query(), call.key(), call.key(), options);
  EXPECT_EQ(plan.multiply_adds, 2 * 3 * (7 * 8 / 2) * 32);
  EXPECT_EQ(plan.result_bytes, 2u * 3 * 7 * 16 * 2 + 2u * 3 * 7 * 7 * 4);
}

}  // namespace
