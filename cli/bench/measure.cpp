#include "bench/measure.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "bench/bounds.hpp"
#include "heed/attention.hpp"
#include "heed/random.hpp"

namespace heed::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBudget = 0.5;  // seconds of calls
constexpr double kSlice = 0.02;  // seconds of calls between two bursts
constexpr std::size_t kLeastCalls = 3;
constexpr int kWarmBursts = 3;
constexpr std::int64_t kMostCopies = 4096;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Tensor random_tensor(Generator& generator, const Dims& shape, DType dtype) {
  Tensor numbers = randn(generator, shape);
  return dtype == DType::f32 ? std::move(numbers) : Tensor::copy_of(numbers, dtype);
}

AttentionOptions options_of(const BenchCase& what) {
  AttentionOptions options;
  options.causal = what.causal;
  // Whichever of both allows at least the half of the scores that is counted.
  options.align = what.shape.query_length <= what.shape.key_length ? Align::bottom_right : Align::top_left;
  options.threads = what.threads;
  ask_for(what.needs, options);
  return options;
}

AttentionOutputs views_of(AttentionResult& all) {
  AttentionOutputs views;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (Tensor& tensor = result<Tensor>(all, i); tensor.count() > 0) result(views, i) = tensor;
  return views;
}

}  // namespace

// Several copies of the keys and values where one would stay in a cache: each call then reads another, as
// each layer of a model does.
void Bench::prepare(const BenchShape& s, DType dtype) {
  if (query_.count() > 0 && shape_ == s && query_.dtype() == dtype) return;
  query_ = keys_ = values_ = Tensor();
  const double bytes = key_value_bytes(s, dtype);
  std::int64_t copies = 1;
  if (may_wait_for_memory({s, dtype, false, {}, 1}))
    copies = std::clamp(static_cast<std::int64_t>(static_cast<double>(ceiling::uncached_bytes()) / bytes) + 1,
                        std::int64_t{1}, kMostCopies);
  Generator generator(0);
  query_ = random_tensor(generator, {s.batch, s.heads, s.query_length, s.head_dim}, dtype);
  for (Tensor* tensor : {&keys_, &values_}) {
    const Tensor one = random_tensor(generator, {s.batch, s.kv_heads, s.key_length, s.head_dim}, dtype);
    *tensor = Tensor::uninitialized({copies, s.batch, s.kv_heads, s.key_length, s.head_dim}, dtype);
    for (std::int64_t i = 0; i < copies; ++i) copy(one, tensor->mutable_view().select(0, i));
  }
  shape_ = s;
}

Measured Bench::measure(const BenchCase& what, std::optional<std::int64_t> repeat) {
  prepare(what.shape, what.dtype);
  const AttentionOptions options = options_of(what);
  AttentionResult result = attention(query_, keys_.view().select(0, 0), values_.view().select(0, 0), options);
  const AttentionOutputs outputs = views_of(result);
  const std::string isa(result.isa);
  std::vector<Bound> bounds = bounds_of(what, isa);
  const auto burst = [&](Bound& bound) {
    bound.rate = std::max(bound.rate, meter_.burst(bound.limit, isa, what.threads));
  };
  for (int i = 0; i < kWarmBursts; ++i)
    for (Bound& bound : bounds) burst(bound);

  const std::size_t calls = repeat ? static_cast<std::size_t>(*repeat) : kLeastCalls;
  std::vector<double> seconds;
  double total = 0;
  double since_burst = 0;
  while (seconds.size() < calls || (!repeat && total < kBudget)) {
    const auto copy = static_cast<std::int64_t>(seconds.size() + 1) % keys_.size(0);
    const TensorView key = keys_.view().select(0, copy);
    const TensorView value = values_.view().select(0, copy);
    const auto begin = Clock::now();
    attention_into(query_, key, value, options, outputs);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total += seconds.back();
    since_burst += seconds.back();
    if (since_burst < kSlice) continue;
    since_burst = 0;
    for (Bound& bound : bounds)
      if (2 * bound.seconds() > tightest(bounds).seconds()) burst(bound);
  }
  const Bound& bound = tightest(bounds);
  return {median(std::move(seconds)), flops_of(what), bound.limit, bound.rate, bound.seconds(), isa};
}

}  // namespace heed::cli
