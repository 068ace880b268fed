// Times attention_into with Google Benchmark: the shapes of docs/performance.md, and a call of the notebooks'
// size, where call overhead dominates.
//
//   kernels --benchmark_filter=notebook
//   kernels --benchmark_filter='L2048.*threads:1' --benchmark_repetitions=5
//
// share: relative to the ceiling measured right before and after. `heed bench` measures it between the calls.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "ceiling/ceiling.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/parallel.hpp"
#include "heed/random.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::Generator;
using heed::Need;
using heed::Tensor;
using heed::ceiling::Limit;
using heed::ceiling::Meter;

struct Call {
  std::string name;
  std::int64_t heads, kv_heads, query_length, key_length, head_dim;
  DType dtype = DType::f32;
  AttentionOptions options{};
  bool backward = false;  // also the gradients of query, key and value
};

std::vector<Call> calls() {
  const AttentionOptions causal{.causal = true};
  const AttentionOptions rows{.need = Need::lse | Need::entropy, .top_k = 8};
  const AttentionOptions map{.map = {64, 64}};
  return {
      {"notebook", 1, 1, 9, 9, 24},
      {"notebook", 1, 1, 9, 9, 24, DType::f32, {.need = Need::weights}},
      {"full", 12, 12, 128, 128, 64},
      {"full", 12, 12, 512, 512, 64},
      {"full", 16, 16, 2048, 2048, 64},
      {"causal", 16, 16, 2048, 2048, 64, DType::f32, causal},
      {"lse,entropy,top8", 16, 16, 2048, 2048, 64, DType::f32, rows},
      {"map", 16, 16, 2048, 2048, 64, DType::f32, map},
      {"received", 16, 16, 2048, 2048, 64, DType::f32, {.need = Need::received}},
      {"weights", 16, 16, 2048, 2048, 64, DType::f32, {.need = Need::weights}},
      {"full", 16, 16, 2048, 2048, 64, DType::bf16},
      {"full", 8, 8, 4096, 4096, 128},
      {"causal", 8, 8, 4096, 4096, 128, DType::f32, causal},
      {"full", 8, 8, 4096, 4096, 128, DType::bf16},
      {"forward+backward", 16, 16, 2048, 2048, 64, DType::f32, {}, true},
      {"causal,forward+backward", 16, 16, 2048, 2048, 64, DType::f32, causal, true},
      {"forward+backward", 16, 16, 2048, 2048, 64, DType::bf16, {}, true},
      {"forward+backward", 8, 8, 4096, 4096, 128, DType::f32, {}, true},
      {"causal,forward+backward", 8, 8, 4096, 4096, 128, DType::f32, causal, true},
      {"decoding", 32, 8, 1, 8192, 128},
      {"decoding", 32, 8, 1, 8192, 128, DType::bf16},
  };
}

Tensor random_tensor(Generator& generator, const heed::Dims& shape, DType dtype) {
  return Tensor::copy_of(heed::randn(generator, shape), dtype);
}

// Two matrix products forward, five more for the gradients.
double flops_of(const Call& call) {
  return (call.backward ? 3.5 : 1) * 4.0 *
         static_cast<double>(call.heads * call.query_length * call.key_length * call.head_dim) *
         (call.options.causal ? 0.5 : 1);
}

// The time of a call at the ceiling, once that has been measured.
class Ceiling {
 public:
  Ceiling(const Call& call, std::string_view isa, int threads)
      : isa_(isa), threads_(threads), arithmetic_(heed::ceiling::arithmetic_of(call.dtype, isa)) {
    flops_ = flops_of(call);
    if (call.query_length == 1)
      bytes_ = 2.0 * static_cast<double>(call.kv_heads * call.key_length * call.head_dim) *
               static_cast<double>(heed::size_of(call.dtype));
  }
  void measure(Meter& meter) {
    for (int i = 0; i < 3; ++i) {
      peak_ = std::max(peak_, meter.burst(arithmetic_, isa_, threads_));
      if (bytes_ > 0) bandwidth_ = std::max(bandwidth_, meter.burst(Limit::memory_read, isa_, threads_));
    }
  }
  [[nodiscard]] double seconds() const {
    return std::max(flops_ / peak_, bytes_ > 0 ? bytes_ / bandwidth_ : 0);
  }

 private:
  std::string isa_;
  int threads_;
  Limit arithmetic_;
  double flops_ = 0;
  double bytes_ = 0;
  double peak_ = 0;
  double bandwidth_ = 0;
};

heed::AttentionOutputs views_of(heed::AttentionResult& result) {
  heed::AttentionOutputs views;
  views.output = result.output;
  if (result.weights.count() > 0) views.weights = result.weights;
  if (result.lse.count() > 0) views.lse = result.lse;
  if (result.entropy.count() > 0) views.entropy = result.entropy;
  if (result.received.count() > 0) views.received = result.received;
  if (result.map.count() > 0) views.map = result.map;
  if (result.top_k_index.count() > 0) {
    views.top_k_index = result.top_k_index;
    views.top_k_weight = result.top_k_weight;
  }
  return views;
}

// The attention part of a training step: the forward pass with lse, and the gradients.
class Training {
 public:
  Training(const Tensor& query, const heed::TensorView& key, const heed::TensorView& value)
      : output_(query.shape(), query.dtype()),
        lse_({1, query.size(1), query.size(2)}),
        query_(query.shape(), query.dtype()),
        key_(key.shape(), key.dtype()),
        value_(value.shape(), value.dtype()) {}

  void step(const Tensor& query, const heed::TensorView& key, const heed::TensorView& value,
            const AttentionOptions& options) {
    heed::AttentionOutputs outputs;
    outputs.output = output_;
    outputs.lse = lse_;
    attention_into(query, key, value, options, outputs);
    attention_backward_into({query, key, value, output_, lse_, query}, options,
                            {query_, key_, value_, {}, {}});
  }

 private:
  Tensor output_, lse_, query_, key_, value_;
};

// Decoding reads another copy of the keys and values in each call; a single copy would stay in a processor
// cache.
void run(benchmark::State& state, const Call& call, int threads) {
  static Meter meter;
  Generator generator(0);
  const std::int64_t copies = call.query_length == 1 ? 8 : 1;
  const Tensor query =
      random_tensor(generator, {1, call.heads, call.query_length, call.head_dim}, call.dtype);
  const heed::Dims shape{copies, 1, call.kv_heads, call.key_length, call.head_dim};
  const Tensor keys = random_tensor(generator, shape, call.dtype);
  const Tensor values = random_tensor(generator, shape, call.dtype);
  AttentionOptions options = call.options;
  options.threads = threads;
  heed::AttentionResult result =
      attention(query, keys.view().select(0, 0), values.view().select(0, 0), options);
  const heed::AttentionOutputs outputs = views_of(result);
  Ceiling ceiling(call, result.isa, threads);
  ceiling.measure(meter);

  std::vector<std::pair<heed::TensorView, heed::TensorView>> pairs;
  for (std::int64_t i = 0; i < copies; ++i)
    pairs.emplace_back(keys.view().select(0, i), values.view().select(0, i));
  Training training(query, pairs[0].first, pairs[0].second);
  std::size_t next = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) {
    next = next + 1 == pairs.size() ? 0 : next + 1;
    if (call.backward)
      training.step(query, pairs[next].first, pairs[next].second, options);
    else
      attention_into(query, pairs[next].first, pairs[next].second, options, outputs);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
                         static_cast<double>(state.iterations());
  ceiling.measure(meter);
  state.counters["GFLOP/s"] = flops_of(call) / seconds / 1e9;
  state.counters["share"] = ceiling.seconds() / seconds;
}

std::string name_of(const Call& call, int threads) {
  const bool decoding = call.query_length != call.key_length;
  return call.name +
         (heed::has(call.options.need, Need::weights) && call.name != "weights" ? ",weights" : "") + "/" +
         std::string(heed::name_of(call.dtype)) + "/H" + std::to_string(call.heads) +
         (decoding ? "/Hkv" + std::to_string(call.kv_heads) : "") + "/L" + std::to_string(call.key_length) +
         "/D" + std::to_string(call.head_dim) + "/threads:" + std::to_string(threads);
}

}  // namespace

int main(int argc, char** argv) {
  const int all = heed::default_threads();
  for (const Call& call : calls()) {
    for (const int threads : {1, all}) {
      if (threads > 1 && call.name == "notebook") continue;
      benchmark::RegisterBenchmark(name_of(call, threads).c_str(), [call, threads](benchmark::State& state) {
        run(state, call, threads);
      })->UseRealTime();
      if (all == 1) break;
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
