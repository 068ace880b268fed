#include "bench/measure.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "bench/bounds.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/random.hpp"
#include "machine.hpp"

namespace heed::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBudget = 0.5;  // seconds spent on calls
constexpr double kSlice = 0.02;  // seconds of calls between two bursts
constexpr std::size_t kLeastCalls = 3;
constexpr int kWarmBursts = 3;
constexpr std::int64_t kMaxCopies = 4096;
constexpr std::int64_t kMaxCaches = 64;  // fewer than kMaxCopies, because caches take longer to fill

constexpr std::int64_t kChunk = 512;  // rows appended to a sequence at once
constexpr std::int64_t kSinks = 4;    // of a ring buffer (Xiao et al. 2023)

Tensor random_tensor(Generator& generator, const Dims& shape, DType dtype) {
  Tensor numbers = randn(generator, shape);
  return dtype == DType::f32 ? std::move(numbers) : Tensor::copy_of(numbers, dtype);
}

KvCacheOptions cache_options(const BenchCase& what, const std::vector<std::int64_t>& lengths) {
  const BenchShape& s = what.shape;
  KvCacheOptions options;
  options.sequences = s.batch;
  options.kv_heads = s.kv_heads;
  options.head_dim = s.head_dim;
  options.format = what.cache->format;
  options.layout = what.cache->layout;
  options.values_in_keys = what.cache->values_in_keys;
  if (options.layout == CacheLayout::ring) {
    options.sinks = std::min(kSinks, s.key_length - 1);
    options.window = s.key_length - options.sinks;
    return options;
  }
  options.capacity = s.key_length;
  if (options.layout == CacheLayout::paged)
    options.capacity = std::accumulate(lengths.begin(), lengths.end(), s.batch * options.page_size);
  return options;
}

// A cache of random rows, with key_lengths(what) rows per sequence. Rows are appended in chunks, so pages of
// different sequences interleave. A full ring buffer has already evicted rows.
KvCache random_cache(const BenchCase& what, Generator& generator) {
  const BenchShape& s = what.shape;
  std::vector<std::int64_t> left = key_lengths(what);
  KvCache cache(cache_options(what, left));
  if (what.cache->layout == CacheLayout::ring)
    for (std::int64_t& rows : left)
      if (rows == s.key_length) rows += s.key_length / 2;
  const Tensor chunk = randn(generator, {1, s.kv_heads, kChunk * s.batch, s.head_dim});
  while (std::ranges::any_of(left, [](std::int64_t rows) { return rows > 0; })) {
    std::vector<std::int64_t> offsets{0};
    for (std::int64_t& rows : left) {
      const std::int64_t here = std::min(kChunk, rows);
      offsets.push_back(offsets.back() + here);
      rows -= here;
    }
    const TensorView rows = chunk.view().narrow(2, 0, offsets.back());
    const TensorView ends(offsets.data(), {s.batch + 1});
    if (cache.values_in_keys())
      cache.append_keys(rows, ends);
    else
      cache.append(rows, rows, ends);
  }
  return cache;
}

AttentionOptions options_of(const BenchCase& what) {
  AttentionOptions options;
  options.causal = what.causal;
  // Chooses the alignment that allows at least the counted half of the scores. A cache defines its own.
  if (!what.cache)
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

// Makes several copies of the keys and values if one copy would stay in the processor's cache. Each call then
// reads another copy, as each layer of a model reads other data.
void Bench::prepare(const BenchCase& what) {
  if (query_.count() > 0 && prepared_.shape == what.shape && prepared_.dtype == what.dtype &&
      prepared_.cache == what.cache)
    return;
  query_ = keys_ = values_ = Tensor();
  caches_.clear();
  std::int64_t copies = 1;
  if (may_wait_for_memory(what))
    copies = std::clamp(
        static_cast<std::int64_t>(static_cast<double>(ceiling::uncached_bytes()) / key_value_bytes(what)) + 1,
        std::int64_t{1}, what.cache ? kMaxCaches : kMaxCopies);
  Generator generator(0);
  const BenchShape& s = what.shape;
  query_ = random_tensor(generator, {s.batch, s.heads, s.query_length, s.head_dim}, what.dtype);
  if (what.cache)
    for (std::int64_t i = 0; i < copies; ++i) caches_.push_back(random_cache(what, generator));
  else
    fill_tensors(what, copies, generator);
  prepared_ = what;
}

void Bench::fill_tensors(const BenchCase& what, std::int64_t copies, Generator& generator) {
  const BenchShape& s = what.shape;
  for (Tensor* tensor : {&keys_, &values_}) {
    const Tensor one = random_tensor(generator, {s.batch, s.kv_heads, s.key_length, s.head_dim}, what.dtype);
    *tensor = Tensor::uninitialized({copies, s.batch, s.kv_heads, s.key_length, s.head_dim}, what.dtype);
    for (std::int64_t i = 0; i < copies; ++i) copy(one, tensor->mutable_view().select(0, i));
  }
}

std::int64_t Bench::copies() const { return caches_.empty() ? keys_.size(0) : std::ssize(caches_); }

AttentionResult Bench::first_call(const AttentionOptions& options) const {
  return caches_.empty() ? attention(query_, keys_.view().select(0, 0), values_.view().select(0, 0), options)
                         : attention(query_, caches_[0], options);
}

double Bench::timed_call(const AttentionOptions& options, std::int64_t copy,
                         const AttentionOutputs& outputs) const {
  const auto begin = Clock::now();
  if (caches_.empty())
    attention_into(query_, keys_.view().select(0, copy), values_.view().select(0, copy), options, outputs);
  else
    attention_into(query_, caches_[static_cast<std::size_t>(copy)], options, outputs);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Measured Bench::measure(const BenchCase& what, std::optional<std::int64_t> repeat) {
  prepare(what);
  const AttentionOptions options = options_of(what);
  AttentionResult result = first_call(options);
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
    seconds.push_back(timed_call(options, static_cast<std::int64_t>(seconds.size() + 1) % copies(), outputs));
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
