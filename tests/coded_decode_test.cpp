// Decoding from caches of int8 and int4, where a target may multiply codes as bytes. The expected results are
// computed in f64 from the rows that the cache returns.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attention/isa/features.hpp"
#include "attention_support.hpp"
#include "each_target.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/kv_cache.hpp"
#include "path_watch.hpp"
#include "support.hpp"

namespace {

using heed::CacheFormat;
using heed::DType;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::Tensor;

struct Shape {
  std::int64_t head_dim, value_dim, group, rows, keys;
};

struct Decode {
  Tensor query;
  KvCache cache;
};

Decode decode_of(CacheFormat format, const Shape& shape, const std::function<void(Tensor&, Tensor&)>& change,
                 std::uint64_t seed) {
  KvCacheOptions options;
  options.kv_heads = 1;
  options.head_dim = shape.head_dim;
  options.value_dim = shape.value_dim;
  options.group = shape.group;
  options.format = format;
  options.capacity = shape.keys;
  Decode decode{heed::test::normal_tensor({1, shape.rows, 1, shape.head_dim}, seed, DType::f32),
                KvCache(options)};
  Tensor key = heed::test::normal_tensor({1, 1, shape.keys, shape.head_dim}, seed + 1, DType::f32);
  Tensor value = heed::test::normal_tensor({1, 1, shape.keys, shape.value_dim}, seed + 2, DType::f32);
  change(key, value);
  decode.cache.append(key, value);
  return decode;
}

// softmax(q K^T / sqrt(D)) V of one row, and beside it the sum of |weight * value|, which bounds the
// rounding.
struct ExactRow {
  std::vector<double> output, magnitude;
  double score_magnitude = 0;  // the largest sum of |q_c| times the largest |k_c| of the keys
};

ExactRow exact_row(const Decode& decode, std::int64_t row) {
  const Tensor keys = decode.cache.keys(0), values = decode.cache.values(0);
  const std::int64_t count = keys.size(1), depth = keys.size(2), width = values.size(2);
  const std::int64_t head = row * keys.size(0) / decode.query.size(1);
  const float* query = decode.query.values<float>().data() + row * depth;
  const float* key = keys.values<float>().data() + head * count * depth;
  const float* value = values.values<float>().data() + head * count * width;
  ExactRow exact{std::vector<double>(static_cast<std::size_t>(width)),
                 std::vector<double>(static_cast<std::size_t>(width))};
  std::vector<double> weights, largest(static_cast<std::size_t>(depth));
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t j = 0; j < count; ++j) {
    double score = 0;
    for (std::int64_t c = 0; c < depth; ++c) {
      const double k = key[j * depth + c];
      score += static_cast<double>(query[c]) * k;
      double& channel = largest[static_cast<std::size_t>(c)];
      channel = std::max(channel, std::abs(k));
    }
    weights.push_back(score / std::sqrt(static_cast<double>(depth)));
    most = std::max(most, weights.back());
  }
  for (double& weight : weights) sum += weight = std::exp(weight - most);
  for (std::int64_t j = 0; j < count; ++j)
    for (std::int64_t c = 0; c < width; ++c) {
      const double part = weights[static_cast<std::size_t>(j)] / sum * value[j * width + c];
      exact.output[static_cast<std::size_t>(c)] += part;
      exact.magnitude[static_cast<std::size_t>(c)] += std::abs(part);
    }
  for (std::int64_t c = 0; c < depth; ++c)
    exact.score_magnitude +=
        std::abs(query[c]) * largest[static_cast<std::size_t>(c)] / std::sqrt(static_cast<double>(depth));
  return exact;
}

// A score's rounding is at most `depth` roundings of its magnitude; digits round at most as much, to 2^-23 of
// the largest channel of a group of keys. The factor 4 covers digits of weights, exponentials and the sums.
void expect_near(const Decode& decode, const Tensor& output, const std::string& what) {
  for (std::int64_t row = 0; row < decode.query.size(1); ++row) {
    const ExactRow exact = exact_row(decode, row);
    const double depth = static_cast<double>(decode.query.size(3));
    const double error = 4 * 0x1p-23 * (8 + depth * exact.score_magnitude);
    double all = 0;
    for (const double magnitude : exact.magnitude) all = std::max(all, magnitude);
    for (std::size_t c = 0; c < exact.output.size(); ++c)
      ASSERT_NEAR(output.at<float>(0, row, 0, static_cast<std::int64_t>(c)), exact.output[c], error * all)
          << what << " row " << row << " channel " << c;
  }
}

bool multiplies_bytes(const std::string& target) {
  return (target.starts_with("avx512") || target == "amx" || target == "amx_f32") &&
         heed::detail::cpu::processor_has("avx512_vnni") && heed::detail::cpu::processor_has("avx512_vbmi");
}

void keep(Tensor& /*key*/, Tensor& /*value*/) {}

// Channels of very different sizes and means, and rows of zeros.
void stretch(Tensor& key, Tensor& value) {
  for (std::int64_t j = 0; j < key.size(2); ++j) {
    for (std::int64_t c = 0; c < key.size(3); ++c)
      if (float& x = key.at<float>(0, 0, j, c); c % 7 == 3) x = c % 2 == 0 ? 30 * x : x / 100 + 2;
    for (std::int64_t c = 0; c < value.size(3); ++c)
      if (float& x = value.at<float>(0, 0, j, c); j % 11 == 5) x = j % 2 == 0 ? 0 : 1000 + x;
  }
}

// Channels of equal numbers. Zeros have the smallest scale and codes 0, and so have others in int4.
void level(Tensor& key, Tensor& value) {
  for (Tensor* tensor : {&key, &value})
    for (std::int64_t j = 0; j < tensor->size(2); ++j)
      for (std::int64_t c = 0; c < tensor->size(3); ++c)
        if (c % 64 >= 16) tensor->at<float>(0, 0, j, c) = c % 64 < 32 ? 2.5f : 0;
}

const std::array kShapes{
    Shape{64, 64, 32, 4, 700},    Shape{128, 128, 32, 4, 500}, Shape{16, 32, 32, 1, 97},
    Shape{80, 96, 32, 3, 200},    Shape{192, 80, 64, 12, 300}, Shape{96, 256, 32, 7, 130},
    Shape{48, 64, 128, 2, 900},   Shape{64, 64, 16, 5, 200},   Shape{32, 48, 8, 6, 100},
    Shape{64, 64, 32, 4, 5},      Shape{64, 160, 32, 9, 64},   Shape{64, 96, 64, 2, 300},
    Shape{64, 128, 128, 12, 200}, Shape{288, 32, 32, 10, 70}};

TEST(CodedDecode, AgreesWithTheRowsOfTheCache) {
  const heed::test::EachTarget targets;
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4})
    for (const Shape& shape : kShapes)
      for (const auto& change : {keep, stretch, level}) {
        const Decode decode = decode_of(format, shape, change, 7);
        for (const std::string& target : targets.available()) {
          heed::set_target(target);
          heed::test::PathWatch paths;
          expect_near(decode, heed::attention(decode.query, decode.cache, {}).output,
                      target + " " + std::string(heed::name_of(format)) + " D " +
                          std::to_string(shape.head_dim) + " Dv " + std::to_string(shape.value_dim) +
                          " rows " + std::to_string(shape.rows));
          EXPECT_EQ(paths.taken_now(heed::detail::cpu::Path::decode_digits) > 0,
                    multiplies_bytes(target) && shape.head_dim % 32 == 0 && shape.value_dim % 32 == 0 &&
                        shape.group % 32 == 0)
              << target;
          if (HasFatalFailure()) return;
        }
      }
}

// A row among others, some of them infinite, too small for digits, or 0, has the bits that it has alone.
TEST(CodedDecode, RowsDoNotDependOnTheirNeighbours) {
  const heed::test::EachTarget targets;
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4}) {
    Decode decode = decode_of(format, {64, 64, 32, 8, 333}, keep, 21);
    for (std::int64_t c = 0; c < 64; ++c) {
      decode.query.at<float>(0, 1, 0, c) = 0;
      decode.query.at<float>(0, 3, 0, c) *= 0x1p-120f;
      decode.query.at<float>(0, 6, 0, c) *= 0x1p100f;
    }
    decode.query.at<float>(0, 2, 0, 5) = std::numeric_limits<float>::infinity();
    decode.query.at<float>(0, 5, 0, 9) = std::numeric_limits<float>::quiet_NaN();
    for (const std::string& target : targets.available()) {
      heed::set_target(target);
      const Tensor together = heed::attention(decode.query, decode.cache, {}).output;
      for (std::int64_t row = 0; row < 8; ++row) {
        const Tensor alone = heed::attention(decode.query.view().narrow(1, row, 1), decode.cache, {}).output;
        ASSERT_TRUE(heed::test::same_bits(together.view().narrow(1, row, 1), alone.view()))
            << target << " row " << row;
      }
      for (const std::int64_t row : {1, 3}) {  // means of all values
        const ExactRow exact = exact_row(decode, row);
        for (std::int64_t c = 0; c < 64; ++c)
          ASSERT_NEAR(together.at<float>(0, row, 0, c), exact.output[static_cast<std::size_t>(c)], 1e-6);
      }
      EXPECT_TRUE(std::isnan(together.at<float>(0, 5, 0, 0)));
    }
  }
}

// Rows lie in pages and rings as well, and some are evicted, so that groups have few keys.
TEST(CodedDecode, ReadsRowsWhereverTheyLie) {
  const heed::test::EachTarget targets;
  const Tensor query = heed::test::normal_tensor({1, 6, 1, 64}, 71, DType::f32);
  const Tensor key = heed::test::normal_tensor({1, 2, 417, 64}, 72, DType::f32);
  const Tensor value = heed::test::normal_tensor({1, 2, 417, 96}, 73, DType::f32);
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4})
    for (const bool evicts : {false, true}) {
      std::vector<Decode> decodes;
      for (const heed::CacheLayout layout :
           {heed::CacheLayout::contiguous, heed::CacheLayout::paged, heed::CacheLayout::ring})
        for (const heed::PageOrder order : {heed::PageOrder::hnd, heed::PageOrder::nhd}) {
          const bool is_ring = layout == heed::CacheLayout::ring;
          KvCacheOptions options;
          options.kv_heads = 2;
          options.head_dim = 64;
          options.value_dim = 96;
          options.format = format;
          options.layout = layout;
          options.order = order;
          (is_ring ? options.window : options.capacity) = is_ring ? 430 : 480;
          KvCache cache(options);
          cache.append(key, value);
          std::vector<std::int64_t> positions;
          for (std::int64_t p = 3; p < 350; p += 1 + p % 37) positions.push_back(p);
          if (evicts) cache.evict(0, positions);
          decodes.push_back({query, std::move(cache)});
        }
      for (const std::string& target : targets.available()) {
        heed::set_target(target);
        const Tensor first = heed::attention(query, decodes[0].cache, {}).output;
        expect_near(decodes[0], first, target);
        for (const Decode& decode : decodes)
          ASSERT_TRUE(
              heed::test::same_bits(heed::attention(query, decode.cache, {}).output.view(), first.view()))
              << target << " layout " << static_cast<int>(decode.cache.layout()) << " evicts " << evicts;
        if (HasFatalFailure()) return;
      }
    }
}

// The last rows of a cache are floats. A row that does not see them has the bits that it has without them.
TEST(CodedDecode, RowsDoNotDependOnLaterKeys) {
  const heed::test::EachTarget targets;
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4, CacheFormat::fp8})
    for (const Shape& shape : {Shape{64, 64, 32, 8, 291}, Shape{48, 40, 8, 8, 300}}) {
      const Decode decode = decode_of(format, shape, keep, 57);
      const Tensor query = heed::test::normal_tensor({1, 1, shape.rows, shape.head_dim}, 60, DType::f32);
      for (const std::string& target : targets.available()) {
        heed::set_target(target);
        heed::AttentionOptions options{.causal = true, .query_offset = shape.keys - shape.rows};
        const Tensor together = heed::attention(query, decode.cache, options).output;
        for (std::int64_t row = 0; row < shape.rows; ++row) {
          options.query_offset = shape.keys - shape.rows + row;
          const Tensor alone = heed::attention(query.view().narrow(2, row, 1), decode.cache, options).output;
          EXPECT_TRUE(heed::test::same_bits(together.view().narrow(2, row, 1), alone.view()))
              << target << " " << heed::name_of(format) << " group " << shape.group << " row " << row;
        }
      }
    }
}

// Tiny queries with a scale that makes up for it.
TEST(CodedDecode, HoldsQueriesOfAnySize) {
  const heed::test::EachTarget targets;
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4}) {
    const Decode decode = decode_of(format, {64, 64, 32, 3, 300}, keep, 40);
    Tensor tiny = Tensor::copy_of(decode.query);
    for (float& x : tiny.values<float>()) x *= 0x1p-100f;
    for (const std::string& target : targets.available()) {
      heed::set_target(target);
      expect_near(decode, heed::attention(tiny, decode.cache, {.scale = 0x1p97}).output, target);
    }
  }
}

// Values of any size: tiny and huge scales, and weights of which most are 0.
TEST(CodedDecode, HoldsValuesOfAnySize) {
  const heed::test::EachTarget targets;
  for (const CacheFormat format : {CacheFormat::int8, CacheFormat::int4})
    for (const float size : {0x1p-110f, 0x1p-60f, 0x1p60f, 0x1p119f}) {
      Decode decode = decode_of(
          format, {64, 64, 32, 4, 300},
          [&](Tensor& /*key*/, Tensor& value) {
            for (float& x : value.values<float>()) x *= size;
          },
          33);
      for (float& x : decode.query.values<float>()) x *= 20;  // sharp rows
      for (const std::string& target : targets.available()) {
        heed::set_target(target);
        expect_near(decode, heed::attention(decode.query, decode.cache, {}).output, target);
        if (HasFatalFailure()) return;
      }
    }
}

}  // namespace
