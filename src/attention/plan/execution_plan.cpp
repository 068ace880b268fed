#include "attention/plan/execution_plan.hpp"

#include <algorithm>
#include <cmath>

#include "attention/isa/dispatch.hpp"
#include "attention/plan/lower.hpp"
#include "attention/plan/tasks.hpp"
#include "attention/problem/score_rules.hpp"
#include "core/message.hpp"
#include "heed/attention/results.hpp"

namespace heed::detail {
namespace {

using cpu::Arguments;

constexpr std::int64_t kMaxDim = 1024;
constexpr std::int64_t kMaxTopK = 1024;
constexpr std::int64_t kMaxMapColumns = 32768;  // for a row group in kStatisticsBytes
// Least rows per head for tasks that keep their weights of several spans, because threads cannot share those.
constexpr std::int64_t kLeastKeepingRows = 3072;

// Whether tasks keep their weights for `received`. Decided by shape and results alone, so a head has the same
// bits with and without other heads.
bool keeps_task_weights(const Problem& p, const Arguments& call) {
  if (!p.received || p.received_last || p.weights || is_packed(p)) return false;
  Arguments keeping = call;
  keeping.keeps_task_weights = true;
  if (!cpu::kernels().forward(keeping).takes_received(keeping)) return false;
  return p.key_length <= cpu::kSpan || call.most_rows >= kLeastKeepingRows;
}

// A call of queries and keys alone; the other results are done already.
Arguments without_forward_results(Arguments call) {
  for (const auto& [entry, member] : kResults<Output>)
    if (entry.shape != ResultShape::pair && entry.shape != ResultShape::key &&
        entry.shape != ResultShape::key_last)
      (call.*member).data = nullptr;
  call.top_k = 0;
  call.map_size = {};
  return call;
}

// Makes tasks of at most `keys` keys.
std::vector<cpu::WeightsTask> weights_tasks(const Problem& p, std::span<const Segment> segments,
                                            std::int64_t keys) {
  std::vector<cpu::WeightsTask> tasks;
  for (const Segment& s : segments)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t key = 0; key < s.key_end - s.key_begin; key += keys)
        tasks.push_back({task_of(s, h, 1, s.query_begin, s.query_end), key,
                         std::min(key + keys, s.key_end - s.key_begin)});
  return tasks;
}

WeightsPass weights_pass(const Problem& p, const Arguments& call, const cpu::Kernels& unit,
                         std::span<const Segment> segments) {
  const cpu::Tiling tiling = unit.plan_weights_pass(call);
  std::int64_t keys = tiling.cached_keys;
  std::vector<cpu::WeightsTask> tasks = weights_tasks(p, segments, keys);
  while (p.threads > 1 && keys > tiling.step && std::ssize(tasks) < kItemsPerThread * p.threads) {
    keys -= tiling.step;
    tasks = weights_tasks(p, segments, keys);
  }
  return {call, &unit, tiling, std::move(tasks)};
}

// Before the bias, scores ignore masks: every row has a score for every key of the tensor.
WeightsPass scores_pass(const Problem& p, Arguments call) {
  const cpu::Kernels& unit = cpu::kernels().all();
  if (p.scores_stage == ScoresStage::bias) return weights_pass(p, call, unit, p.segments);
  call.mask.data = call.bias.data = call.alibi_slopes.data = call.decay.data = nullptr;
  call.sparse_mask_count = 0;
  call.score_mod = {};
  call.causal = false;
  call.window_left = call.window_right = -1;
  if (p.scores_stage == ScoresStage::raw) call.log2_softcap = 0;
  if (p.cache != nullptr)  // a cache has no keys outside of segments
    return weights_pass(p, call, unit, p.segments);
  std::vector<Segment> all;
  for (std::int64_t b = 0; b < p.batch; ++b) all.push_back({b, 0, p.query_length, 0, p.key_length, 0});
  return weights_pass(p, call, unit, all);
}

Problem rows_without_masks(const Problem& masked) {
  Problem plain = without_masks(masked);
  static_cast<ResultOutputs&>(plain) = {};
  return plain;
}

}  // namespace

bool fused_supports(const Problem& p) {
  if (p.dtype == DType::f64) return false;
  if (p.head_dim < 1 || p.value_dim < 1 || p.head_dim > kMaxDim || p.value_dim > kMaxDim) return false;
  if (p.top_k > kMaxTopK || (p.top_k > 0 && p.key_length > INT32_MAX)) return false;
  if (p.map && p.map_size.columns > kMaxMapColumns) return false;
  // Beyond these limits, the scale times log2(e) is not a normal float.
  return std::abs(p.scale) < 1e30 && (p.scale == 0 || std::abs(p.scale) > 1e-30) && p.softcap < 1e30 &&
         (p.softcap == 0 || p.softcap > 1e-30);
}

std::string_view fused_isa() { return cpu::kernels().name(); }

UnmaskedCall::UnmaskedCall(const Problem& masked)
    : problem(rows_without_masks(masked)), plan(problem, Kernel::fused) {}

ExecutionPlan::~ExecutionPlan() = default;

ExecutionPlan::ExecutionPlan(const Problem& p, Kernel wanted) {
  const bool fused = wanted != Kernel::reference && fused_supports(p);
  if (wanted == Kernel::fused && !fused)
    refuse(
        "kernel is fused, which supports f32, f16 and bf16, head and value dimensions from 1 to 1024, top_k "
        "up to 1024 (of fewer than 2^31 keys) and maps up to 32768 columns; automatic or reference is "
        "expected for this call");
  if (!fused) return;
  kernel = Kernel::fused;
  isa = fused_isa();
  if (p.batch * p.heads == 0) return;

  threads = threads_for(p, kSmallWork);
  Arguments call = lower(p);
  call.keeps_task_weights = keeps_task_weights(p, call);
  const bool needs_sums = p.weights || p.received_last || (p.received && !call.keeps_task_weights);
  keeps_rows = call.keeps_row_sums = needs_sums || p.masked_mass;
  if (p.map || !is_packed(p))
    add_pass(p, call, p.segments);
  else
    for_each_row_class(p, call.group, [&](const std::vector<Segment>& segments, std::int64_t longest) {
      Arguments of_class = call;
      of_class.most_rows = longest;
      add_pass(p, of_class, segments);
    });
  if (needs_sums) {
    std::vector<Segment> rest;
    for (ForwardPass& pass : std::span(passes_->data(), pass_count_)) {
      pass.keeps_rows_weights = cpu::decodes(pass.tiling.path);
      if (!pass.keeps_rows_weights) rest.insert(rest.end(), pass.segments.begin(), pass.segments.end());
    }
    const Arguments of_sums = without_forward_results(call);
    if (!rest.empty()) weights = weights_pass(p, of_sums, cpu::kernels().weights_pass(of_sums), rest);
  }
  if (p.scores) scores = scores_pass(p, without_forward_results(call));
  if (p.masked_mass) unmasked = std::make_unique<const UnmaskedCall>(p);
}

void ExecutionPlan::add_pass(const Problem& p, const Arguments& call, std::span<const Segment> segments) {
  if (pass_count_ == passes_->size()) passes_->emplace_back();
  plan_pass(p, call, segments, threads, (*passes_)[pass_count_++]);
}

}  // namespace heed::detail
