// Gates on the output beside their formula in f64: outputs of any layout, gradients as slopes, what rows
// move.
#include "heed/attention/gate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/inspect/moved.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Tensor;
using heed::TensorView;
using heed::test::Draw;
using heed::test::largest_difference;
using heed::test::message_of;
using heed::test::normal_tensor;
using heed::test::same_bits;

constexpr std::uint64_t kSeed = 20261201;

struct Call {
  std::int64_t batch, heads, kv_heads, queries, keys, width, values;
  Tensor query, key, value, gate;  // f64
};

Call draw_call(std::uint64_t index) {
  Draw draw(kSeed, index);
  Call c{};
  c.batch = draw.between(1, 2);
  c.kv_heads = draw.between(1, 2);
  c.heads = c.kv_heads * draw.between(1, 3);
  c.queries = draw.pick<std::int64_t>({1, 2, 5});
  c.keys = draw.pick<std::int64_t>({1, 3, 11});
  c.width = draw.pick<std::int64_t>({1, 4, 8});
  c.values = draw.pick<std::int64_t>({1, 3, 16});
  const std::uint64_t seed = kSeed + 10 * index;
  c.query = normal_tensor({c.batch, c.heads, c.queries, c.width}, seed);
  c.key = normal_tensor({c.batch, c.kv_heads, c.keys, c.width}, seed + 1);
  c.value = normal_tensor({c.batch, c.kv_heads, c.keys, c.values}, seed + 2);
  const Dims shapes[] = {{c.batch, c.heads, c.queries, c.values},
                         {c.batch, c.heads, c.queries, 1},
                         {c.batch, 1, c.queries, c.values},
                         {c.heads, 1, 1},
                         {c.values},
                         {1}};
  c.gate = normal_tensor(shapes[index % std::size(shapes)], seed + 3);
  if (index % 5 == 0) c.gate.values<double>()[0] = 0;
  return c;
}

double gate_at(const Tensor& gate, const Dims& at) {
  TensorView view = gate;
  while (view.rank() < 4) view = view.unsqueeze(0);
  const auto of = [&](int axis) { return view.size(axis) == 1 ? 0 : at[axis]; };
  return view.at<double>(of(0), of(1), of(2), of(3));
}

// g * softmax(q k^T / sqrt(D)) v, and p, from the definitions.
Tensor formula(const Call& c, std::vector<double>* weights = nullptr) {
  Tensor output({c.batch, c.heads, c.queries, c.values}, DType::f64);
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.queries; ++i) {
        const std::int64_t kv = h / (c.heads / c.kv_heads);
        std::vector<double> p;
        double sum = 0;
        for (std::int64_t j = 0; j < c.keys; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < c.width; ++d)
            score += c.query.at<double>(b, h, i, d) * c.key.at<double>(b, kv, j, d);
          p.push_back(std::exp(score / std::sqrt(static_cast<double>(c.width))));
          sum += p.back();
        }
        for (std::int64_t j = 0; j < c.keys; ++j) {
          const double weight = p[static_cast<std::size_t>(j)] / sum;
          if (weights != nullptr) weights->push_back(weight);
          for (std::int64_t v = 0; v < c.values; ++v)
            output.at<double>(b, h, i, v) +=
                gate_at(c.gate, {b, h, i, v}) * weight * c.value.at<double>(b, kv, j, v);
        }
      }
  return output;
}

double product(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::size_t n = 0; n < a.values<double>().size(); ++n)
    sum += a.values<double>()[n] * b.values<double>()[n];
  return sum;
}

constexpr std::uint64_t kCalls = 120;

TEST(Gate, MultipliesTheRowsOfAnyLayout) {
  for (std::uint64_t index = 0; index < kCalls; ++index) {
    SCOPED_TRACE(index);
    const Call c = draw_call(index);
    const Tensor output = heed::attention(c.query, c.key, c.value).output;
    const Tensor want = formula(c), got = heed::gated(output, c.gate);
    ASSERT_LE(largest_difference(got, want), 1e-13);  // some 20 roundings of numbers around 1
    // Rows and gates that lie as [B, L, H, D] or reversed in memory have the same bits.
    const Tensor turned = Tensor::copy_of(output.view().transpose(1, 2));
    ASSERT_TRUE(same_bits(heed::gated(turned.view().transpose(1, 2), c.gate, 1), got));
    if (c.gate.rank() == 4) {
      const Tensor other = Tensor::copy_of(c.gate.view().transpose(1, 2));
      ASSERT_TRUE(same_bits(heed::gated(output, other.view().transpose(1, 2), 3), got));
    }
  }
}

TEST(Gate, ComputesInF64) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const DType by : {DType::f64, DType::f32, DType::bf16}) {
      const Tensor rows = normal_tensor({2, 3, 4, 5}, 1, dtype), gate = normal_tensor({2, 3, 4, 5}, 2, by);
      Tensor want = Tensor::copy_of(rows, DType::f64);
      const Tensor factors = Tensor::copy_of(gate, DType::f64);
      for (std::size_t n = 0; n < 120; ++n) want.values<double>()[n] *= factors.values<double>()[n];
      EXPECT_TRUE(same_bits(heed::gated(rows, gate), Tensor::copy_of(want, dtype)));
    }
}

TEST(Gate, TakesRowsOfFewerAxesAndNone) {
  const Tensor rows = normal_tensor({4, 5}, 1, DType::f32), gate = normal_tensor({4, 1}, 2, DType::f32);
  const Tensor got = heed::gated(rows, gate);
  ASSERT_EQ(got.shape(), (Dims{4, 5}));
  EXPECT_EQ(got.at<float>(3, 2), rows.at<float>(3, 2) * gate.at<float>(3, 0));
  EXPECT_EQ(heed::gated(Tensor({2, 0, 4, 5}), gate).count(), 0);
  const Tensor none({2, 3, 0, 5});
  EXPECT_TRUE(same_bits(heed::gate_gradient(Tensor({3, 1, 5}), none, none), Tensor({3, 1, 5})));
}

// The slope of <dO, out> along a random direction of all inputs equals the gradients' product with it.
TEST(Gate, GradientsAreSlopes) {
  for (std::uint64_t index = 0; index < kCalls; ++index) {
    SCOPED_TRACE(index);
    const Call c = draw_call(index);
    const std::uint64_t seed = kSeed + 10 * index;
    const Tensor by_gated = normal_tensor({c.batch, c.heads, c.queries, c.values}, seed + 4);
    const auto forward = heed::attention(c.query, c.key, c.value, {.need = heed::Need::lse});
    const Tensor by_output = heed::gated(by_gated, c.gate);
    const auto by =
        heed::attention_backward({c.query, c.key, c.value, forward.output, forward.lse, by_output}, {});
    const Tensor by_gate = heed::gate_gradient(c.gate, forward.output, by_gated);
    ASSERT_EQ(by_gate.shape(), c.gate.shape());
    ASSERT_TRUE(same_bits(by_gate, heed::gate_gradient(c.gate, forward.output, by_gated, 1)));
    double slope = 0, value[2] = {0, 0};
    constexpr double kStep = 1e-5;
    Tensor ways[4];
    Tensor Call::*const inputs[] = {&Call::query, &Call::key, &Call::value, &Call::gate};
    const Tensor* gradients[] = {&by.query, &by.key, &by.value, &by_gate};
    for (int n = 0; n < 4; ++n) {
      ways[n] = normal_tensor((c.*inputs[n]).shape(), seed + 5 + static_cast<std::uint64_t>(n));
      slope += product(ways[n], *gradients[n]);
    }
    for (const int side : {0, 1}) {
      Call moved = c;
      for (int n = 0; n < 4; ++n)
        for (std::size_t at = 0; at < ways[n].values<double>().size(); ++at)
          (moved.*inputs[n]).values<double>()[at] +=
              (side == 0 ? kStep : -kStep) * ways[n].values<double>()[at];
      value[side] = product(by_gated, formula(moved));
    }
    // The third derivative times kStep^2, and roundings of 1e-16 divided by kStep, of sums below 1000.
    ASSERT_NEAR((value[0] - value[1]) / (2 * kStep), slope, 1e-6 * (1 + std::abs(slope)));
  }
}

TEST(Gate, GoesWithACache) {
  const Tensor query = normal_tensor({1, 4, 1, 8}, 1, DType::f32),
               rows = normal_tensor({1, 2, 9, 8}, 2, DType::f32);
  const Tensor gate = normal_tensor({1, 4, 1, 8}, 3, DType::f32);
  heed::KvCache cache({.kv_heads = 2, .head_dim = 8, .capacity = 9});
  cache.append(rows, rows);
  const Tensor got = heed::gated(heed::attention(query, cache).output, gate);
  const Tensor want = heed::gated(heed::attention(query, rows, rows).output, gate);
  EXPECT_LE(largest_difference(got, want), 1e-6);  // some roundings of f32
}

// |(g_i * v_j) W_O| by the very vectors.
Tensor moved_formula(const Call& c, const Tensor& projection, bool gated) {
  const std::int64_t rows = gated ? c.queries : 1, outputs = projection.size(2);
  Tensor norms({c.batch, c.heads, rows, c.keys}, DType::f64);
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < c.keys; ++j) {
          double squares = 0;
          for (std::int64_t m = 0; m < outputs; ++m) {
            double sum = 0;
            for (std::int64_t d = 0; d < c.values; ++d)
              sum += (gated ? gate_at(c.gate, {b, h, i, d}) : 1) *
                     c.value.at<double>(b, h / (c.heads / c.kv_heads), j, d) * projection.at<double>(h, d, m);
            squares += sum * sum;
          }
          norms.at<double>(b, h, i, j) = std::sqrt(squares);
        }
  return norms;
}

TEST(Gate, CountsInWhatARowMoves) {
  for (std::uint64_t index = 0; index < kCalls; ++index) {
    SCOPED_TRACE(index);
    Call c = draw_call(index);
    if (index % 6 > 1)
      c.gate = normal_tensor({c.batch, c.heads, c.queries, index % 2 == 0 ? 1 : c.values}, index);
    const std::int64_t outputs = index % 3 == 0 ? 2 : 24;  // fewer and more than channels
    const Tensor projection = normal_tensor({c.heads, c.values, outputs}, kSeed + index);
    const Tensor norms = heed::moved_norms(c.value, projection, c.gate);
    const Tensor want = moved_formula(c, projection, true);
    // A rounding to f32, or of the gate's multiple; and the root of f64's roundings where vectors cancel.
    ASSERT_LE(largest_difference(norms, want), 1e-5);
    ASSERT_TRUE(same_bits(norms, heed::moved_norms(c.value, projection, c.gate, 1)));
    ASSERT_LE(largest_difference(heed::moved_norms(c.value, projection), moved_formula(c, projection, false)),
              1e-5);

    // With their logarithms as a bias, a row's weights are the shares of its moves.
    std::vector<double> p;
    (void)formula(c, &p);
    Tensor bias = Tensor::copy_of(norms, DType::f64);
    for (double& x : bias.values<double>()) x = std::log(x);
    const auto shares = heed::attention(c.query, c.key, c.value, {.bias = bias, .need = heed::Need::weights});
    const auto keys = static_cast<std::size_t>(c.keys);
    for (std::size_t row = 0; row < p.size(); row += keys) {
      double sum = 0;
      for (std::size_t j = row; j < row + keys; ++j) sum += p[j] * want.values<double>()[j];
      for (std::size_t j = row; j < row + keys && sum > 0; ++j)
        ASSERT_NEAR(shares.weights.values<double>()[j], p[j] * want.values<double>()[j] / sum, 1e-4);
    }
  }
}

TEST(Gate, CountsInLongTextsToo) {  // several blocks of keys
  Call c = draw_call(0);
  c.batch = 1, c.heads = 2, c.kv_heads = 1, c.queries = 2, c.keys = 600, c.values = 8;
  c.value = normal_tensor({1, 1, 600, 8}, 1);
  c.gate = normal_tensor({1, 2, 2, 8}, 2);
  const Tensor projection = normal_tensor({2, 8, 16}, 3);
  EXPECT_LE(
      largest_difference(heed::moved_norms(c.value, projection, c.gate), moved_formula(c, projection, true)),
      1e-5);
  EXPECT_EQ(heed::moved_norms(Tensor({1, 1, 0, 8}), projection).shape(), (Dims{1, 2, 1, 0}));
  EXPECT_EQ(heed::moved_norms(c.value, projection, Tensor({1, 2, 0, 1})).shape(), (Dims{1, 2, 0, 600}));
}

TEST(Gate, SaysWhatIsWrongInOneSentence) {
  const Tensor rows({1, 2, 3, 4}), whole({1, 2, 3, 4}, DType::i64);
  const auto of_gated = [&](const TensorView& from, const TensorView& gate, int threads = 0) {
    return message_of([&] { (void)heed::gated(from, gate, threads); });
  };
  EXPECT_EQ(of_gated(rows, Tensor({2, 1, 4})), "no error");
  EXPECT_EQ(of_gated(whole, rows), "rows has dtype i64; f64, f32, f16 or bf16 is expected");
  EXPECT_EQ(of_gated(rows, whole), "gate has dtype i64; f64, f32, f16 or bf16 is expected");
  EXPECT_EQ(of_gated(Tensor({4}), rows), "rows has shape [4]; 2 to 4 axes, [B, H, L, D], are expected");
  EXPECT_EQ(of_gated(rows, Tensor({3})),
            "gate has shape [3]; a shape that broadcasts to [1, 2, 3, 4] is expected");
  EXPECT_EQ(of_gated(rows, rows, -1), "threads is -1; 0 (all of the machine) or more is expected");
  EXPECT_EQ(message_of([&] {
              (void)heed::gate_gradient(rows, rows, Tensor({1, 2, 3, 1}));
            }),
            "grad_output has shape [1, 2, 3, 1]; [1, 2, 3, 4] is expected");
  EXPECT_EQ(message_of([&] { (void)heed::gate_gradient(Tensor({5}), rows, rows); }),
            "gate has shape [5]; a shape that broadcasts to [1, 2, 3, 4] is expected");

  const Tensor value({1, 2, 7, 4}), projection({4, 4, 6});
  const auto of_norms = [&](const TensorView& v, const TensorView& matrix, const TensorView& gate) {
    return message_of([&] { (void)heed::moved_norms(v, matrix, gate, 1); });
  };
  EXPECT_EQ(of_norms(value, projection, Tensor({1, 4, 3, 1})), "no error");
  EXPECT_EQ(of_norms(Tensor({2, 7, 4}), projection, rows),
            "value has shape [2, 7, 4]; [B, Hkv, Lk, Dv] is expected");
  EXPECT_EQ(of_norms(value, Tensor({3, 4, 6}), rows),
            "projection has shape [3, 4, 6]; [H, 4, M] with H a multiple of 2 is expected");
  EXPECT_EQ(of_norms(value, projection, rows),
            "gate has shape [1, 2, 3, 4]; [1, 4, Lq, 4] or [1, 4, Lq, 1] is expected");
  EXPECT_EQ(of_norms(value, Tensor({4, 4, 6}, DType::i32), Tensor({1, 4, 3, 1})),
            "projection has dtype i32; f64, f32, f16 or bf16 is expected");
}

}  // namespace
