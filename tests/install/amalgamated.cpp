// Compares the amalgamated library with the formulas of attention, in f64.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "heed.hpp"

namespace {

constexpr std::int64_t kHeads = 2, kQueries = 37, kKeys = 45, kDim = 24;
int faults = 0;

void expect_near(const char* what, double found, double expected) {
  if (std::abs(found - expected) < 2e-6 * (1 + std::abs(expected))) return;
  std::printf("%s is %.9g; %.9g was expected\n", what, found, expected);
  ++faults;
}

heed::Tensor waves(std::int64_t rows, double step) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < kHeads * rows * kDim; ++i)
    values.push_back(static_cast<float>(std::sin(step * static_cast<double>(i * i % 1009))));
  return heed::Tensor::from<float>(values, {1, kHeads, rows, kDim});
}

// One causal row, whose last query sees the last key.
void check_row(const heed::Tensor& q, const heed::Tensor& k, const heed::Tensor& v,
               const heed::AttentionResult& got, std::int64_t h, std::int64_t i) {
  const std::int64_t visible = i + kKeys - kQueries + 1;
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t j = 0; j < visible; ++j) {
    double score = 0;
    for (std::int64_t d = 0; d < kDim; ++d)
      score += static_cast<double>(q.at<float>(0, h, i, d)) * static_cast<double>(k.at<float>(0, h, j, d));
    weights.push_back(std::exp(score / std::sqrt(static_cast<double>(kDim))));
    sum += weights.back();
  }
  expect_near("lse", static_cast<double>(got.lse.at<float>(0, h, i)), std::log(sum));
  for (std::int64_t j = 0; j < kKeys; ++j)
    expect_near("a weight", static_cast<double>(got.weights.at<float>(0, h, i, j)),
                j < visible ? weights[static_cast<std::size_t>(j)] / sum : 0);
  for (std::int64_t d = 0; d < kDim; ++d) {
    double output = 0;
    for (std::int64_t j = 0; j < visible; ++j)
      output += weights[static_cast<std::size_t>(j)] / sum * static_cast<double>(v.at<float>(0, h, j, d));
    expect_near("an output", static_cast<double>(got.output.at<float>(0, h, i, d)), output);
  }
}

}  // namespace

int main(int, char** arguments) {
  const heed::Tensor q = waves(kQueries, 0.37), k = waves(kKeys, 0.61), v = waves(kKeys, 0.83);
  const heed::AttentionResult got = heed::attention(
      q, k, v,
      {.causal = true, .align = heed::Align::bottom_right, .need = heed::Need::weights | heed::Need::lse});
  for (std::int64_t h = 0; h < kHeads; ++h)
    for (std::int64_t i = 0; i < kQueries; ++i) check_row(q, k, v, got, h, i);
  if (heed::info().isa != arguments[1]) {
    std::printf("the kernels are %s; %s was expected\n", heed::info().isa.c_str(), arguments[1]);
    ++faults;
  }
  if (faults == 0) std::printf("heed %s, %s\n", heed::info().version.c_str(), heed::info().isa.c_str());
  return faults;
}
