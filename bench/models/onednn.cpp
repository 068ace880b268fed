// Products of f32 rows with bf16 weights: heed::Model beside oneDNN, on one thread, in turns. oneDNN's
// weights are converted once to its preferred layout. Prints a Markdown table of median CPU times. The errors
// compare the last row with sums in f64: largest error / largest number.
//
//   OMP_NUM_THREADS=1 onednn [SECONDS]       seconds per shape
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dnnl.hpp>
#include <functional>
#include <vector>

#include "heed/random.hpp"
#include "heed/tensor.hpp"
#include "model/layers/linear.hpp"

namespace {

using heed::DType;
using heed::Tensor;
using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;
using Call = std::function<void()>;

double cpu_seconds() {
  std::timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// y = x W^T, with x rounded to `of_x` in each call. Empty if oneDNN has no such product.
Call onednn(const Tensor& x, const Tensor& weight, Tensor& y, Type of_x, Type of_weight) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::dims rows = {x.size(0), x.size(1)}, inner = {x.size(1), y.size(1)};
  dnnl::memory from({rows, Type::f32, Tag::ab}, engine, const_cast<void*>(x.view().data()));
  dnnl::memory stored({inner, Type::bf16, Tag::ba}, engine, const_cast<void*>(weight.view().data()));
  dnnl::memory to({{x.size(0), y.size(1)}, Type::f32, Tag::ab}, engine, y.mutable_view().data());
  const dnnl::matmul::desc asked({rows, of_x, Tag::ab}, {inner, of_weight, Tag::any}, to.get_desc());
  const dnnl::matmul::primitive_desc plan(asked, engine, true);
  if (!plan) return nullptr;
  dnnl::memory taken = of_x == Type::f32 ? from : dnnl::memory(plan.src_desc(), engine);
  dnnl::memory liked(plan.weights_desc(), engine);
  dnnl::reorder(stored, liked).execute(stream, stored, liked);
  const dnnl::reorder round(from, taken);
  const dnnl::matmul product(plan);
  return [=]() mutable {
    if (of_x != Type::f32) round.execute(stream, from, taken);
    product.execute(stream, {{DNNL_ARG_SRC, taken}, {DNNL_ARG_WEIGHTS, liked}, {DNNL_ARG_DST, to}});
    stream.wait();
  };
}

double error_of(const Tensor& x, const Tensor& weight, const Tensor& y) {
  const std::int64_t row = x.size(0) - 1;
  double apart = 0, largest = 0;
  for (std::int64_t n = 0; n < y.size(1); ++n) {
    double sum = 0;
    for (std::int64_t k = 0; k < x.size(1); ++k)
      sum += static_cast<double>(x.at<float>(row, k)) * static_cast<double>(weight.at<float>(n, k));
    apart = std::max(apart, std::abs(static_cast<double>(y.at<float>(row, n)) - sum));
    largest = std::max(largest, std::abs(sum));
  }
  return apart / largest;
}

double median_of(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void measure(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, double seconds) {
  heed::Generator generator(1);
  const Tensor x = heed::randn(generator, {rows, inputs});
  const Tensor weight = Tensor::copy_of(heed::randn(generator, {outputs, inputs}), DType::bf16);
  const Tensor exact = Tensor::copy_of(weight, DType::f32);
  heed::detail::LinearWeights weights;
  weights.weight = {weight.view().data(), heed::detail::weight_format_of(DType::bf16), outputs, inputs};
  Tensor y = Tensor::uninitialized({rows, outputs}, DType::f32);
  Tensor own;
  const std::array<Call, 4> calls = {
      [&] { own = linear(x, weights, 1); }, onednn(x, weight, y, Type::f32, Type::f32),
      onednn(x, weight, y, Type::f32, Type::bf16), onednn(x, weight, y, Type::bf16, Type::bf16)};
  std::array<std::vector<double>, 4> times;
  std::array<double, 4> errors = {};
  const double begin = cpu_seconds();
  while (times[0].size() < 7 || cpu_seconds() - begin < seconds)
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (!calls[i]) continue;
      if (times[i].empty()) calls[i]();  // warms up
      const double start = cpu_seconds();
      calls[i]();
      times[i].push_back(cpu_seconds() - start);
      if (times[i].size() == 1) errors[i] = error_of(x, exact, i == 0 ? own : y);
    }
  std::printf("| %d x %d | %d |", static_cast<int>(inputs), static_cast<int>(outputs),
              static_cast<int>(rows));
  for (std::size_t i = 0; i < calls.size(); ++i)
    calls[i] ? std::printf(" %.3f | %.0e |", 1e3 * median_of(times[i]), errors[i]) : std::printf(" none | |");
  std::puts("");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  const dnnl_version_t& version = *dnnl_version();
  std::printf("oneDNN %d.%d.%d; ms of CPU time, then the error\n\n", version.major, version.minor,
              version.patch);
  std::puts("| inputs x outputs | rows | heed | | f32 x f32 | | f32 x bf16 | | bf16 x bf16 | |");
  std::puts("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
  constexpr std::array<std::array<std::int64_t, 2>, 5> kShapes = {
      {{384, 1536}, {768, 768}, {768, 3072}, {3072, 768}, {2048, 5632}}};
  for (const auto& [inputs, outputs] : kShapes)
    for (const std::int64_t rows : {1, 16, 128, 512, 2048})
      measure(rows, inputs, outputs, count > 1 ? std::strtod(arguments[1], nullptr) : 1);
  return 0;
}
