#include "attention/plan/words.hpp"

#include <algorithm>
#include <utility>

#include "attention/isa/dispatch.hpp"
#include "attention/plan/backward_tasks.hpp"
#include "attention/plan/gathered_gradients.hpp"
#include "attention/plan/gathered_keys.hpp"
#include "attention/plan/tasks.hpp"
#include "core/message.hpp"
#include "heed/attention/targets.hpp"

namespace heed::detail {
namespace {

// In the order of cpu::Path; only these paths are planned.
constexpr std::string_view kPaths[] = {"decode",      "decode_pairs",  "decode_digits",    "decode_tiles",
                                       "matrix_keys", "packed_panels", "packed_kv_blocks", "packed_pairs"};

std::string_view name_of(cpu::Path path) {
  const auto at = static_cast<std::size_t>(path);
  return at < std::size(kPaths) ? kPaths[at] : "weights_pass";
}

constexpr std::string_view kSchedules[] = {"whole_tasks", "split_kv", "shared_spans", "keeps_weights"};
static_assert(std::size(kSchedules) == 1 + static_cast<std::size_t>(Schedule::keeps_weights));

std::string_view name_of(Schedule schedule) { return kSchedules[static_cast<std::size_t>(schedule)]; }

// A call goes to the first unit that takes it.
std::string unit_reason(std::string_view chosen) {
  std::string reason;
  for (const cpu::Kernels& unit : cpu::kernels().units()) {
    reason += said(reason.empty() ? "" : " ", unit.name, " takes ", unit.takes, ".");
    if (unit.name == chosen) break;
  }
  return reason;
}

std::string path_reason(const ForwardPass& pass) {
  const std::int64_t rows = pass.call.most_rows * pass.call.group;
  switch (pass.tiling.path) {
    case cpu::Path::decode:
    case cpu::Path::decode_pairs:
    case cpu::Path::decode_digits:
    case cpu::Path::decode_tiles:
      return said("A key head has only ", counted(rows, "row"), ", so keys and values are read in place.");
    case cpu::Path::matrix_keys:
      return said("A key head has only ", counted(rows, "row"), ", so matrix tiles read its keys in place.");
    case cpu::Path::packed_panels:
      return said("A key head has only ", counted(rows, "row"),
                  ". Its keys cannot be read in place, because of dropout or of rows that are not whole "
                  "vectors.");
    default:
      return said("A key head has ", rows, " rows, which share packed keys. ",
                  pass.tiling.cached_keys >= pass.call.key_length
                      ? "All packed keys of a head stay in working memory."
                      : "They do not all fit into working memory, so each task packs them again.");
  }
}

std::string schedule_reason(const ForwardPass& pass, int threads) {
  const std::size_t tasks = pass.tasks.size();
  switch (pass.schedule) {
    case Schedule::split_kv:
      return said("There are too few tasks for ", threads, " threads, so threads share spans of ", cpu::kSpan,
                  " keys.");
    case Schedule::shared_spans:
      return said("Tasks read pieces of the same memory, so they go over spans of ", cpu::kSpan,
                  " keys side by side.");
    case Schedule::keeps_weights:
      return "Tasks keep their weights until the sums of their rows are known, so `received` needs no second "
             "pass.";
    default:
      return threads == 1 ? "One thread is enough for a call of this size, or one was requested."
             : pass.call.map_size.rows > 0 ? "Rows that share a row of the map belong to one thread."
                                           : said(tasks, tasks == 1 ? " task cannot" : " tasks need not",
                                                  " be shared among ", threads, " threads.");
  }
}

int threads_of(int most, std::size_t count) {
  return static_cast<int>(std::clamp<std::size_t>(count, 1, static_cast<std::size_t>(most)));
}

PlannedPass in_words(const ForwardPass& pass, std::string name, int threads) {
  const bool split = pass.schedule == Schedule::split_kv || pass.schedule == Schedule::shared_spans;
  const std::size_t count = split ? pass.span_items.size() - 1 : pass.items.size() - 1;
  const int used = threads_of(threads, count);
  std::string because =
      unit_reason(pass.unit->name) + " " + path_reason(pass) + " " + schedule_reason(pass, threads);
  if (pass.keeps_rows_weights)
    because += " All weights are kept, so results that need the final sums take no further pass.";
  std::size_t together = 1;
  for (std::size_t i = 0; split && i < count; ++i)
    together = std::max(together, pass.span_items[i + 1] - pass.span_items[i]);
  return {std::move(name),
          pass.unit->name,
          std::string(name_of(pass.tiling.path)),
          std::string(name_of(pass.schedule)),
          std::move(because),
          std::ssize(pass.tasks),
          pass.tiling.rows,
          pass.tiling.step,
          used,
          static_cast<std::size_t>(used) * together * pass.tiling.bytes +
              (split ? pass.spans.size() * pass.tiling.state_bytes : 0)};
}

PlannedPass in_words(const WeightsPass& pass, std::string name, std::string because, int threads) {
  const int used = threads_of(threads, pass.tasks.size());
  std::int64_t keys = 0;
  for (const cpu::WeightsTask& task : pass.tasks) keys = std::max(keys, task.block_end - task.block_begin);
  return {std::move(name),
          pass.unit->name,
          std::string(name_of(pass.tiling.path)),
          "whole_tasks",
          unit_reason(pass.unit->name) + " " + std::move(because),
          std::ssize(pass.tasks),
          pass.tiling.rows,
          keys,
          used,
          static_cast<std::size_t>(used) * pass.tiling.bytes};
}

double visible_pairs(const Problem& p) {
  double pairs = 0;
  for (const Segment& s : p.segments)
    for (std::int64_t i = 0; i < s.query_end - s.query_begin; ++i) {
      const KeyRange seen = visible_keys(p, i + s.offset, s.keys());
      pairs += static_cast<double>(std::max<std::int64_t>(0, seen.end - seen.begin));
    }
  return pairs * static_cast<double>(p.heads);
}

std::string target_reason(std::string_view isa) {
  for (const heed::Target& target : targets())
    if (target.name == isa)
      return said("The fused kernel takes the call. Its target is ", isa, ": ", target.why, ".");
  return {};
}

std::string reference_reason(const Problem& p, bool of_gradients) {
  if (p.dtype == DType::f64) return "The tensors are f64, which only the reference computes.";
  return of_gradients ? "The reference kernel was requested, or the fused kernel does not support the call: "
                        "sizes beyond 1024, or a gradient of weights."
                      : "The reference kernel was requested, or the fused kernel does not support the call: "
                        "a dimension or top_k beyond 1024, or a map of more than 32768 columns.";
}

// The words about the kernel, and about a call with `products` multiply-adds per key.
template <class Plan>
AttentionPlan kernel_in_words(const Problem& p, const Plan& plan, std::int64_t products, bool of_gradients) {
  const bool in_f64 = plan.kernel == Kernel::reference;
  AttentionPlan words;
  words.kernel = plan.kernel;
  words.isa = plan.isa;
  words.multiply_adds = visible_pairs(p) * static_cast<double>(products);
  words.because = in_f64 ? reference_reason(p, of_gradients) : target_reason(plan.isa);
  if (in_f64) words.falls_back = "Nothing: the reference computes in f64.";
  return words;
}

// Changes the words about the first piece to words about a call with `products` multiply-adds per key.
void say_gathered(const GatherPlan& gathers, std::int64_t products, AttentionPlan& words) {
  const Problem& p = gathers.call;
  words.multiply_adds = static_cast<double>(p.batch * p.heads * p.query_length) *
                        static_cast<double>(gathers.keys_each * products);
  for (PlannedPass& pass : words.passes)
    pass.because = said(
        gathers.lists != nullptr ? "Lists have room for " : "Rows see ", gathers.keys_each, " of ",
        p.key_length, " keys, so the keys of each ", gathers.lists != nullptr ? "list" : "line",
        " are gathered, ", counted(gathers.pieces[0].row_end - gathers.pieces[0].row_begin, "row"),
        " at a time. This is the first of ", counted(gathers.pieces.size(), "piece"), ". ", pass.because);
}

}  // namespace

AttentionPlan in_words(const Problem& p, const ExecutionPlan& plan) {
  AttentionPlan words = kernel_in_words(p, plan, p.head_dim + p.value_dim, false);
  if (plan.kernel == Kernel::reference) return words;
  words.falls_back = "Rows whose numbers f32 cannot hold are computed again in f64.";
  for (const ForwardPass& pass : plan.forward())
    words.passes.push_back(in_words(pass, "forward", plan.threads));
  if (plan.weights)
    words.passes.push_back(in_words(*plan.weights, "weights",
                                    "Weights and `received` need the final sums of the rows.", plan.threads));
  if (plan.scores)
    words.passes.push_back(
        in_words(*plan.scores, "scores", "Scores are written as they are before the softmax.", plan.threads));
  if (plan.unmasked)
    for (const ForwardPass& pass : plan.unmasked->plan.forward()) {
      words.passes.push_back(in_words(pass, "forward without masks", plan.threads));
      words.passes.back().because +=
          " The masked mass compares the sums of the rows with and without the masks.";
    }
  return words;
}

AttentionPlan in_words(const Problem& p, Kernel wanted) {
  const std::optional<GatherPlan> gathers = plan_gather(p, wanted);
  if (!gathers) return in_words(p, ExecutionPlan(p, wanted));
  const GatheredPiece piece(*gathers, gathers->pieces[0], p.threads);
  AttentionPlan words = in_words(piece.problem(), ExecutionPlan(piece.problem(), wanted));
  say_gathered(*gathers, p.head_dim + p.value_dim, words);
  return words;
}

AttentionPlan in_words(const BackwardProblem& p, const BackwardPlan& plan) {
  // Five products, of which three have the head dimension and two the value dimension.
  AttentionPlan words =
      kernel_in_words(p.forward, plan, 3 * p.forward.head_dim + 2 * p.forward.value_dim, true);
  if (plan.kernel == Kernel::reference || plan.tasks.empty()) return words;
  words.falls_back = said("Key heads with rows that f32 cannot hold run again on ", plan.unit_of_failed->name,
                          ", without those rows, whose share is added in f64.");
  std::int64_t splits = 1;
  std::size_t parts = 0, longest = 0;
  for (const cpu::BackwardTask& task : plan.tasks) {
    splits = std::max(splits, task.splits);
    if (task.splits > 1) parts += static_cast<std::size_t>(query_part_size(task, p.forward.head_dim));
  }
  for (std::size_t i = 0; i + 1 < plan.phases.size(); ++i)
    longest = std::max(longest, plan.phases[i + 1] - plan.phases[i]);
  std::string because = unit_reason(plan.unit->name);
  because += splits == 1 ? " A task owns all keys of a key head."
                         : said(" Key heads are few, so the keys of each are split into ", splits, " tasks.");
  if (plan.phases.size() > 2)
    because += said(" Tasks that share a bias run in ", plan.phases.size() - 1, " phases.");
  because += said(" Where an lse is beyond 16, or a sequence has at most 192 keys, ", plan.lse_unit->name,
                  " sums the rows again, because an lse in f32 is too coarse.");
  const int used = threads_of(plan.threads, longest);
  words.passes.push_back({"backward", plan.unit->name, "backward", "whole_tasks", std::move(because),
                          std::ssize(plan.tasks), plan.tiling.rows, plan.tiling.keys, used,
                          static_cast<std::size_t>(used) * plan.tiling.bytes + parts * sizeof(float)});
  return words;
}

AttentionPlan in_words(const BackwardProblem& p, Kernel wanted) {
  const std::optional<GatherPlan> gathers = plan_gather(p, wanted);
  if (!gathers) return in_words(p, BackwardPlan(p, wanted));
  GatheredMemory memory;
  const GatheredGradients piece(p, *gathers, gathers->pieces[0], memory, false);
  AttentionPlan words = in_words(piece.problem(), BackwardPlan(piece.problem(), wanted));
  say_gathered(*gathers, 3 * p.forward.head_dim + 2 * p.forward.value_dim, words);
  for (PlannedPass& pass : words.passes) {
    pass.threads = threads_of(p.forward.threads, gathers->pieces.size());
    pass.bytes =
        static_cast<std::size_t>(pass.threads) * pass.bytes + pieces_at_once(*gathers) * memory.bytes();
  }
  return words;
}

}  // namespace heed::detail
