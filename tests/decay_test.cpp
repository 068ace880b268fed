// Decay: s_ij + c_i - c_j (Lin et al. 2025, Forgetting Transformer). Every result and gradient is compared
// with the formulas in f64, written out here, on every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention/check/checks.hpp"
#include "attention/plan/decay_skips.hpp"
#include "attention_support.hpp"
#include "each_target.hpp"
#include "guarded.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/attention/streamed.hpp"
#include "naive_attention.hpp"
#include "path_watch.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::Align;
using heed::AttentionGradients;
using heed::AttentionOptions;
using heed::AttentionResult;
using heed::Dims;
using heed::DType;
using heed::Kernel;
using heed::MutableTensorView;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::Draw;
using heed::test::EachTarget;
using heed::test::message_of;
using heed::test::naive_element;
using heed::test::normal_tensor;
using heed::test::Path;
using heed::test::PathWatch;
using heed::test::same_bits;
using heed::test::share_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double element(const TensorView& view, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return static_cast<double>(naive_element(view, {a, b, c, d}));
}

// c of an entry, head and position; a tensor of fewer axes is the same for all.
double decay_of(const TensorView& c, std::int64_t b, std::int64_t h, std::int64_t at) {
  return static_cast<double>(naive_element(c, {0, b, h, at}));
}

enum class Steps { slow, steep, arbitrary, far_from_zero };

struct Call {
  std::int64_t batch, kv_heads, group, queries, keys, width, value_width;
  std::vector<Tensor> memory;
  TensorView query, key, value, grad_output, grad_lse;
  AttentionOptions options;
  Steps steps;
  [[nodiscard]] std::int64_t heads() const { return kv_heads * group; }
  // The sequence of a row: its first row and key, the ends of both, and the position of its first row.
  struct Sequence {
    std::int64_t row, row_end, key, key_end, offset;
  };
  [[nodiscard]] Sequence sequence_of(std::int64_t b, std::int64_t i) const;
};

std::int64_t number_at(const std::optional<TensorView>& view, std::int64_t i) {
  return static_cast<const std::int64_t*>(view->data())[i];
}

Call::Sequence Call::sequence_of(std::int64_t b, std::int64_t i) const {
  Sequence s{0, queries, 0, options.kv_lengths ? number_at(options.kv_lengths, b) : keys, 0};
  for (std::int64_t n = 0; options.query_segments && n + 1 < options.query_segments->size(0); ++n)
    if (i >= number_at(options.query_segments, n) && i < number_at(options.query_segments, n + 1))
      s = {number_at(options.query_segments, n), number_at(options.query_segments, n + 1),
           number_at(options.key_segments, n), number_at(options.key_segments, n + 1), 0};
  s.offset = options.query_offset                   ? *options.query_offset
             : options.align == Align::bottom_right ? s.key_end - s.key - (s.row_end - s.row)
                                                    : 0;
  return s;
}

MutableTensorView filled(const Dims& shape, DType dtype, Draw& draw, std::vector<Tensor>& memory,
                         double size = 1) {
  const MutableTensorView view = heed::test::strided_view(shape, dtype, draw, memory, /*may_repeat=*/false);
  heed::test::for_each_index(shape, [&](const Dims& at) { heed::test::put(view, at, size * draw.normal()); });
  return view;
}

MutableTensorView decay_view(Call& call, Draw& draw, std::int64_t positions) {
  const DType dtype = draw.pick(std::vector{DType::f32, DType::f32, DType::f64, DType::bf16});
  const Dims shape = draw.chance(0.2)   ? Dims{positions}
                     : draw.chance(0.2) ? Dims{1, call.heads(), positions}
                                        : Dims{call.batch, call.heads(), positions};
  const MutableTensorView view =
      heed::test::strided_view(shape, dtype, draw, call.memory, /*may_repeat=*/false);
  double sum = 0;
  heed::test::for_each_index(shape, [&](const Dims& at) {
    const double size = std::abs(draw.normal());
    if (at[shape.size() - 1] == 0) sum = call.steps == Steps::far_from_zero ? -1000 : 0;
    sum -= call.steps == Steps::steep ? 20 * size : call.steps == Steps::far_from_zero ? size : 0.2 * size;
    heed::test::put(view, at, call.steps == Steps::arbitrary ? 40 * draw.normal() : sum);
  });
  return view;
}

TensorView integers(std::vector<std::int64_t> numbers, std::vector<Tensor>& memory) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  return memory.emplace_back(Tensor::from(std::span<const std::int64_t>(numbers), {count}));
}

Call draw_call(std::uint64_t index) {
  Draw draw(20261127, index);
  const bool packed = draw.chance(0.2);
  Call call{packed ? 1 : draw.between(1, 2),
            draw.between(1, 2),
            draw.pick(std::vector<std::int64_t>{1, 2, 3}),
            draw.pick(std::vector<std::int64_t>{1, 2, 5, 13, 30, 50, 97}),
            draw.pick(std::vector<std::int64_t>{1, 3, 17, 48, 65, 130, 200}),
            draw.between(1, 24),
            draw.between(1, 24),
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            draw.pick(std::vector{Steps::slow, Steps::steep, Steps::arbitrary, Steps::far_from_zero})};
  call.memory.reserve(32);
  const DType dtype = draw.pick(std::vector{DType::f64, DType::f32, DType::f32, DType::bf16, DType::f16});
  call.query = filled({call.batch, call.heads(), call.queries, call.width}, dtype, draw, call.memory);
  call.key = filled({call.batch, call.kv_heads, call.keys, call.width}, dtype, draw, call.memory);
  call.value = filled({call.batch, call.kv_heads, call.keys, call.value_width}, dtype, draw, call.memory);
  call.grad_output =
      filled({call.batch, call.heads(), call.queries, call.value_width}, dtype, draw, call.memory);
  call.grad_lse = filled({call.batch, call.heads(), call.queries}, dtype == DType::f64 ? dtype : DType::f32,
                         draw, call.memory);
  AttentionOptions& o = call.options;
  o.causal = draw.chance(0.6);
  o.align = draw.chance(0.5) ? Align::bottom_right : Align::top_left;
  if (draw.chance(0.2)) o.query_offset = draw.between(-3, 20);
  if (draw.chance(0.2)) o.window = {draw.between(0, 40), draw.between(-1, 40)};
  if (draw.chance(0.2)) o.softcap = 5;
  if (draw.chance(0.2)) o.sinks = filled({call.heads()}, DType::f32, draw, call.memory);
  if (draw.chance(0.2)) o.alibi_slopes = filled({call.heads()}, DType::f32, draw, call.memory, 0.1);
  if (draw.chance(0.3))
    o.bias = filled({call.batch, call.heads(), call.queries, call.keys}, DType::f32, draw, call.memory);
  if (packed) {
    const std::int64_t row = draw.between(0, call.queries), key = draw.between(0, call.keys);
    o.query_segments = integers({0, row, call.queries}, call.memory);
    o.key_segments = integers({0, key, call.keys}, call.memory);
  } else if (draw.chance(0.3)) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < call.batch; ++b) lengths.push_back(draw.between(0, call.keys));
    o.kv_lengths = integers(std::move(lengths), call.memory);
  }
  if (draw.chance(0.2)) {
    const MutableTensorView mask = heed::test::strided_view({call.queries, call.keys}, DType::boolean, draw,
                                                            call.memory, /*may_repeat=*/false);
    heed::test::for_each_index(mask.shape(),
                               [&](const Dims& at) { heed::test::put(mask, at, draw.chance(0.7) ? 1 : 0); });
    o.mask = mask;
  }
  o.decay = decay_view(call, draw, call.keys + (packed ? 0 : draw.pick(std::vector<std::int64_t>{0, 0, 5})));
  return call;
}

struct Numbers {
  Dims shape;
  std::vector<double> values;
  explicit Numbers(const Dims& of) : shape(of), values(static_cast<std::size_t>(heed::element_count(of))) {}
};

// The formulas. Numbers are [B, H, …]; `size` of a row is the size of its terms.
struct Expected {
  Numbers output, lse, weights, scores, entropy, distance, received, max_score, size;
  Numbers grad_query, grad_key, grad_value, grad_decay;
};

double& at(Numbers& x, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d = 0) {
  const Dims& n = x.shape;
  const std::int64_t last = n.size() > 3 ? n[3] : 1;
  return x.values[static_cast<std::size_t>(((a * n[1] + b) * n[2] + c) * last + d)];
}

struct Place {
  std::int64_t b, h, kv, i, position, own;  // own: the row's index in c
  Call::Sequence s;
};

// Sets a row's scores; -inf where the key is forbidden.
void score_row(const Call& call, const Place& p, Expected& x) {
  const AttentionOptions& o = call.options;
  const double scale = 1 / std::sqrt(static_cast<double>(call.width));
  for (std::int64_t j = 0; j < call.keys; ++j) {
    double& score = at(x.scores, p.b, p.h, p.i, j) = -kInfinity;
    const std::int64_t away = p.position - (j - p.s.key);
    if (j < p.s.key || j >= p.s.key_end || (o.causal && away < 0) ||
        (o.window.left >= 0 && away > o.window.left) || (o.window.right >= 0 && -away > o.window.right))
      continue;
    if (o.mask && element(*o.mask, 0, 0, p.i, j) == 0) continue;
    double dot = 0, size = 0;
    for (std::int64_t d = 0; d < call.width; ++d) {
      const double term = element(call.query, p.b, p.h, p.i, d) * element(call.key, p.b, p.kv, j, d);
      dot += term;
      size += std::abs(term);
    }
    score = scale * dot;
    if (o.softcap > 0) score = o.softcap * std::tanh(score / o.softcap);
    const double bias = o.bias ? element(*o.bias, p.b, p.h, p.i, j) : 0;
    const double slope = o.alibi_slopes ? element(*o.alibi_slopes, 0, 0, 0, p.h) : 0;
    const double decay = decay_of(*o.decay, p.b, p.h, p.own) - decay_of(*o.decay, p.b, p.h, j);
    score += bias - slope * static_cast<double>(std::abs(away)) + decay;
    at(x.size, p.b, p.h, p.i) = std::max(
        {at(x.size, p.b, p.h, p.i), scale * size + std::abs(bias) + std::abs(score) + std::abs(decay)});
  }
}

void weigh_row(const Call& call, const Place& p, Expected& x) {
  const double sink = call.options.sinks ? element(*call.options.sinks, 0, 0, 0, p.h) : -kInfinity;
  double most = -kInfinity;
  for (std::int64_t j = 0; j < call.keys; ++j) most = std::max(most, at(x.scores, p.b, p.h, p.i, j));
  at(x.max_score, p.b, p.h, p.i) = most;
  const double shift = std::max(most, sink);
  double sum = sink == -kInfinity ? 0 : std::exp(sink - shift);
  for (std::int64_t j = 0; most != -kInfinity && j < call.keys; ++j)
    sum += std::exp(at(x.scores, p.b, p.h, p.i, j) - shift);
  const double lse = shift == -kInfinity ? -kInfinity : shift + std::log(sum);
  at(x.lse, p.b, p.h, p.i) = lse;
  for (std::int64_t j = 0; j < call.keys; ++j) {
    const double score = at(x.scores, p.b, p.h, p.i, j);
    const double weight = at(x.weights, p.b, p.h, p.i, j) = score == -kInfinity ? 0 : std::exp(score - lse);
    if (weight == 0) continue;
    at(x.entropy, p.b, p.h, p.i) -= weight * std::log(weight);
    at(x.distance, p.b, p.h, p.i) += weight * static_cast<double>(std::abs(p.position - (j - p.s.key)));
    at(x.received, p.b, p.h, j) += weight;
    for (std::int64_t c = 0; c < call.value_width; ++c)
      at(x.output, p.b, p.h, p.i, c) += weight * element(call.value, p.b, p.kv, j, c);
  }
}

void differentiate_row(const Call& call, const Place& p, Expected& x) {
  const double scale = 1 / std::sqrt(static_cast<double>(call.width));
  double mean = 0;
  std::vector<double> by_weight(static_cast<std::size_t>(call.keys));
  for (std::int64_t j = 0; j < call.keys; ++j) {
    const double weight = at(x.weights, p.b, p.h, p.i, j);
    double& grad = by_weight[static_cast<std::size_t>(j)];
    for (std::int64_t c = 0; weight != 0 && c < call.value_width; ++c) {
      grad += element(call.grad_output, p.b, p.h, p.i, c) * element(call.value, p.b, p.kv, j, c);
      at(x.grad_value, p.b, p.kv, j, c) += weight * element(call.grad_output, p.b, p.h, p.i, c);
    }
    mean += weight * grad;
  }
  for (std::int64_t j = 0; j < call.keys; ++j) {
    const double weight = at(x.weights, p.b, p.h, p.i, j);
    const double lse = element(call.grad_lse, 0, p.b, p.h, p.i);
    double grad = weight * (by_weight[static_cast<std::size_t>(j)] - mean + lse);
    at(x.grad_decay, p.b, p.h, p.own) += grad;
    at(x.grad_decay, p.b, p.h, j) -= grad;
    double dot = 0;
    for (std::int64_t d = 0; call.options.softcap > 0 && weight != 0 && d < call.width; ++d)
      dot += scale * element(call.query, p.b, p.h, p.i, d) * element(call.key, p.b, p.kv, j, d);
    if (call.options.softcap > 0) grad *= 1 - std::pow(std::tanh(dot / call.options.softcap), 2);
    for (std::int64_t d = 0; weight != 0 && d < call.width; ++d) {
      at(x.grad_query, p.b, p.h, p.i, d) += scale * grad * element(call.key, p.b, p.kv, j, d);
      at(x.grad_key, p.b, p.kv, j, d) += scale * grad * element(call.query, p.b, p.h, p.i, d);
    }
  }
}

Expected expect(const Call& call) {
  const std::int64_t b = call.batch, h = call.heads(), q = call.queries, k = call.keys;
  const std::int64_t positions = call.options.decay->size(-1);
  Expected x{Numbers({b, h, q, call.value_width}),
             Numbers({b, h, q}),
             Numbers({b, h, q, k}),
             Numbers({b, h, q, k}),
             Numbers({b, h, q}),
             Numbers({b, h, q}),
             Numbers({b, h, k}),
             Numbers({b, h, q}),
             Numbers({b, h, q}),
             Numbers({b, h, q, call.width}),
             Numbers({b, call.kv_heads, k, call.width}),
             Numbers({b, call.kv_heads, k, call.value_width}),
             Numbers({b, h, positions})};
  const bool packed = call.options.query_segments.has_value();
  for (std::int64_t row = 0; row < b * h * q; ++row) {
    Place p{row / (h * q), row / q % h, row / q % h / call.group, row % q, 0, 0, {}};
    p.s = call.sequence_of(p.b, p.i);
    p.position = p.i - p.s.row + p.s.offset;
    const std::int64_t first = packed ? p.s.key : 0, last = (packed ? p.s.key_end : positions) - 1;
    p.own = std::max(first, std::min(p.s.key + p.position, last));
    if (first > last) p.own = 0;  // a sequence without keys
    score_row(call, p, x);
    weigh_row(call, p, x);
    differentiate_row(call, p, x);
  }
  return x;
}

// The largest error as a share of `size`. Infinities must be equal.
double error(const TensorView& found, const Numbers& expected, const Numbers* size = nullptr) {
  const Tensor wide = Tensor::copy_of(found, DType::f64);
  if (wide.shape() != expected.shape) return kInfinity;
  double worst = 0;
  const auto a = wide.values<double>();
  const std::vector<double>& e = expected.values;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == e[i]) continue;
    const std::size_t row = size == nullptr ? 0 : i / (a.size() / size->values.size());
    const double of_row = size == nullptr ? 0 : size->values[row];
    const double off = std::abs(a[i] - e[i]) / (1 + of_row);
    if (!(off <= worst)) worst = off;
  }
  return worst;
}

// The sums of a gradient over the axes that the decay lacks.
Numbers summed_like(const TensorView& decay, Numbers& whole) {
  Numbers sums(decay.shape());
  const Dims& n = whole.shape;
  for (std::int64_t b = 0; b < n[0]; ++b)
    for (std::int64_t h = 0; h < n[1]; ++h)
      for (std::int64_t p = 0; p < n[2]; ++p) {
        std::int64_t place = p;
        if (decay.rank() == 3) place += ((decay.size(0) == 1 ? 0 : b) * n[1] + h) * n[2];
        sums.values[static_cast<std::size_t>(place)] += at(whole, b, h, p);
      }
  return sums;
}

constexpr Need kNeeds = Need::lse | Need::weights | Need::scores | Need::entropy | Need::distance |
                        Need::received | Need::max_score;

void compare(const Call& call, Expected& x, Kernel kernel) {
  AttentionOptions options = call.options;
  options.need = kNeeds;
  options.kernel = kernel;
  const AttentionResult found = heed::attention(call.query, call.key, call.value, options);
  const DType dtype = call.query.dtype();
  const bool half = dtype == DType::bf16 || dtype == DType::f16;
  // An error is relative to 1 and the size of a row's scores. A distance multiplies weights by up to 200
  // positions, received sums them over up to 97 rows, and an entropy adds products with logarithms of up to
  // 10. Weights and outputs of 16 bits err by up to 2^-8. Gradients by keys, values and c sum such errors
  // over 97 rows and 3 heads.
  const double exact = kernel == Kernel::reference ? (dtype == DType::f64 ? 1e-12 : 1e-6) : 2e-6;
  const double rounded = half ? 2e-2 : exact;
  EXPECT_LT(error(found.lse, x.lse, &x.size), exact);
  EXPECT_LT(error(found.max_score, x.max_score, &x.size), exact);
  EXPECT_LT(error(found.scores, x.scores, &x.size), exact);
  EXPECT_LT(error(found.weights, x.weights, &x.size), exact);
  EXPECT_LT(error(found.entropy, x.entropy, &x.size), 10 * exact);
  EXPECT_LT(error(found.distance, x.distance, &x.size), 200 * exact);
  EXPECT_LT(error(found.received, x.received), 1e2 * std::max(exact, 1e-6 * (dtype != DType::f64)));
  EXPECT_LT(error(found.output, x.output, &x.size), 3 * rounded);

  const AttentionGradients gradients =
      heed::attention_backward({call.query, call.key, call.value, found.output, found.lse, call.grad_output,
                                call.grad_lse, std::nullopt},
                               [&] {
                                 AttentionOptions plain = call.options;
                                 plain.kernel = kernel;
                                 return plain;
                               }(),
                               {.decay = true});
  const double of_sums = half ? 0.2 : dtype == DType::f64 ? 1e-11 : 2e-3;
  EXPECT_LT(error(gradients.query, x.grad_query, &x.size), of_sums);
  EXPECT_LT(error(gradients.key, x.grad_key), of_sums);
  EXPECT_LT(error(gradients.value, x.grad_value), of_sums);
  const Numbers decay = summed_like(*call.options.decay, x.grad_decay);
  const DType of_c = call.options.decay->dtype();
  const double of_decay = std::max(of_sums, of_c == DType::bf16 ? 0.2 : of_c == DType::f32 ? 1e-5 : 0);
  EXPECT_LT(error(gradients.decay, decay), of_decay);
}

TEST(Decay, IsWhatTheFormulasSayInEveryResultAndGradient) {
  EachTarget targets;
  for (std::uint64_t index = 0; index < share_of(1000); ++index) {
    const Call call = draw_call(index);
    Expected x = expect(call);
    SCOPED_TRACE("call " + std::to_string(index));
    compare(call, x, Kernel::reference);
    if (call.query.dtype() != DType::f64)
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 10)) continue;
        SCOPED_TRACE(target);
        heed::set_target(target);
        compare(call, x, Kernel::fused);
      }
    if (::testing::Test::HasFailure()) return;
  }
}

// A call of many rows: q, k, v [1, H, L, D] with key heads, and c.
struct LongCall {
  Tensor query, key, value, grad_output, decay;
  AttentionOptions options{};

  LongCall(DType dtype, std::int64_t length, Steps steps, double size = 1)
      : query(normal_tensor({1, 4, length, 32}, 1, dtype)),
        key(normal_tensor({1, 2, length, 32}, 2, dtype)),
        value(normal_tensor({1, 2, length, 24}, 3, dtype)),
        grad_output(normal_tensor({1, 4, length, 24}, 4, dtype)),
        decay(normal_tensor({1, 4, length}, 5, DType::f32)) {
    double sum = 0;
    for (float& c : decay.values<float>()) {
      sum -= size * std::abs(static_cast<double>(c));
      c = static_cast<float>(steps == Steps::arbitrary ? 300 * static_cast<double>(c) : sum);
    }
    options.decay = decay;
    options.causal = true;
  }
  [[nodiscard]] AttentionResult forward(Need need = Need::lse) const {
    AttentionOptions o = options;
    o.need = need;
    return heed::attention(query, key, value, o);
  }
  [[nodiscard]] AttentionGradients backward(const AttentionResult& at) const {
    return heed::attention_backward(
        {query, key, value, at.output, at.lse, grad_output, std::nullopt, std::nullopt}, options,
        {.decay = true});
  }
  [[nodiscard]] bool skips() const {
    heed::detail::Problem problem = heed::detail::check_call(query, key, value, options);
    return static_cast<bool>(heed::detail::DecaySkips(problem, Kernel::automatic));
  }
};

void expect_same_gradients(const AttentionGradients& a, const AttentionGradients& b) {
  EXPECT_TRUE(same_bits(a.query, b.query));
  EXPECT_TRUE(same_bits(a.key, b.key));
  EXPECT_TRUE(same_bits(a.value, b.value));
  EXPECT_TRUE(same_bits(a.decay, b.decay));
}

// A mask that allows every key turns skipping off.
TEST(Decay, SkippedKeysChangeNoBit) {
  const Tensor all = Tensor::copy_of(Tensor::from<double>({1}, {1, 1}), DType::boolean);
  EachTarget targets;
  for (const std::string& target : targets.available()) {
    if (target.ends_with("emulated") && !heed::test::makes_all_calls()) continue;
    heed::set_target(target);
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Steps steps : {Steps::slow, Steps::arbitrary}) {
        SCOPED_TRACE(target + ", " + std::string(name_of(dtype)));
        LongCall call(dtype, 600, steps, 2);
        if (steps == Steps::arbitrary) call.options.window = {200, 0};
        EXPECT_TRUE(call.skips());
        const AttentionResult skipped = call.forward();
        const AttentionGradients gradients = call.backward(skipped);
        call.options.mask = all;
        EXPECT_FALSE(call.skips());
        const AttentionResult whole = call.forward();
        EXPECT_TRUE(same_bits(skipped.output, whole.output));
        EXPECT_TRUE(same_bits(skipped.lse, whole.lse));
        expect_same_gradients(gradients, call.backward(whole));
      }
  }
}

TEST(Decay, NoKeyIsSkippedWhoseNumbersWouldShow) {
  LongCall call(DType::f32, 600, Steps::slow, 2);
  EXPECT_TRUE(call.skips());
  for (std::int64_t h = 0; h < 2; ++h)
    call.value.at<float>(0, h, 0, 3) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(call.skips());
  EXPECT_TRUE(std::isnan(call.forward().output.at<float>(0, 3, 599, 3)));
  LongCall other(DType::f32, 600, Steps::slow, 2);
  other.options.sinks = other.decay.view().select(0, 0).select(1, 0);
  EXPECT_FALSE(other.skips());
  LongCall gentle(DType::f32, 600, Steps::slow, 0.01);
  EXPECT_FALSE(gentle.skips());
}

TEST(Decay, HasTheSameBitsForAnyThreadsAndLayout) {
  LongCall call(DType::f32, 700, Steps::slow, 0.05);
  const AttentionResult one = call.forward(kNeeds);
  const AttentionGradients gradients = call.backward(one);
  const Tensor transposed = Tensor::copy_of(call.decay.view().transpose(1, 2));
  for (const int threads : {1, 2, 5}) {
    call.options.threads = threads;
    call.options.decay = threads == 2 ? transposed.view().transpose(1, 2) : call.decay.view();
    const AttentionResult again = call.forward(kNeeds);
    EXPECT_TRUE(same_bits(one, again));
    expect_same_gradients(gradients, call.backward(again));
  }
}

// A bias of 0 changes no score, but sends every tile by way of memory. In f64, c - 10,000 has the differences
// that c has.
TEST(Decay, AddedByTilesHasTheSameBitsAsInMemory) {
  const Tensor zero({1, 1}, DType::f32);
  const EachTarget targets;
  for (const std::string& target : targets.available()) {
    heed::set_target(target);
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Steps steps : {Steps::slow, Steps::arbitrary})
        for (const Need need : {Need::lse, Need::lse | Need::entropy | Need::max_score}) {
          SCOPED_TRACE(target + ", " + std::string(name_of(dtype)));
          LongCall call(dtype, 300, steps, 0.3);
          Tensor wide = Tensor::copy_of(call.decay, DType::f64);
          for (double& c : wide.values<double>()) c -= 10000;
          PathWatch watch;
          watch.start_call();
          const AttentionResult narrow = call.forward(need);
          const std::int64_t cut = watch.taken_now(Path::masked);
          call.options.decay = wide;
          const AttentionResult of_wide = call.forward(need);
          call.options.bias = zero;
          watch.start_call();
          const AttentionResult in_memory = call.forward(need);
          EXPECT_TRUE(same_bits(narrow, in_memory));
          EXPECT_TRUE(same_bits(of_wide, in_memory));
          if (dtype == DType::f32 && !target.starts_with("amx")) {
            // The diagonal cuts nearly half of the panels of 48 keys.
            EXPECT_LT(cut, watch.taken_now(Path::masked));
          }
        }
  }
}

TEST(Decay, OfConstantGatesIsAlibi) {
  LongCall call(DType::f64, 60, Steps::slow);
  const Tensor slopes = Tensor::from<double>({0.5, 0.25, 0.125, 0.0625}, {4});
  Tensor decay({4, 60}, DType::f64);
  for (std::int64_t h = 0; h < 4; ++h)
    for (std::int64_t i = 0; i < 60; ++i)
      decay.at<double>(h, i) = -slopes.at<double>(h) * static_cast<double>(i);
  call.options.decay = decay;
  const AttentionResult by_decay = call.forward(kNeeds);
  call.options.decay.reset();
  call.options.alibi_slopes = slopes;
  const AttentionResult by_alibi = call.forward(kNeeds);
  EXPECT_LT(heed::test::largest_difference(by_decay.output, by_alibi.output), 1e-12);
  EXPECT_LT(heed::test::largest_difference(by_decay.lse, by_alibi.lse), 1e-12);
  EXPECT_LT(heed::test::largest_difference(by_decay.weights, by_alibi.weights), 1e-12);
}

// A step over any cache has the bits of attention over its rows.
TEST(Decay, OverCachesEqualsAttentionOverTheirRows) {
  EachTarget targets;
  for (const std::string& target : targets.available()) {
    if (target.ends_with("emulated") && !heed::test::makes_all_calls()) continue;
    heed::set_target(target);
    const LongCall call(DType::f32, 130, Steps::slow, 0.3);
    AttentionOptions options = call.options;
    options.need = Need::lse | Need::weights | Need::entropy;
    options.top_k = 3;
    options.align = Align::bottom_right;
    const Tensor step = Tensor::copy_of(call.query.view().narrow(2, 129, 1));
    const AttentionResult plain = heed::attention(step, call.key, call.value, options);
    for (const heed::CacheLayout layout : {heed::CacheLayout::contiguous, heed::CacheLayout::paged}) {
      heed::KvCache cache(
          {.kv_heads = 2, .head_dim = 32, .value_dim = 24, .layout = layout, .capacity = 160});
      cache.append(call.key, call.value);
      EXPECT_TRUE(same_bits(plain, heed::attention(step, cache, options))) << target;
    }
  }
}

// Keys arrive range by range; spans begin at multiples of 3072 keys.
TEST(Decay, OfKeysThatArriveInRangesHasTheSameBits) {
  const LongCall call(DType::f32, 3200, Steps::slow, 0.001);
  const Tensor few = Tensor::copy_of(call.query.view().narrow(2, 3190, 10));
  AttentionOptions options = call.options;
  options.align = Align::bottom_right;
  options.need = Need::lse;
  const AttentionResult whole = heed::attention(few, call.key, call.value, options);
  Tensor output({1, 4, 10, 24}), lse({1, 4, 10});
  heed::AttentionOutputs outputs;
  outputs.output = output;
  outputs.lse = lse;
  const heed::PositionRange rows[] = {{0, 10}};
  heed::StreamedAttention stream(few, {2, 3200, 24}, options, {1, 4, 10, 0, 0, rows}, outputs);
  for (const heed::PositionRange& range : stream.ranges(3072))
    stream.attend(range, call.key.view().narrow(2, range.begin, range.end - range.begin),
                  call.value.view().narrow(2, range.begin, range.end - range.begin));
  (void)stream.finish();
  EXPECT_TRUE(same_bits(output, whole.output));
  EXPECT_TRUE(same_bits(lse, whole.lse));
}

// c is so large that f32 cannot hold the scores of some rows. They are computed in f64.
TEST(Decay, BeyondTheRangeOfF32IsComputedInF64) {
  LongCall call(DType::f32, 80, Steps::slow);
  for (float& c : call.decay.values<float>()) c *= 1e7f;
  call.options.causal = false;
  const AttentionResult fused = call.forward();
  EXPECT_GT(fused.recomputed_rows, 0);
  const AttentionGradients gradients = call.backward(fused);
  EXPECT_GT(gradients.recomputed_rows, 0);
  call.options.kernel = Kernel::reference;
  const AttentionResult reference = call.forward();
  EXPECT_LT(heed::test::largest_difference(fused.output, reference.output), 1e-6);
  const AttentionGradients expected = call.backward(reference);
  EXPECT_LT(heed::test::largest_difference(gradients.decay, expected.decay), 1e-5);
  EXPECT_LT(heed::test::largest_difference(gradients.key, expected.key), 1e-5);
}

TEST(Decay, GradientIsSummedOverWhatTheDecayRepeats) {
  LongCall call(DType::f64, 20, Steps::slow);
  call.options.decay = call.decay.view().narrow(1, 0, 1).expand({1, 4, 20});
  const AttentionResult found = call.forward();
  const AttentionGradients one = call.backward(found);
  ASSERT_EQ(one.decay.shape(), (Dims{1, 1, 20}));
  const Tensor repeated = Tensor::copy_of(*call.options.decay, DType::f64);
  call.options.decay = repeated;
  const AttentionGradients each = call.backward(found);
  for (std::int64_t p = 0; p < 20; ++p) {
    double sum = 0;
    for (std::int64_t h = 0; h < 4; ++h) sum += each.decay.at<double>(0, h, p);
    EXPECT_NEAR(static_cast<double>(one.decay.at<float>(0, 0, p)), sum, 1e-6);
  }
}

// The first sequence has queries and no keys, and no number lies before the first one of c.
TEST(Decay, IsNotReadBeforeItsFirstNumber) {
  const Tensor query = normal_tensor({1, 1, 80, 16}, 1, DType::f32),
               key = normal_tensor({1, 1, 8, 16}, 2, DType::f32);
  const Tensor query_segments = Tensor::from<std::int64_t>({0, 40, 80}, {3}),
               key_segments = Tensor::from<std::int64_t>({0, 0, 8}, {3});
  const heed::test::Guarded decay(normal_tensor({1, 1, 8}, 3, DType::f32), heed::test::Side::first_byte);
  const AttentionOptions options{.decay = decay.view(),
                                 .query_segments = query_segments,
                                 .key_segments = key_segments,
                                 .kernel = Kernel::fused};
  EachTarget targets;
  for (const std::string& target : targets.available()) {
    heed::set_target(target);
    const Tensor output = heed::attention(query, key, key, options).output;
    for (const float x : output.values<float>().first(40 * 16)) EXPECT_EQ(x, 0) << target;
  }
}

TEST(Decay, IsRefusedWhereItsPositionsDoNotFit) {
  const Tensor x({1, 1, 5, 2});
  const Tensor segments = Tensor::from<std::int64_t>({0, 2, 5}, {3});
  const Tensor six({1, 1, 6});
  EXPECT_EQ(message_of([&] {
              (void)heed::attention(x, x, x,
                                    {.decay = six, .query_segments = segments, .key_segments = segments});
            }),
            "decay has shape [1, 1, 6]; [B, H, L] with 5 positions, the length of key, is expected");
  LongCall call(DType::f32, 5, Steps::slow);
  const AttentionResult found = call.forward();
  call.options.decay.reset();
  EXPECT_EQ(message_of([&] { (void)call.backward(found); }),
            "request.decay is true, but the call has no decay");
}

}  // namespace
