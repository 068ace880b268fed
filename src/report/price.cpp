#include "report/price.hpp"

#include <algorithm>
#include <chrono>

#include "attention/plan.hpp"
#include "report/weigher.hpp"

namespace heed::detail {
namespace {

// A call with fewer multiply-adds than this is timed whole: some tens of milliseconds.
constexpr double kWorthSampling = 1e9;
constexpr double kWorthSamplingReference = 1e7;
constexpr std::int64_t kBlockRows = 128;
constexpr std::size_t kShare = 200;  // one block in so many is timed
constexpr std::size_t kLeastBlocks = 4;

double cells_of(const Problem& p) {
  double cells = 0;
  for (const Segment& segment : p.segments)
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) {
      const KeyRange keys = keys_of(p, segment, i - segment.query_begin + segment.offset);
      cells += static_cast<double>(keys.end - keys.begin);
    }
  return cells;
}

// Blocks of rows spread evenly over all rows, as segments of their own: rows keep their positions.
std::vector<Segment> sample_of(const std::vector<Segment>& segments) {
  std::vector<Segment> blocks;
  for (const Segment& whole : segments)
    for (std::int64_t begin = whole.query_begin; begin < whole.query_end; begin += kBlockRows) {
      Segment block = whole;
      block.query_begin = begin;
      block.query_end = std::min(whole.query_end, begin + kBlockRows);
      block.offset = whole.offset + begin - whole.query_begin;
      blocks.push_back(block);
    }
  const std::size_t count = std::min(blocks.size(), std::max(kLeastBlocks, blocks.size() / kShare));
  std::vector<Segment> sample;
  for (std::size_t i = 0; i < count; ++i) sample.push_back(blocks[(2 * i + 1) * blocks.size() / (2 * count)]);
  return sample;
}

double seconds_of(const Problem& p, const Plan& plan) {
  const auto begin = std::chrono::steady_clock::now();
  plan.kernel(p);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Of a short call the quicker of two runs: the first also finds its memory.
double least_seconds_of(const Problem& p, const Plan& plan, bool is_sample) {
  const double seconds = seconds_of(p, plan);
  return is_sample ? seconds : std::min(seconds, seconds_of(p, plan));
}

}  // namespace

ForwardSeconds time_forward(const Problem& problem, Kernel kernel) {
  Problem p = problem;
  p.progress = nullptr;
  p.received = p.received_last = p.weights = p.scores = {};
  const Plan plan = make_plan(p, kernel);
  ForwardSeconds seconds;
  const double cells = cells_of(p);
  const double work = cells * static_cast<double>(p.heads * (p.head_dim + p.value_dim));
  double factor = 1;
  if (work > (plan.name == Kernel::fused ? kWorthSampling : kWorthSamplingReference)) {
    p.segments = sample_of(problem.segments);
    factor = cells / std::max(1.0, cells_of(p));
    seconds.estimated = true;
  }
  const auto timed = [&] { return factor * least_seconds_of(p, plan, seconds.estimated); };
  if (seconds.estimated) seconds.map = timed();
  p.map = {};
  seconds.top_k = timed();
  p.top_k_index = p.top_k_weight = {};
  seconds.rows = timed();
  p.lse = p.max_score = p.entropy = p.distance = {};
  seconds.plain = timed();
  return seconds;
}

}  // namespace heed::detail
