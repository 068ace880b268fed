#include "report/price.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "attention/plan.hpp"
#include "report/part.hpp"

namespace heed::detail {
namespace {

// A call with fewer multiply-adds than this is timed whole: some tens of milliseconds.
constexpr double kWorthSampling = 1e9;
constexpr double kWorthSamplingReference = 1e7;
constexpr int kMostTurns = 20;
constexpr double kWorthRepeating = 0.2;  // seconds, of all turns together

double seconds_of(const Problem& p, const Plan& plan) {
  const auto begin = std::chrono::steady_clock::now();
  plan.kernel(p);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What each problem takes, in their order: the median of its runs. Short ones run several times, by turns, so
// that a moment in which the machine was busy with something else meets all of them. (The quickest would be
// the one that had all cores to itself, which on such a machine may be any of them.)
template <std::size_t count>
std::array<double, count> seconds_by_turns(const std::array<Problem, count>& problems, const Plan& plan) {
  std::array<std::vector<double>, count> runs;
  double spent = 0;
  for (int turn = 0; turn < kMostTurns && spent < kWorthRepeating; ++turn)
    for (std::size_t i = 0; i < count; ++i) {
      runs[i].push_back(seconds_of(problems[i], plan));
      spent += runs[i].back();
    }
  std::array<double, count> medians{};
  for (std::size_t i = 0; i < count; ++i) {
    const auto middle = runs[i].begin() + static_cast<std::ptrdiff_t>((runs[i].size() - 1) / 2);
    std::nth_element(runs[i].begin(), middle, runs[i].end());
    medians[i] = *middle;
  }
  return medians;
}

}  // namespace

ForwardSeconds time_forward(const Problem& problem, Kernel kernel) {
  Problem p = problem;
  p.progress = nullptr;
  p.received = p.received_last = p.weights = p.scores = {};
  const Plan plan = make_plan(p, kernel);
  const double cells = cells_of(p);
  const double work = cells * static_cast<double>(p.heads * (p.head_dim + p.value_dim));
  const bool estimated = work > (plan.name == Kernel::fused ? kWorthSampling : kWorthSamplingReference);
  if (estimated) p = sample_of(p, p.threads, 384);
  const double factor = estimated ? cells / std::max(1.0, cells_of(p)) : 1;

  const Problem with_map = p;
  p.map = {};
  const Problem with_top_k = p;
  p.top_k_index = p.top_k_weight = {};
  const Problem with_rows = p;
  p.lse = p.max_score = p.entropy = p.distance = {};
  const auto [map, top_k, rows, plain] =
      seconds_by_turns(std::array{with_map, with_top_k, with_rows, p}, plan);
  return {factor * plain, factor * rows, factor * top_k, factor * map, estimated};
}

ForwardSeconds ForwardSeconds::shares_of(double pass) const {
  const double factor = map > 0 ? pass / map : 1;
  return {factor * plain, factor * rows, factor * top_k, pass, estimated};
}

ForwardSeconds ForwardSeconds::rising_to(double pass) const {
  ForwardSeconds rising = *this;
  rising.map = pass;
  rising.top_k = std::min(top_k, rising.map);
  rising.rows = std::min(rows, rising.top_k);
  rising.plain = std::min(plain, rising.rows);
  return rising;
}

}  // namespace heed::detail
