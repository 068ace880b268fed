// SelfAttention and MultiHeadAttention: comparison with a naive computation of the whole layer, layouts of
// their weights, and errors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "golden.hpp"
#include "heed/nn/layers.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::Dims;
using heed::DType;
using heed::Generator;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::nn::LayerResult;
using heed::nn::Linear;
using heed::nn::MultiHeadAttention;
using heed::nn::MultiHeadOptions;
using heed::nn::SelfAttention;
using heed::test::message_of;
using heed::test::relative_error;
using heed::test::same_bits;

using Rows = std::vector<std::vector<double>>;

// The rows of x [L, D] for one sentence.
Rows rows_of(const Tensor& x, std::int64_t batch) {
  Rows rows(static_cast<std::size_t>(x.size(1)), std::vector<double>(static_cast<std::size_t>(x.size(2))));
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t c = 0; c < rows[i].size(); ++c)
      rows[i][c] = x.at<double>(batch, static_cast<std::int64_t>(i), static_cast<std::int64_t>(c));
  return rows;
}

// Multiplies each position by rows `begin` to `begin + size` of W.
Rows project(const Rows& x, const Linear& part, std::int64_t begin, std::int64_t size) {
  Rows result;
  for (const auto& position : x) {
    std::vector<double> y;
    for (std::int64_t row = begin; row < begin + size; ++row) {
      double sum = part.bias ? part.bias->at<double>(row) : 0;
      for (std::size_t c = 0; c < position.size(); ++c)
        sum += part.weight.at<double>(row, static_cast<std::int64_t>(c)) * position[c];
      y.push_back(sum);
    }
    result.push_back(y);
  }
  return result;
}

// One head, row by row: softmax(q k^T / sqrt(d)) v.
Rows attend(const Rows& q, const Rows& k, const Rows& v, bool causal) {
  Rows result;
  for (std::size_t i = 0; i < q.size(); ++i) {
    std::vector<double> context(v.empty() ? 0 : v[0].size());
    double total = 0;
    for (std::size_t j = 0; j < k.size() && !(causal && j > i); ++j) {
      double score = 0;
      for (std::size_t c = 0; c < q[i].size(); ++c) score += q[i][c] * k[j][c];
      const double weight = std::exp(score / std::sqrt(static_cast<double>(q[i].size())));
      total += weight;
      for (std::size_t c = 0; c < context.size(); ++c) context[c] += weight * v[j][c];
    }
    for (double& value : context) value /= total;
    result.push_back(context);
  }
  return result;
}

Tensor naive_layer(const MultiHeadAttention& layer, const Tensor& x, const Tensor& context, bool causal) {
  const std::int64_t group = layer.heads() / layer.kv_heads();
  const std::int64_t head_dim = layer.query.weight.size(0) / layer.heads();
  const std::int64_t value_dim = layer.value.weight.size(0) / layer.kv_heads();
  const std::int64_t width = layer.out_proj ? layer.out_proj->weight.size(0) : layer.heads() * value_dim;
  Tensor output({x.size(0), x.size(1), width}, DType::f64);
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    Rows merged(static_cast<std::size_t>(x.size(1)));
    for (std::int64_t h = 0; h < layer.heads(); ++h) {
      const Rows q = project(rows_of(x, b), layer.query, h * head_dim, head_dim);
      const Rows k = project(rows_of(context, b), layer.key, h / group * head_dim, head_dim);
      const Rows v = project(rows_of(context, b), layer.value, h / group * value_dim, value_dim);
      const Rows one = attend(q, k, v, causal);
      for (std::size_t i = 0; i < one.size(); ++i)
        merged[i].insert(merged[i].end(), one[i].begin(), one[i].end());
    }
    if (layer.out_proj) merged = project(merged, *layer.out_proj, 0, width);
    for (std::int64_t i = 0; i < x.size(1); ++i)
      for (std::int64_t c = 0; c < width; ++c)
        output.at<double>(b, i, c) = merged[static_cast<std::size_t>(i)][static_cast<std::size_t>(c)];
  }
  return output;
}

std::string described(const MultiHeadOptions& o) {
  return "dim " + std::to_string(o.dim) + ", heads " + std::to_string(o.heads) + ", kv_heads " +
         std::to_string(o.kv_heads) + ", head_dim " + std::to_string(o.head_dim) + ", value_dim " +
         std::to_string(o.value_dim) + ", context_dim " + std::to_string(o.context_dim) + ", bias " +
         std::to_string(o.bias) + ", output_projection " + std::to_string(o.output_projection);
}

void draw_biases(Generator& generator, MultiHeadAttention& layer) {
  for (auto& parameter : layer.parameters())
    if (parameter.name.ends_with("bias")) heed::uniform_(generator, *parameter.value, -1, 1);
}

TEST(MultiHeadLayer, EqualsANaiveComputation) {
  constexpr std::uint64_t kSeed = 20240607;
  constexpr std::int64_t kHeads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}, {4, 0}};
  Generator generator(kSeed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(generator.random32() % static_cast<std::uint64_t>(high - low + 1));
  };
  for (int call = 0; call < 200; ++call) {
    MultiHeadOptions sizes;
    const auto& heads = kHeads[pick(0, 4)];
    sizes.heads = heads[0];
    sizes.kv_heads = heads[1];
    sizes.dim = sizes.heads * pick(1, 3);
    sizes.head_dim = pick(0, 4);
    sizes.value_dim = pick(0, 5);
    sizes.context_dim = pick(0, 1) * pick(1, 9);
    sizes.bias = pick(0, 1) == 1;
    sizes.output_projection = pick(0, 1) == 1;
    MultiHeadAttention layer(sizes, generator, DType::f64);
    draw_biases(generator, layer);
    const std::int64_t batch = pick(1, 3);
    const Tensor x = heed::randn(generator, {batch, pick(1, 6), layer.query.weight.size(1)}, DType::f64);
    const Tensor context = heed::randn(generator, {batch, pick(1, 6), layer.key.weight.size(1)}, DType::f64);
    const bool causal = pick(0, 1) == 1;
    const LayerResult result = layer.forward(x, context, {.causal = causal});
    const Tensor expected = naive_layer(layer, x, context, causal);
    // Sums of dozens of f64 products, in another order.
    ASSERT_TRUE(relative_error(result.output, expected) <= 1e-13)
        << "seed " << kSeed << ", call " << call << ": " << described(sizes) << ", x " << to_string(x.shape())
        << ", context " << to_string(context.shape()) << ", causal " << causal << ": "
        << relative_error(result.output, expected);
    if (sizes.context_dim != 0 && sizes.context_dim != sizes.dim) continue;
    ASSERT_TRUE(relative_error(layer.forward(x, {.causal = causal}).output,
                               naive_layer(layer, x, x, causal)) <= 1e-13);
  }
}

TEST(MultiHeadLayer, OfOneSentenceGivesResultsWithoutTheBatch) {
  Generator generator(6);
  const MultiHeadAttention layer({.dim = 8, .heads = 4, .kv_heads = 2, .value_dim = 3}, generator);
  const Tensor x = heed::randn(generator, {1, 5, 8});
  const LayerResult batch = layer.forward(x, {.need = Need::weights | Need::lse, .top_k = 2});
  const LayerResult one =
      layer.forward(x.view().select(0, 0), {.need = Need::weights | Need::lse, .top_k = 2});
  EXPECT_EQ(batch.output.shape(), (Dims{1, 5, 8}));
  EXPECT_EQ(batch.query.shape(), (Dims{1, 4, 5, 2}));
  EXPECT_EQ(batch.value.shape(), (Dims{1, 2, 5, 3}));
  EXPECT_EQ(batch.attention.output.shape(), (Dims{1, 4, 5, 3}));
  EXPECT_EQ(one.output.shape(), (Dims{5, 8}));
  EXPECT_EQ(one.key.shape(), (Dims{2, 5, 2}));
  EXPECT_EQ(one.attention.weights.shape(), (Dims{4, 5, 5}));
  EXPECT_EQ(one.attention.lse.shape(), (Dims{4, 5}));
  EXPECT_EQ(one.attention.top_k_index.shape(), (Dims{4, 5, 2}));
  for (std::size_t i = 0; i < 40; ++i)
    EXPECT_EQ(one.output.values<float>()[i], batch.output.values<float>()[i]);
}

TEST(MultiHeadLayer, ReadsItsInputThroughStrides) {
  Generator generator(7);
  const MultiHeadAttention layer({.dim = 6, .heads = 2}, generator);
  const Tensor base = heed::randn(generator, {4, 6, 3});  // [L, D, B]
  const TensorView x = base.view().permute({2, 0, 1});
  EXPECT_TRUE(same_bits(layer.forward(x).output, layer.forward(Tensor::copy_of(x)).output));
}

TEST(MultiHeadLayer, OfAnEmptySentenceGivesNothing) {
  Generator generator(8);
  const MultiHeadAttention layer({.dim = 4, .heads = 2}, generator);
  EXPECT_EQ(layer.forward(Tensor({0, 4})).output.shape(), (Dims{0, 4}));
  // Queries without any key: the heads return 0, and the output projection returns its bias (zero).
  const Tensor lonely = layer.forward(Tensor({3, 4}), Tensor({0, 4})).output;
  for (float value : lonely.values<float>()) EXPECT_EQ(value, 0);
}

TEST(MultiHeadLayer, NamesItsParameters) {
  Generator generator(9);
  const auto names = [](std::vector<heed::nn::NamedParameter> parameters) {
    std::string all;
    for (const auto& parameter : parameters) all += parameter.name + " ";
    return all;
  };
  EXPECT_EQ(names(MultiHeadAttention({.dim = 4}, generator).parameters()),
            "query.weight query.bias key.weight key.bias value.weight value.bias out_proj.weight "
            "out_proj.bias ");
  EXPECT_EQ(
      names(
          MultiHeadAttention({.dim = 4, .bias = false, .output_projection = false}, generator).parameters()),
      "query.weight key.weight value.weight ");
  EXPECT_EQ(names(SelfAttention(4, 3, 2, generator).parameters()), "query.weight key.weight value.weight ");
}

// If kdim or vdim differs from E, PyTorch draws q_proj_weight [E, E], k_proj_weight [E, kdim] and
// v_proj_weight [E, vdim] separately, after the output projection.
TEST(MultiHeadLayer, DrawsProjectionsOneByOneForAContextOfAnotherSize) {
  Generator generator(10);
  const MultiHeadAttention layer({.dim = 6, .heads = 2, .context_dim = 4}, generator);
  Generator again(10);
  const Linear out_proj(6, 6, true, again);
  EXPECT_TRUE(same_bits(layer.out_proj->weight, out_proj.weight));
  const auto expect_drawn = [&](const Tensor& weight, const Dims& shape) {
    Tensor expected(shape);
    const double bound = std::sqrt(6.0 / static_cast<double>(shape[0] + shape[1]));
    heed::uniform_(again, expected, -bound, bound);
    EXPECT_EQ(weight.shape(), shape);
    // The bound may be rounded differently in its last bit.
    EXPECT_TRUE(relative_error(weight, expected) <= 2e-7);
  };
  expect_drawn(layer.query.weight, {6, 6});
  expect_drawn(layer.key.weight, {6, 4});
  expect_drawn(layer.value.weight, {6, 4});
}

TEST(SelfAttentionLayer, IsOneHeadDrawnInTheOrderQueryKeyValue) {
  Generator generator(11);
  const SelfAttention layer(6, 4, 5, generator);
  Generator again(11);
  const Linear query(6, 4, false, again);
  const Linear key(6, 4, false, again);
  const Linear value(6, 5, false, again);
  EXPECT_TRUE(same_bits(layer.query.weight, query.weight));
  EXPECT_TRUE(same_bits(layer.key.weight, key.weight));
  EXPECT_TRUE(same_bits(layer.value.weight, value.weight));
  const MultiHeadAttention same(query, key, value, std::nullopt, 1);
  const Tensor x = heed::randn(generator, {2, 7, 6});
  const LayerResult result = layer.forward(x, {.causal = true, .need = Need::weights});
  EXPECT_TRUE(same_bits(result.output, same.forward(x, {.causal = true}).output));
  EXPECT_EQ(result.output.shape(), (Dims{2, 7, 5}));
  EXPECT_EQ(result.attention.weights.shape(), (Dims{2, 1, 7, 7}));
  EXPECT_EQ(result.attention.weights.at<float>(1, 0, 2, 3), 0);
}

// Weights of 4 query heads of size 2 that read 2 key heads, with values of size 3. Each number encodes its
// place.
class Layouts : public testing::Test {
 protected:
  static constexpr std::int64_t kDim = 5;
  Generator generator{12};
  const Tensor query = heed::randn(generator, {4, 2, kDim});
  const Tensor key = heed::randn(generator, {2, 2, kDim});
  const Tensor value = heed::randn(generator, {2, 3, kDim});
  const Tensor query_bias = heed::randn(generator, {4, 2});
  const Tensor key_bias = heed::randn(generator, {2, 2});
  const Tensor value_bias = heed::randn(generator, {2, 3});
  const Linear out_proj{12, kDim, true, generator};

  // The named rows, one after the other: {weights, head} pairs.
  struct Block {
    const Tensor& part;
    std::int64_t head;
  };
  static Tensor stacked(const std::vector<Block>& blocks) {
    std::vector<float> all;
    std::int64_t rows = 0;
    for (const Block& block : blocks) {
      const Tensor head = Tensor::copy_of(block.part.view().select(0, block.head));
      all.insert(all.end(), head.values<float>().begin(), head.values<float>().end());
      rows += head.size(0);
    }
    if (blocks[0].part.rank() == 2) return Tensor::from(std::span<const float>(all), {rows});
    return Tensor::from(std::span<const float>(all), {rows, kDim});
  }
  static std::vector<Block> in_proj_order(const Tensor& q, const Tensor& k, const Tensor& v) {
    return {{q, 0}, {q, 1}, {q, 2}, {q, 3}, {k, 0}, {k, 1}, {v, 0}, {v, 1}};
  }
  static std::vector<Block> fused_order(const Tensor& q, const Tensor& k, const Tensor& v) {
    return {{q, 0}, {q, 1}, {k, 0}, {v, 0}, {q, 2}, {q, 3}, {k, 1}, {v, 1}};
  }
  void expect_these_weights(MultiHeadAttention layer, bool biases) const {
    EXPECT_EQ(layer.heads(), 4);
    EXPECT_EQ(layer.kv_heads(), 2);
    EXPECT_TRUE(same_bits(layer.query.weight, Tensor(query).reshaped({8, kDim})));
    EXPECT_TRUE(same_bits(layer.key.weight, Tensor(key).reshaped({4, kDim})));
    EXPECT_TRUE(same_bits(layer.value.weight, Tensor(value).reshaped({6, kDim})));
    ASSERT_EQ(layer.query.bias.has_value(), biases);
    if (!biases) return;
    EXPECT_TRUE(same_bits(*layer.query.bias, Tensor(query_bias).reshaped({8})));
    EXPECT_TRUE(same_bits(*layer.key.bias, Tensor(key_bias).reshaped({4})));
    EXPECT_TRUE(same_bits(*layer.value.bias, Tensor(value_bias).reshaped({6})));
    EXPECT_TRUE(same_bits(layer.out_proj->weight, out_proj.weight));
  }
};

TEST_F(Layouts, AHead) {
  expect_these_weights(MultiHeadAttention::from_heads(query, key, value), false);
  expect_these_weights(
      MultiHeadAttention::from_heads(query, key, value, {query_bias, key_bias, value_bias}, out_proj), true);
}

TEST_F(Layouts, InProj) {
  const Tensor weight = stacked(in_proj_order(query, key, value));
  const Tensor bias = stacked(in_proj_order(query_bias, key_bias, value_bias));
  expect_these_weights(MultiHeadAttention::from_in_proj(weight, bias, out_proj, 4, 2, 3), true);
  expect_these_weights(MultiHeadAttention::from_in_proj(weight, std::nullopt, std::nullopt, 4, 2, 3), false);
}

TEST_F(Layouts, FusedQkv) {
  const Tensor weight = stacked(fused_order(query, key, value));
  const Tensor bias = stacked(fused_order(query_bias, key_bias, value_bias));
  expect_these_weights(MultiHeadAttention::from_fused_qkv(weight, bias, out_proj, 4, 2, 3), true);
  // Read through strides: every second row of a larger tensor.
  Tensor wide({36, kDim});
  copy(weight, heed::MutableTensorView(wide.values<float>().data(), {18, kDim}, {2 * kDim, 1}));
  const TensorView strided(wide.values<float>().data(), {18, kDim}, {2 * kDim, 1});
  expect_these_weights(MultiHeadAttention::from_fused_qkv(strided, bias, out_proj, 4, 2, 3), true);
}

TEST_F(Layouts, AWrongShapeIsAnErrorThatNamesIt) {
  const auto in_proj = [](const Dims& shape, std::int64_t heads, std::int64_t kv_heads,
                          std::int64_t value_dim) {
    return message_of([&] {
      (void)MultiHeadAttention::from_in_proj(Tensor(shape), std::nullopt, std::nullopt, heads, kv_heads,
                                             value_dim);
    });
  };
  EXPECT_EQ(in_proj({25, 8}, 4, 0, 0),
            "in_proj_weight has shape [25, 8]; 4 query, 4 key and 4 value heads of one size do not make that "
            "many rows");
  EXPECT_EQ(in_proj({20, 8}, 4, 2, 3),
            "in_proj_weight has shape [20, 8]; 4 query, 2 key and 2 value heads, the last of size 3, do not "
            "make that many rows");
  EXPECT_EQ(in_proj({24}, 4, 0, 0),
            "in_proj_weight has shape [24]; [H d_k + Hkv d_k + Hkv d_v, D] is expected");
  EXPECT_EQ(in_proj({24, 8}, 0, 0, 0), "heads is 0; at least 1 is expected");
  EXPECT_EQ(in_proj({24, 8}, 4, 3, 0), "kv_heads is 3; a divisor of the 4 heads is expected");
  EXPECT_EQ(in_proj({24, 8}, 4, -4, 0), "kv_heads is -4; at least 1 is expected");
  EXPECT_EQ(message_of([] {
              (void)MultiHeadAttention::from_fused_qkv(Tensor({24, 8}), Tensor({8}), std::nullopt, 4);
            }),
            "qkv_bias has shape [8]; [24] is expected for qkv_weight of shape [24, 8]");
  EXPECT_EQ(
      message_of([] {
        (void)MultiHeadAttention::from_fused_qkv(Tensor({24, 8}, DType::bf16), std::nullopt, std::nullopt, 4);
      }),
      "qkv_weight is bf16; f32 or f64 is expected");
  EXPECT_EQ(message_of([&] { (void)MultiHeadAttention::from_heads(query, value, value); }),
            "key has shape [2, 3, 5]; [2, 2, C] is expected for a query of shape [4, 2, 5] and a value of "
            "shape [2, 3, 5]");
  EXPECT_EQ(message_of([&] { (void)MultiHeadAttention::from_heads(query, key, query_bias); }),
            "value has shape [4, 2]; [heads, d, D] is expected");
  EXPECT_EQ(message_of([&] { (void)MultiHeadAttention::from_heads(query, key, value, {.key = value_bias}); }),
            "key bias has shape [2, 3]; [2, 2] is expected for a weight of shape [2, 2, 5]");
}

TEST(LayerErrors, NameTheSizeThatIsWrong) {
  const auto message = [](const MultiHeadOptions& sizes) {
    return message_of([&] {
      Generator generator;
      MultiHeadAttention(sizes, generator);
    });
  };
  EXPECT_EQ(message({}), "dim is 0; at least 1 is expected");
  EXPECT_EQ(message({.dim = 8, .heads = 0}), "heads is 0; at least 1 is expected");
  EXPECT_EQ(message({.dim = 8, .heads = 3}),
            "dim is 8; a multiple of the 3 heads is expected if head_dim is not given");
  EXPECT_EQ(message({.dim = 8, .heads = 4, .kv_heads = 3}),
            "kv_heads is 3; a divisor of the 4 heads is expected");
  EXPECT_EQ(message({.dim = 8, .head_dim = -1}), "head_dim is -1; at least 1 is expected");
  EXPECT_EQ(message({.dim = 8, .value_dim = -1}), "value_dim is -1; at least 1 is expected");
  EXPECT_EQ(message({.dim = 8, .context_dim = -1}), "context_dim is -1; at least 1 is expected");
  EXPECT_EQ(message({.dim = 8, .heads = 2, .head_dim = std::int64_t{1} << 60}),
            "head_dim is 1152921504606846976; at most 1073741823 is expected for 2 heads");
  Generator generator;
  EXPECT_EQ(message_of([&] { SelfAttention(0, 1, 1, generator); }), "dim is 0; at least 1 is expected");
  EXPECT_EQ(message_of([&] { SelfAttention(1, 0, 1, generator); }), "key_dim is 0; at least 1 is expected");
  EXPECT_EQ(message_of([&] { SelfAttention(1, 1, 0, generator); }), "value_dim is 0; at least 1 is expected");
}

TEST(LayerErrors, NameThePartThatDoesNotFit) {
  EXPECT_EQ(
      message_of([] {
        SelfAttention(Tensor({4, 6}), Tensor({3, 6}), Tensor({5, 6}));
      }),
      "key.weight has shape [3, 6]; 4 rows are expected, 4 for each key head, as the query's heads have");
  EXPECT_EQ(message_of([] {
              SelfAttention(Tensor({4, 6}), Tensor({4, 6}), Tensor({5, 7}));
            }),
            "value.weight has shape [5, 7]; 6 columns are expected, as key.weight has");
  const auto message = [](Linear query, std::optional<Linear> out_proj, std::int64_t heads) {
    return message_of([&] {
      const Linear four(Tensor({4, 6}));
      MultiHeadAttention(query, four, four, out_proj, heads);
    });
  };
  const Linear four(Tensor({4, 6}));
  EXPECT_EQ(message(four, std::nullopt, 3),
            "query.weight has shape [4, 6]; a multiple of 3 rows is expected for 3 heads");
  EXPECT_EQ(message(four, std::nullopt, 0), "heads is 0; at least 1 is expected");
  EXPECT_EQ(message_of([&] { MultiHeadAttention(four, four, four, std::nullopt, 4, 3); }),
            "kv_heads is 3; a divisor of the 4 heads is expected");
  EXPECT_EQ(message(four, Linear(Tensor({6, 5})), 2),
            "out_proj.weight has shape [6, 5]; 4 columns are expected: 2 heads of the value's size");
  EXPECT_EQ(message(Linear(Tensor({4, 6}, DType::f64)), std::nullopt, 2),
            "key.weight is f32; f64, the dtype of query.weight, is expected");
}

TEST(LayerErrors, NameTheInputThatDoesNotFit) {
  Generator generator;
  MultiHeadAttention layer({.dim = 8, .heads = 2, .context_dim = 6}, generator);
  const Tensor x({2, 3, 8});
  EXPECT_EQ(message_of([&] { (void)layer.forward(x); }),
            "context is not given; this layer makes its keys and values from [L, 6]");
  EXPECT_EQ(message_of([&] {
              (void)layer.forward(Tensor({3, 7}), Tensor({3, 6}));
            }),
            "x has shape [3, 7]; [L, 8] or [B, L, 8] is expected");
  EXPECT_EQ(message_of([&] {
              (void)layer.forward(Tensor({8}), Tensor({3, 6}));
            }),
            "x has shape [8]; [L, 8] or [B, L, 8] is expected");
  EXPECT_EQ(message_of([&] {
              (void)layer.forward(x, Tensor({2, 3, 8}));
            }),
            "context has shape [2, 3, 8]; [L, 6] or [B, L, 6] is expected");
  EXPECT_EQ(message_of([&] {
              (void)layer.forward(x, Tensor({1, 3, 6}));
            }),
            "context has shape [1, 3, 6]; the batch of x, [2, 3, 8], is expected");
  EXPECT_EQ(message_of([&] {
              (void)layer.forward(Tensor({3, 8}, DType::f64), Tensor({3, 6}));
            }),
            "x is f64; f32, the dtype of query.weight, is expected");
  EXPECT_EQ(message_of([&] {
              (void)layer.forward(x, Tensor({2, 3, 6}), {.output_dtype = DType::bf16});
            }),
            "output_dtype is bf16; f32, the dtype of the layer, is expected");
  // The parts are public, so later assignments are checked too.
  layer.key = Linear(Tensor({3, 6}));
  EXPECT_EQ(message_of([&] {
              (void)layer.forward(x, Tensor({2, 3, 6}));
            }),
            "key.weight has shape [3, 6]; a multiple of 2 rows is expected for 2 heads");
}

}  // namespace
