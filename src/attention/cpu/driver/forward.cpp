// The fused kernel's driver: a Problem becomes plain Arguments for the target, and its rows become tasks that
// any thread can do in any order. Every result belongs to one task, so that it does not depend on the
// threads.
//
//   forward        a task is some rows of one head (or, where there are few rows, of all heads of a key head)
//   weights pass   what needs the final sums (weights, received, scores): a task is some KV blocks of one
//   head recompute      rows whose numbers f32 cannot hold are computed in f64 (recompute.cpp)
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/call/kernels.hpp"
#include "attention/cpu/driver/lower.hpp"
#include "attention/cpu/driver/memory.hpp"
#include "attention/cpu/targets/dispatch.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

using cpu::Arguments;
using cpu::Kernels;
using cpu::RowStatus;
using cpu::Task;
using cpu::Tiling;
using cpu::WeightsTask;

constexpr std::int64_t kLargestDim = 1024;
constexpr std::int64_t kMostTopK = 1024;
constexpr std::int64_t kMostMapColumns = 32768;  // of a row group fill kStatisticsBytes (workspace.hpp)
// Work below this many multiply-adds is not worth a second thread.
constexpr double kSmallWork = 2e6;

// The working memory of a thread, and the run that last prepared it.
struct ThreadMemory {
  Workspace workspace;
  std::uint64_t owner = 0;
};

ThreadMemory& thread_memory() {
  thread_local ThreadMemory mine;
  return mine;
}

// What a call is cut into. The memory is kept for the next call on this thread.
struct Pieces {
  std::vector<Task> tasks;
  std::vector<std::size_t> jobs;  // first task of each job
  std::vector<RowStatus> status;  // [B, H, Lq]
};

Pieces& kept_pieces() {
  thread_local Pieces kept;
  return kept;
}

// Numbers the passes of all calls, so that a thread knows whether its memory holds keys of another.
std::uint64_t next_run() {
  static std::atomic<std::uint64_t> runs{0};
  return ++runs;
}

class Driver {
 public:
  explicit Driver(const Problem& problem)
      : p_(problem), kernels_(cpu::kernels()), call_(lower(problem)), tiling_(kernels_.plan(call_)) {
    std::swap(pieces_, kept_pieces());
    tasks_.clear();
    jobs_.clear();
  }
  ~Driver() { std::swap(pieces_, kept_pieces()); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  KernelRun run() {
    if (p_.batch * p_.heads == 0) return {};
    status_.assign(rows(), RowStatus::done);
    call_.row_status = status_.data();
    const bool needs_weights_pass = p_.weights || p_.received || p_.received_last;
    fill(p_.received, p_.key_length, 1, 0.0f);
    fill(p_.received_last, p_.key_length, 1, 0.0f);
    fill(p_.map, p_.map_size.rows, p_.map_size.columns, 0.0f);
    if (needs_weights_pass) keep_rows();
    forward();
    if (needs_weights_pass) {
      fill_outside(p_.weights, 0.0f);
      pass(p_.segments, pass_arguments(), kernels_.weights_pass);
    }
    std::vector<RowStatus> score_status;
    if (p_.scores) {
      score_status.assign(rows(), RowStatus::done);
      scores(score_status.data());
    }
    const KernelRun again = recompute_rows(p_, status_, score_status);
    return {std::max(threads_used_, again.threads), again.recomputed_rows};
  }

 private:
  std::size_t rows() const { return static_cast<std::size_t>(p_.batch * p_.heads * p_.query_length); }

  // Room for what the weights pass needs of every row.
  void keep_rows() {
    const std::int64_t rows = p_.batch * p_.heads * p_.query_length;
    row_memory_.resize(static_cast<std::size_t>(2 * rows));
    call_.row_shift = output_of_rows(p_, row_memory_.data());
    call_.row_inverse = output_of_rows(p_, row_memory_.data() + rows);
  }

  // Rows of a task a head, and heads that it takes together: all of a key head's where rows are few.
  std::int64_t rows_per_head(const Segment& s) const {
    return std::max<std::int64_t>(1, std::min(tiling_.rows, s.query_end - s.query_begin));
  }
  std::int64_t heads_per_task(const Segment& s) const {
    if (p_.map) return 1;
    return std::clamp<std::int64_t>(tiling_.rows / rows_per_head(s), 1, call_.group);
  }

  void count_sequence(const Segment& s, std::int64_t blocks) const {
    using cpu::Path;
    cpu::count_path(call_.paths, blocks > 1 ? Path::sequence_in_several_tasks : Path::sequence_in_one_task);
    cpu::count_path(call_.paths, s.key_end - s.key_begin > tiling_.step ? Path::sequence_in_several_steps
                                                                        : Path::sequence_in_one_step);
  }

  // The last rows first: under a causal mask they are the longest.
  void add_tasks(const Segment& s, std::int64_t head, std::int64_t head_count, std::int64_t row_begin,
                 std::int64_t row_end) {
    const std::int64_t rows = rows_per_head(s);
    const std::int64_t blocks = (row_end - row_begin + rows - 1) / rows;
    if (static_cast<std::int64_t>(p_.segments.size()) > p_.batch) count_sequence(s, blocks);
    for (std::int64_t block = blocks - 1; block >= 0; --block) {
      const std::int64_t begin = row_begin + block * rows;
      tasks_.push_back({s.batch, head, head_count, begin, std::min(row_end, begin + rows), s.key_begin,
                        s.key_end, s.offset - s.query_begin, s.query_end});
    }
  }

  // Jobs are runs of tasks that one thread does in order. Rows that share a row of the map share a job.
  void plan_jobs() {
    std::int64_t done = 0;
    for (std::size_t first = 0; first < p_.segments.size(); first = static_cast<std::size_t>(done)) {
      std::size_t end = first + 1;
      if (p_.map)
        while (end < p_.segments.size() && p_.segments[end].batch == p_.segments[first].batch) ++end;
      for (std::int64_t kv = 0; kv < p_.kv_heads; ++kv)
        for (std::int64_t h = kv * call_.group; h < (kv + 1) * call_.group;) {
          const std::int64_t heads = std::min(heads_per_task(p_.segments[first]), (kv + 1) * call_.group - h);
          plan_head(first, end, h, heads);
          h += heads;
        }
      done = static_cast<std::int64_t>(end);
    }
  }

  void plan_head(std::size_t first, std::size_t end, std::int64_t head, std::int64_t heads) {
    const Segment& s = p_.segments[first];
    if (!p_.map) {
      const std::size_t begin = tasks_.size();
      add_tasks(s, head, heads, s.query_begin, s.query_end);
      for (std::size_t t = begin; t < tasks_.size(); ++t) jobs_.push_back(t);
      return;
    }
    if (end - first > 1) {  // packed sequences may share rows of the map
      jobs_.push_back(tasks_.size());
      for (std::size_t i = first; i < end; ++i)
        add_tasks(p_.segments[i], head, heads, p_.segments[i].query_begin, p_.segments[i].query_end);
      return;
    }
    const auto row_of_bin = [&](std::int64_t bin) {
      return std::min(s.query_end, (bin * p_.query_length + p_.map_size.rows - 1) / p_.map_size.rows);
    };
    for (std::int64_t bin = 0; bin < p_.map_size.rows;) {
      std::int64_t next = bin + 1;
      while (next < p_.map_size.rows && row_of_bin(next + 1) - row_of_bin(bin) <= tiling_.rows) ++next;
      jobs_.push_back(tasks_.size());
      add_tasks(s, head, heads, row_of_bin(bin), row_of_bin(next));
      bin = next;
    }
  }

  // Each thread prepares its memory before its first piece of a state.
  template <class Piece>
  void in_parallel(std::string_view pass, std::int64_t count, const Arguments& call, const Tiling& tiling,
                   Piece piece) {
    const std::uint64_t run = next_run();
    std::atomic<std::int64_t> done{0};
    const int threads = threads_for(p_, count, kSmallWork);
    threads_used_ = std::max(threads_used_, threads);
    const auto body = [&](std::int64_t i, int) {
      ThreadMemory& mine = thread_memory();
      const bool moved = mine.workspace.reserve(tiling.bytes);
      void* memory = mine.workspace.data();
      if (moved || mine.owner != run) {
        kernels_.reset(call, tiling, memory);
        mine.owner = run;
      }
      piece(i, memory);
      if (p_.progress) p_.progress(pass, static_cast<double>(++done) / static_cast<double>(count));
    };
    parallel_for(count, threads, std::cref(body));  // a reference fits a std::function without an allocation
  }

  void forward() {
    plan_jobs();
    jobs_.push_back(tasks_.size());
    in_parallel("forward", static_cast<std::int64_t>(jobs_.size()) - 1, call_, tiling_,
                [&](std::int64_t job, void* memory) {
                  const auto at = static_cast<std::size_t>(job);
                  for (std::size_t t = jobs_[at]; t < jobs_[at + 1]; ++t)
                    kernels_.forward(call_, tiling_, tasks_[t], memory);
                });
  }

  // The weights pass has queries and keys only: what else the call asks for is done.
  Arguments pass_arguments() const {
    Arguments call = call_;
    for (cpu::Output* done : {&call.output, &call.lse, &call.max_score, &call.entropy, &call.distance,
                              &call.top_k_index, &call.top_k_weight, &call.map})
      done->data = nullptr;
    call.top_k = call.map_rows = call.map_columns = 0;
    return call;
  }

  // Tasks of at most `keys` keys.
  std::vector<WeightsTask> pass_tasks(const std::vector<Segment>& segments, std::int64_t keys) const {
    std::vector<WeightsTask> tasks;
    for (const Segment& s : segments)
      for (std::int64_t h = 0; h < p_.heads; ++h)
        for (std::int64_t key = 0; key < s.key_end - s.key_begin; key += keys)
          tasks.push_back({{s.batch, h, 1, s.query_begin, s.query_end, s.key_begin, s.key_end,
                            s.offset - s.query_begin, s.query_end},
                           key,
                           std::min(key + keys, s.key_end - s.key_begin)});
    return tasks;
  }

  void pass(const std::vector<Segment>& segments, const Arguments& call,
            void (*kernel)(const Arguments&, const Tiling&, const WeightsTask&, void*)) {
    constexpr std::size_t kTasksPerThread = 4;  // at least, so that threads end at about the same time
    const Tiling tiling = kernels_.plan_weights_pass(call);
    std::int64_t keys = tiling.cached_keys;
    std::vector<WeightsTask> tasks = pass_tasks(segments, keys);
    while (p_.threads > 1 && keys > tiling.step &&
           tasks.size() < kTasksPerThread * static_cast<std::size_t>(p_.threads)) {
      keys -= tiling.step;
      tasks = pass_tasks(segments, keys);
    }
    in_parallel("weights pass", static_cast<std::int64_t>(tasks.size()), call, tiling,
                [&](std::int64_t i, void* memory) {
                  kernel(call, tiling, tasks[static_cast<std::size_t>(i)], memory);
                });
  }

  // Before the bias scores know of no masks: every key of the tensor has one for every row.
  void scores(RowStatus* status) {
    Arguments call = pass_arguments();
    call.row_status = status;
    if (p_.scores_stage == ScoresStage::bias) {
      fill_outside(p_.scores, -INFINITY);
      pass(p_.segments, call, kernels_.scores_pass);
      return;
    }
    call.mask.data = call.bias.data = call.alibi_slopes.data = nullptr;
    call.causal = false;
    call.window_left = call.window_right = -1;
    if (p_.scores_stage == ScoresStage::raw) call.softcap = 0;
    std::vector<Segment> all;
    for (std::int64_t b = 0; b < p_.batch; ++b) all.push_back({b, 0, p_.query_length, 0, p_.key_length, 0});
    pass(all, call, kernels_.scores_pass);
  }

  static float* row_of(const Target& t, std::int64_t b, std::int64_t h, std::int64_t i) {
    return static_cast<float*>(t.data) + b * t.stride[0] + h * t.stride[1] + i * t.stride[2];
  }

  void fill(const Target& t, std::int64_t rows, std::int64_t columns, float value) const {
    if (!t) return;
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t h = 0; h < p_.heads; ++h)
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t c = 0; c < columns; ++c) row_of(t, b, h, i)[c * t.stride[3]] = value;
  }

  // What a row's segment does not reach of a [B, H, Lq, Lk] result.
  void fill_outside(const Target& t, float value) const {
    if (!t) return;
    for (const Segment& s : p_.segments)
      for (std::int64_t h = 0; h < p_.heads; ++h)
        for (std::int64_t i = s.query_begin; i < s.query_end; ++i) {
          float* row = row_of(t, s.batch, h, i);
          for (std::int64_t j = 0; j < s.key_begin; ++j) row[j * t.stride[3]] = value;
          for (std::int64_t j = s.key_end; j < p_.key_length; ++j) row[j * t.stride[3]] = value;
        }
  }

  const Problem& p_;
  const Kernels& kernels_;
  Arguments call_;
  Tiling tiling_;
  Pieces pieces_;
  std::vector<Task>& tasks_ = pieces_.tasks;
  std::vector<std::size_t>& jobs_ = pieces_.jobs;
  std::vector<RowStatus>& status_ = pieces_.status;
  std::vector<float> row_memory_;
  int threads_used_ = 1;
};

}  // namespace

bool fused_supports(const Problem& p) {
  if (p.dtype == DType::f64) return false;
  if (p.head_dim < 1 || p.value_dim < 1 || p.head_dim > kLargestDim || p.value_dim > kLargestDim)
    return false;
  if (p.top_k > kMostTopK || (p.top_k > 0 && p.key_length > INT32_MAX)) return false;
  if (p.map && p.map_size.columns > kMostMapColumns) return false;
  // Beyond it the scale times log2(e) is no normal float.
  return std::abs(p.scale) < 1e30 && (p.scale == 0 || std::abs(p.scale) > 1e-30) && p.softcap < 1e30 &&
         (p.softcap == 0 || p.softcap > 1e-30);
}

const char* fused_isa() { return cpu::kernels().name; }

KernelRun run_fused(const Problem& problem) { return Driver(problem).run(); }

}  // namespace heed::detail
