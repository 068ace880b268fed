// Random calls over random caches on every target. All results are compared with the definitions, using the
// rows of the cache and their positions. The bits must be the same for any layout, pages and history of the
// cache, and the same as from attention() over plain tensors.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "attention_support.hpp"
#include "cache_script.hpp"
#include "compare_results.hpp"
#include "describe_call.hpp"
#include "each_target.hpp"
#include "expect_tight.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::CacheFormat;
using heed::CacheLayout;
using heed::DType;
using heed::Kernel;
using heed::KvCacheOptions;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::CacheHistory;
using heed::test::CacheLife;
using heed::test::Draw;
using heed::test::RandomCall;

constexpr std::uint64_t kSeed = 20261124;

bool has_codes(CacheFormat format) {
  return format == CacheFormat::int8 || format == CacheFormat::int4 || format == CacheFormat::fp8;
}

DType dtype_of(CacheFormat format) {
  return format == CacheFormat::bf16 ? DType::bf16 : format == CacheFormat::f16 ? DType::f16 : DType::f32;
}

// A call over a cache. Batch entry b attends rows[b] rows.
struct CacheCall {
  RandomCall call;
  heed::test::CacheRows rows;
  KvCacheOptions options;  // without a layout
  bool gaps = false;
  bool is_ring = false;
  std::uint64_t histories = 0;  // random seed of the histories
};

// Makes the values of a third of the calls the first channels of the keys, stored once.
void draw_values_in_keys(CacheCall& made, std::uint64_t index) {
  Draw draw(kSeed ^ 0x1a7e, index);
  if (!draw.chance(0.33)) return;
  KvCacheOptions& c = made.options;
  c.values_in_keys = true;
  c.rotate = false;
  c.value_dim = draw.chance(0.3) ? c.head_dim : draw.between(1, c.head_dim);
  if (c.format == CacheFormat::int4) c.value_dim += c.value_dim % 2;
  made.call.value = made.call.key.narrow(3, 0, c.value_dim);
  made.rows.value = made.call.value;
}

CacheCall draw_call(std::uint64_t index, heed::test::CallLimits limits) {
  limits.poison = false;
  limits.dtypes = {DType::f32, DType::f32, DType::bf16, DType::f16};
  CacheCall made;
  for (std::uint64_t tries = 0;; ++tries) {
    made.call = heed::test::random_call(kSeed + tries, index, limits);
    if (made.call.query.rank() == 4 && made.call.query.size(0) > 0) break;
  }
  AttentionOptions& o = made.call.options;
  o.kv_lengths.reset();
  o.query_segments.reset();
  o.key_segments.reset();
  if (made.call.query.size(0) > 1) o.dropout = {};  // dropout depends on the batch entry
  Draw draw(kSeed ^ 0xcac4e, index);
  const std::int64_t keys = made.call.key.size(2);
  bool ragged = false;
  for (std::int64_t b = 0; b < made.call.query.size(0); ++b) {
    const bool all = b == 0 || draw.chance(0.5);
    made.rows.rows.push_back(all ? keys : draw.between(0, keys));
    ragged = ragged || made.rows.rows.back() != keys;
  }
  if (ragged) o.map = {};  // its columns are those of the longest sequence
  made.rows.key = made.call.key;
  made.rows.value = made.call.value;
  KvCacheOptions& c = made.options;
  c.sequences = made.call.query.size(0);
  c.kv_heads = made.call.key.size(1);
  c.head_dim = made.call.key.size(3);
  c.value_dim = made.call.value.size(3);
  c.format = draw.pick<CacheFormat>({CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16, CacheFormat::int8,
                                     CacheFormat::int4, CacheFormat::fp8});
  if (draw.chance(0.5) && !has_codes(c.format))  // the format of the queries
    c.format = made.call.query.dtype() == DType::f32    ? CacheFormat::f32
               : made.call.query.dtype() == DType::bf16 ? CacheFormat::bf16
                                                        : CacheFormat::f16;
  if (c.format == CacheFormat::int4 && (c.head_dim % 2 != 0 || c.value_dim % 2 != 0))
    c.format = CacheFormat::int8;
  c.group = draw.pick<std::int64_t>({8, 16, 32});
  c.rotate = has_codes(c.format) && draw.chance(0.4);
  made.gaps = draw.chance(0.5) && keys > 0;
  made.is_ring = draw.chance(0.25) && keys > 0 && !ragged;
  if (made.is_ring) {
    c.sinks = draw.between(0, keys - 1);
    c.window = keys - c.sinks;
  }
  draw_values_in_keys(made, index);
  return made;
}

// Chooses one of several layouts that must give the same bits.
KvCacheOptions with_layout(KvCacheOptions options, const CacheCall& made, Draw& draw, std::int64_t room) {
  if (made.is_ring) {
    options.layout = CacheLayout::ring;
    return options;
  }
  options.sinks = options.window = 0;
  if (draw.chance(0.3)) {
    options.layout = CacheLayout::contiguous;
    options.capacity = room + 40;
    return options;
  }
  options.layout = CacheLayout::paged;
  options.page_size = draw.pick<std::int64_t>({1, 2, 3, 7, 16, 16, 32, 64, 100, 256});
  options.order = draw.chance(0.5) ? heed::PageOrder::hnd : heed::PageOrder::nhd;
  options.capacity = 40 * (room + 40 + options.page_size);
  return options;
}

CacheLife cache_of(const CacheCall& made, std::uint64_t index, std::uint64_t variant) {
  Draw histories(kSeed ^ 0x815, index), noise(kSeed + variant, index);
  std::vector<CacheHistory> all;
  std::int64_t room = 0;
  KvCacheOptions options = made.options;
  if (made.is_ring) options.layout = CacheLayout::ring;
  for (const std::int64_t rows : made.rows.rows) {
    all.push_back(heed::test::draw_history(histories, options, rows, made.gaps));
    room = std::max(room, all.back().length);
  }
  CacheLife life(with_layout(made.options, made, noise, room), made.rows, std::move(all), noise);
  life.live();
  return life;
}

// The part of an option's tensor for batch entry b and its first `keys` keys.
std::optional<TensorView> part_of(const std::optional<TensorView>& tensor, std::int64_t b,
                                  std::int64_t keys) {
  if (!tensor) return tensor;
  TensorView view = *tensor;
  if (view.rank() == 4 && view.size(0) > 1) view = view.narrow(0, b, 1);
  if (view.size(-1) > keys && view.size(-1) > 1) view = view.narrow(view.rank() - 1, 0, keys);
  return view;
}

AttentionOptions options_of(const CacheCall& made, std::int64_t b, std::int64_t length) {
  AttentionOptions o = made.call.options;
  const std::int64_t keys = made.rows.rows[static_cast<std::size_t>(b)];
  if (!o.query_offset) o.query_offset = length - made.call.query.size(2);
  o.mask = part_of(o.mask, b, keys);
  o.bias = part_of(o.bias, b, keys);
  if (o.alibi_slopes && o.alibi_slopes->rank() == 2 && o.alibi_slopes->size(0) > 1)
    o.alibi_slopes = o.alibi_slopes->narrow(0, b, 1);
  return o;
}

// The results of batch entry b alone, with top keys as row numbers instead of positions.
AttentionResult result_of(const AttentionResult& all, std::int64_t b,
                          const std::vector<std::int64_t>& positions) {
  AttentionResult one;
  one.kernel = all.kernel;
  one.isa = all.isa;
  for (std::size_t i = 0; i < heed::kResultCount; ++i) {
    const Tensor& from = heed::result<Tensor>(all, i);
    if (from.rank() != 4 && from.rank() != 3) continue;
    TensorView view = from.view().narrow(0, b, 1);
    const heed::ResultShape shape = heed::result_entry(i).shape;
    if (shape == heed::ResultShape::pair || shape == heed::ResultShape::key ||
        shape == heed::ResultShape::key_last)
      view = view.narrow(view.rank() - 1, 0, static_cast<std::int64_t>(positions.size()));
    heed::result<Tensor>(one, i) = Tensor::copy_of(view);
  }
  if (one.top_k_index.dtype() == DType::i64)
    for (std::int64_t& key : one.top_k_index.values<std::int64_t>())
      if (key >= 0) key = std::lower_bound(positions.begin(), positions.end(), key) - positions.begin();
  return one;
}

struct Outcome {
  heed::test::RowTally tally;
  std::int64_t as_plain = 0, as_other = 0, in_keys = 0;
};

// The expected results of batch entry b.
struct Expected {
  AttentionOptions options;
  heed::test::Naive naive;
  std::vector<std::int64_t> positions;
  Tensor key, value;
};

Expected expected_of(const CacheCall& made, const CacheLife& life, std::int64_t b) {
  const std::int64_t sequence = life.sequences[static_cast<std::size_t>(b)];
  const std::int64_t keys = made.rows.rows[static_cast<std::size_t>(b)];
  Expected expected;
  expected.positions = life.cache.positions(sequence);
  expected.options = options_of(made, b, life.cache.length(sequence));
  if (has_codes(made.options.format)) {  // takes the codes; other tests compare them with the rows
    expected.key = std::move(life.cache.keys(sequence))
                       .reshaped({1, made.options.kv_heads, keys, made.options.head_dim});
    expected.value = std::move(life.cache.values(sequence))
                         .reshaped({1, made.options.kv_heads, keys, made.options.value_dim});
    if (life.cache.values_in_keys()) {
      EXPECT_TRUE(
          heed::test::same_bits(expected.value, expected.key.view().narrow(3, 0, made.options.value_dim)));
    }
  } else {
    const DType dtype = dtype_of(made.options.format);
    expected.key = Tensor::copy_of(made.call.key.narrow(0, b, 1).narrow(2, 0, keys), dtype);
    expected.value = Tensor::copy_of(made.call.value.narrow(0, b, 1).narrow(2, 0, keys), dtype);
  }
  Tensor query = Tensor::copy_of(made.call.query.narrow(0, b, 1));
  if (made.options.rotate) query = heed::hadamard(query);
  expected.naive =
      heed::test::naive_attention(query, expected.key, expected.value, expected.options, expected.positions);
  return expected;
}

std::string description_of(const CacheCall& made, const CacheLife& life) {
  return std::string(heed::name_of(made.options.format)) + " " +
         std::string(heed::name_of(life.cache.layout())) + " pages of " +
         std::to_string(life.cache.page_size()) + (made.gaps ? " with gaps " : " ") +
         (life.cache.values_in_keys() ? "values in keys " : "") + describe(made.call);
}

void compare_with_definitions(const CacheCall& made, const CacheLife& life,
                              const std::vector<Expected>& expected, const AttentionResult& result,
                              const std::string& target, Outcome& outcome) {
  // If queries and rows have different dtypes, the call is computed in f32.
  const bool same =
      dtype_of(made.options.format) == made.call.query.dtype() && !has_codes(made.options.format);
  for (std::size_t b = 0; b < expected.size(); ++b) {
    const auto& [options, naive, positions, key, value] = expected[b];
    const AttentionResult one = result_of(result, static_cast<std::int64_t>(b), positions);
    const std::string failure = heed::test::compare_results(
        one, options, naive,
        heed::test::fused_rounding(same ? made.call.query.dtype() : DType::f32, options, target),
        outcome.tally);
    ASSERT_EQ(failure, "") << "sequence " << b << " of " << description_of(made, life);
  }
}

// Compares with plain tensors, if rows have no gaps and count from 0.
void compare_with_tensors(const CacheCall& made, const CacheLife& life, const AttentionResult& result,
                          Outcome& outcome) {
  if (made.gaps || made.is_ring || dtype_of(made.options.format) != made.call.query.dtype() ||
      has_codes(made.options.format))
    return;
  const Tensor lengths = Tensor::from(std::span<const std::int64_t>(made.rows.rows),
                                      {static_cast<std::int64_t>(made.rows.rows.size())});
  AttentionOptions options = made.call.options;
  if (!options.query_offset) options.align = heed::Align::bottom_right;
  options.kv_lengths = lengths.view();
  // Row-major like the rows of the cache, because the kernel for few rows depends on the layout.
  const Tensor key = Tensor::copy_of(made.call.key), value = Tensor::copy_of(made.call.value);
  AttentionResult plain = heed::attention(made.call.query, key, value, options);
  AttentionResult cached = result;
  if (options.scores_stage != heed::ScoresStage::bias)
    plain.scores = cached.scores = Tensor();  // they differ beyond the lengths
  ++outcome.as_plain;
  outcome.in_keys += life.cache.values_in_keys();
  ASSERT_TRUE(heed::test::same_bits(plain, cached)) << description_of(made, life);
}

struct Kind {
  heed::test::CallLimits limits;
  std::uint64_t count;
};

void compare(const CacheCall& made, const std::vector<CacheLife>& lives,
             const std::vector<Expected>& expected, const std::string& target, Outcome& outcome) {
  heed::set_target(target);
  const auto attend = [&](const CacheLife& life) {
    return heed::attention(made.call.query, life.cache, made.call.options, {.sequences = life.sequences});
  };
  const AttentionResult result = attend(lives[0]);
  ASSERT_EQ(result.kernel, Kernel::fused);
  compare_with_definitions(made, lives[0], expected, result, target, outcome);
  if (testing::Test::HasFatalFailure()) return;
  compare_with_tensors(made, lives[0], result, outcome);
  for (std::size_t other = 1; other < lives.size(); ++other) {
    ++outcome.as_other;
    ASSERT_TRUE(heed::test::same_bits(result, attend(lives[other])))
        << description_of(made, lives[0]) << "\nand\n"
        << description_of(made, lives[other]);
  }
}

TEST(KvCacheCalls, AgreeWithTheDefinitionsWithTensorsAndWithOtherLayoutsBitForBit) {
  const heed::test::EachTarget targets;
  std::map<std::string, Outcome> outcomes;
  for (const Kind& kind : {Kind{heed::test::small_calls(), 2600}, Kind{heed::test::tile_calls(), 300},
                           Kind{heed::test::decoding_calls(), 250}, Kind{heed::test::span_calls(), 40}})
    for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
      CacheCall made = draw_call(index, kind.limits);
      made.call.options.kernel = Kernel::fused;
      std::vector<CacheLife> lives;
      for (std::uint64_t variant = 0; variant < 2; ++variant) lives.push_back(cache_of(made, index, variant));
      std::vector<Expected> expected;
      for (std::int64_t b = 0; b < made.call.query.size(0); ++b)
        expected.push_back(expected_of(made, lives[0], b));
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 8)) continue;
        SCOPED_TRACE(target);
        compare(made, lives, expected, target, outcomes[target]);
        if (HasFatalFailure()) return;
      }
    }
  for (const auto& [target, outcome] : outcomes) {
    SCOPED_TRACE(target);
    heed::test::expect_tight(outcome.tally, 0.9);
    EXPECT_GT(outcome.as_plain, 0);
    EXPECT_GT(outcome.in_keys, 0);
    EXPECT_GT(outcome.as_other, 0);
  }
}

// Tiles read bf16 rows in pairs. A distance of an odd number of elements changes how they read, and no bit.
TEST(KvCacheCalls, RowsAnOddNumberOfElementsApartHaveTheSameBits) {
  const Tensor key = heed::test::normal_tensor({1, 1, 300, 65}, 1, DType::bf16),
               value = heed::test::normal_tensor({1, 1, 300, 65}, 2, DType::bf16);
  const TensorView keys = key.view().narrow(3, 0, 64), values = value.view().narrow(3, 1, 64);
  const std::int64_t length[] = {300};
  const auto cache = heed::KvCache::over(keys, values, TensorView(length, {1}));
  const auto copy = cache.copy();
  const Tensor even_keys = Tensor::copy_of(keys), even_values = Tensor::copy_of(values);
  const AttentionOptions options{.need = Need::lse | Need::entropy, .top_k = 3, .kernel = Kernel::fused};
  const heed::test::EachTarget targets;
  for (const std::string& target : targets.available())
    for (const std::int64_t rows : {1, 4, 5, 12, 13, 20, 32, 33, 64}) {
      SCOPED_TRACE(target + ", rows " + std::to_string(rows));
      heed::set_target(target);
      const Tensor query = heed::test::normal_tensor({1, 1, rows, 64}, 3, DType::bf16);
      const AttentionResult expected = heed::attention(query, even_keys, even_values, options);
      EXPECT_TRUE(heed::test::same_bits(heed::attention(query, keys, values, options), expected));
      EXPECT_TRUE(heed::test::same_bits(heed::attention(query, cache, options), expected));
      EXPECT_TRUE(heed::test::same_bits(heed::attention(query, copy, options), expected));
    }
}

// The reference kernel gathers the rows.
TEST(KvCacheCalls, OfTheReferenceAgreeWithTheDefinitions) {
  std::map<std::string, Outcome> outcomes;
  for (std::uint64_t index = 0; index < heed::test::share_of(400); ++index) {
    CacheCall made = draw_call(index, heed::test::small_calls());
    made.call.options.kernel = Kernel::reference;
    const CacheLife life = cache_of(made, index, 0);
    std::vector<Expected> expected;
    for (std::int64_t b = 0; b < made.call.query.size(0); ++b) expected.push_back(expected_of(made, life, b));
    const AttentionResult result =
        heed::attention(made.call.query, life.cache, made.call.options, {.sequences = life.sequences});
    compare_with_definitions(made, life, expected, result, "plain", outcomes["reference"]);
    if (HasFatalFailure()) return;
  }
  heed::test::expect_tight(outcomes["reference"].tally);
}

// A ragged batch of queries attends like each sequence by itself.
TEST(KvCacheCalls, OfPackedQueriesAreThoseOfEachSequenceBitForBit) {
  const heed::test::EachTarget targets;
  for (std::uint64_t index = 0; index < heed::test::share_of(300); ++index) {
    const CacheCall made =
        draw_call(index, index % 4 == 0 ? heed::test::decoding_calls() : heed::test::small_calls());
    const CacheLife life = cache_of(made, index, 0);
    const std::int64_t batch = made.call.query.size(0), queries = made.call.query.size(2);
    std::vector<std::int64_t> offsets{0};
    Tensor packed({1, made.call.query.size(1), batch * queries, made.call.query.size(3)},
                  made.call.query.dtype());
    for (std::int64_t b = 0; b < batch; ++b) {
      heed::copy(made.call.query.narrow(0, b, 1), packed.mutable_view().narrow(2, b * queries, queries));
      offsets.push_back((b + 1) * queries);
    }
    AttentionOptions options{.causal = made.call.options.causal, .window = made.call.options.window};
    options.need = Need::lse | Need::entropy | Need::distance | Need::received | Need::weights;
    options.top_k = 3;
    options.threads = static_cast<int>(index % 4);
    for (const std::string& target : targets.available()) {
      if (!targets.takes(target, index, 8)) continue;
      SCOPED_TRACE(target);
      heed::set_target(target);
      AttentionOptions ragged = options;
      const TensorView ends(offsets.data(), {batch + 1});
      ragged.query_segments = ends;
      const AttentionResult all = heed::attention(packed, life.cache, ragged, {.sequences = life.sequences});
      std::int64_t key = 0;
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t which[] = {life.sequences[static_cast<std::size_t>(b)]};
        const AttentionResult one =
            heed::attention(made.call.query.narrow(0, b, 1), life.cache, options, {.sequences = which});
        const std::int64_t keys = life.cache.rows(which[0]);
        const auto rows_of = [&](const Tensor& result) {
          return result.view().narrow(2, b * queries, queries);
        };
        for (const auto member :
             {&AttentionResult::output, &AttentionResult::lse, &AttentionResult::entropy,
              &AttentionResult::distance, &AttentionResult::top_k_index, &AttentionResult::top_k_weight})
          ASSERT_TRUE(heed::test::same_bits(rows_of(all.*member), (one.*member).view()))
              << description_of(made, life);
        ASSERT_TRUE(heed::test::same_bits(all.received.view().narrow(2, key, keys), one.received.view()))
            << description_of(made, life);
        ASSERT_TRUE(heed::test::same_bits(rows_of(all.weights).narrow(3, key, keys), one.weights.view()));
        key += keys;
      }
    }
  }
}

}  // namespace
