#include "inspect/cost.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "attention/execute/run.hpp"
#include "inspect/part.hpp"

namespace heed::detail {
namespace {

// A call with more than `worth` multiply-adds is timed by a sample. The sample has `worth` / kSampleShare
// multiply-adds, but at least a block of rows per thread. The fused kernel processes 768 rows at once.
struct Sampling {
  double worth;
  std::int64_t least_rows, most_rows;  ///< rows of a block
};
constexpr Sampling kFused = {1e9, 128, 768};  // some tens of milliseconds
constexpr Sampling kReference = {1e7, 1, 16};
constexpr double kSampleShare = 5;
constexpr int kLeastTurns = 4;
constexpr int kMaxTurns = 24;
constexpr double kWorthRepeating = 0.2;  // seconds, all turns together

double seconds_of(const Problem& p, Kernel kernel) {
  const auto begin = std::chrono::steady_clock::now();
  run(p, kernel);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The sample has at least a block of rows per thread. A block has at most an eighth of a thread's rows,
// within the limits of Sampling.
Problem sample_for(const Problem& p, Kernel kernel, double work) {
  const Sampling& sampling = kernel == Kernel::fused ? kFused : kReference;
  const std::int64_t threads = kernel == Kernel::fused ? p.threads : 1;
  const std::int64_t all_rows = p.batch * p.kv_heads * p.query_length;
  const std::int64_t rows = std::clamp(all_rows / (8 * threads), sampling.least_rows, sampling.most_rows);
  const double share = sampling.worth / kSampleShare / work;
  const auto blocks = static_cast<std::int64_t>(share * static_cast<double>(all_rows / rows));
  return sample_of(p, std::max(threads, blocks), rows);
}

std::vector<Turn> time_turns(const std::array<Problem, 4>& problems, Kernel kernel) {
  std::vector<Turn> turns;
  double spent = 0;
  for (int turn = 0; turn < kMaxTurns && (turn < kLeastTurns || spent < kWorthRepeating); ++turn) {
    turns.emplace_back();
    for (std::size_t i = 0; i < problems.size(); ++i)
      spent += turns.back()[i] = seconds_of(problems[i], kernel);
  }
  return turns;
}

}  // namespace

ForwardSeconds time_forward(const Problem& problem, Kernel kernel) {
  Problem p = problem;
  p.progress = nullptr;
  p.received = p.received_last = p.weights = p.scores = {};
  kernel = ExecutionPlan(p, kernel).kernel;
  const double work = cells_of(p) * static_cast<double>(p.heads * (p.head_dim + p.value_dim));
  const bool estimated = work > (kernel == Kernel::fused ? kFused : kReference).worth;
  if (estimated) p = sample_for(p, kernel, work);

  const Problem with_map = p;
  p.map = {};
  const Problem with_top_k = p;
  p.top_k_index = p.top_k_weight = {};
  const Problem with_rows = p;
  p.lse = p.max_score = p.entropy = p.distance = {};
  ForwardSeconds seconds = compare_turns(time_turns({p, with_rows, with_top_k, with_map}, kernel));
  if (!problem.top_k_index) seconds.top_k = 0;
  if (!problem.map) seconds.map = 0;
  seconds.estimated = estimated;
  return seconds;
}

ForwardSeconds compare_turns(const std::vector<Turn>& turns) {
  std::array<double, 4> added{};
  for (std::size_t i = 0; i < added.size(); ++i) {
    std::vector<double> times;
    for (const Turn& turn : turns) times.push_back(i == 0 ? turn[0] : turn[i] - turn[i - 1]);
    const auto more = std::ranges::count_if(times, [](double time) { return time > 0; });
    const bool counts = 8 * static_cast<std::size_t>(more) >= 7 * times.size();
    added[i] = counts ? median(std::move(times)) : std::numeric_limits<double>::quiet_NaN();
  }
  return {added[0], added[1], added[2], added[3]};
}

ForwardSeconds ForwardSeconds::shares_of(double pass) const {
  double all = plain;
  for (const double added : {rows, top_k, map})
    if (!std::isnan(added)) all += added;
  const double factor = all > 0 ? pass / all : 1;
  return {factor * plain, factor * rows, factor * top_k, factor * map, estimated};
}

}  // namespace heed::detail
