// Eviction: the rows that each policy evicts, compared with its definition on plain vectors. A whole decoding
// is compared with one over full rows of weights in f64. Errors are tested too.
#include "heed/attention/eviction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "heed/inspect/reports.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::EvictionKind;
using heed::EvictionPolicy;
using heed::EvictionTrace;
using heed::KvCache;
using heed::Tensor;
using heed::TensorView;
using heed::test::Draw;
using heed::test::message_of;
using heed::test::normal_tensor;
using heed::test::share_of;

constexpr std::uint64_t kSeed = 20261126;
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

using Rows = std::vector<std::int64_t>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The definition, row by row: a row that is not recent is evicted if `chosen` others that are not recent rank
// higher. `margin` becomes the smallest difference in rank between a kept and an evicted row.
Rows plain_eviction(const std::vector<double>& sums, const EvictionPolicy& policy, double& margin) {
  const auto rows = static_cast<std::int64_t>(sums.size());
  const std::int64_t competing = std::max<std::int64_t>(0, rows - policy.recent);
  std::vector<double> rank(at(competing));
  for (std::int64_t r = 0; r < competing; ++r) {
    if (policy.kind == EvictionKind::streaming) rank[at(r)] = static_cast<double>(rows - r);
    if (policy.kind == EvictionKind::h2o) rank[at(r)] = sums[at(r)];
    if (policy.kind == EvictionKind::snapkv)
      for (std::int64_t n = 0; n < competing; ++n)
        if (std::abs(n - r) <= policy.pool / 2) rank[at(r)] += sums[at(n)];
  }
  Rows gone;
  double lowest_kept = std::numeric_limits<double>::infinity(), highest_gone = -lowest_kept;
  for (std::int64_t r = 0; r < competing; ++r) {
    std::int64_t higher = 0;
    for (std::int64_t n = 0; n < competing; ++n)
      higher += rank[at(n)] > rank[at(r)] || (rank[at(n)] == rank[at(r)] && n > r);
    if (higher < policy.chosen) {
      lowest_kept = std::min(lowest_kept, rank[at(r)]);
    } else {
      highest_gone = std::max(highest_gone, rank[at(r)]);
      gone.push_back(r);
    }
  }
  if (!gone.empty()) margin = std::min(margin, lowest_kept - highest_gone);
  return gone;
}

EvictionKind kind_of(Draw& draw) {
  return draw.pick<EvictionKind>({EvictionKind::streaming, EvictionKind::h2o, EvictionKind::snapkv});
}

// A cache of two sequences. One has `rows` rows, and some of its positions were evicted before.
KvCache cache_with_gaps(Draw& draw, std::int64_t rows, std::int64_t heads, Rows& held) {
  KvCache cache({.sequences = 2, .kv_heads = heads, .head_dim = 2, .capacity = 2 * rows + 1});
  std::int64_t length = 0;
  Rows gone;
  while (static_cast<std::int64_t>(held.size()) < rows) {
    if (length < 2 * rows && draw.chance(0.2) && length - rows < static_cast<std::int64_t>(held.size()))
      gone.push_back(length++);
    else
      held.push_back(length++);
  }
  const Tensor zeros({2, heads, length, 2});
  cache.append(zeros, zeros);
  cache.evict(1, gone);
  cache.clear(0);
  return cache;
}

TEST(Eviction, GivesAwayWhatTheDefinitionSays) {
  std::int64_t evictions = 0, ties = 0;
  for (std::uint64_t index = 0; index < share_of(600); ++index) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", call " + std::to_string(index));
    Draw draw(kSeed, index);
    const std::int64_t rows = draw.between(0, 40), heads = draw.between(1, 3);
    Rows held;
    KvCache cache = cache_with_gaps(draw, rows, heads, held);
    const EvictionPolicy policy{kind_of(draw), draw.between(0, 12), draw.between(1, 12), 1,
                                2 * draw.between(0, 4) + 1};
    // Whole numbers add up exactly, and are often equal.
    Tensor received({1, 2 * heads, rows});
    std::vector<double> sums(at(rows));
    for (std::int64_t h = 0; h < 2 * heads; ++h)
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto x = static_cast<double>(draw.between(0, 5));
        received.at<float>(0, h, r) = static_cast<float>(x);
        sums[at(r)] += x;
      }
    const std::int64_t sequence[] = {1};
    cache.add_received(received, 1, sequence);
    double margin = 1;
    Rows expected;
    for (const std::int64_t row : plain_eviction(sums, policy, margin)) expected.push_back(held[at(row)]);
    const Rows positions = positions_to_evict(cache, 1, policy);
    ASSERT_EQ(positions, expected);
    cache.evict(1, positions);
    ASSERT_EQ(cache.rows(1), std::min(rows, policy.chosen + policy.recent));
    ASSERT_TRUE(positions_to_evict(cache, 1, policy).empty() || policy.kind == EvictionKind::snapkv);
    ASSERT_TRUE(positions_to_evict(cache, 0, policy).empty());
    evictions += !positions.empty();
    ties += !positions.empty() && margin == 0;
  }
  EXPECT_GE(evictions, static_cast<std::int64_t>(share_of(600) / 4));
  EXPECT_GE(ties, static_cast<std::int64_t>(share_of(600) / 50));
}

TEST(Eviction, CountsNaNAsNothingReceived) {
  KvCache cache({.kv_heads = 1, .head_dim = 1, .capacity = 4});
  const Tensor zeros({1, 1, 4, 1});
  cache.append(zeros, zeros);
  cache.add_received(Tensor::from<float>({1, std::nanf(""), 2, 0}, {1, 1, 4}));
  EXPECT_EQ(positions_to_evict(cache, 0, {EvictionKind::h2o, 2, 1}), Rows{1});
  // Nor does a NaN take from its neighbours: the pooled votes are 1, 3 and 2.
  EXPECT_EQ(positions_to_evict(cache, 0, {EvictionKind::snapkv, 1, 1, 1, 3}), (Rows{0, 2}));
}

// One batch entry of a call in f64, with full rows of scores from the formulas of
// heed/attention/attention.hpp.
struct PlainCall {
  Tensor query, key;  // [B, H, Lq, D], [B, Hkv, Lk, D], f64
  double scale = 1, softcap = 0;
  std::int64_t window = -1;
  std::vector<double> slopes, sinks;  // [H], or empty

  [[nodiscard]] std::int64_t position(std::int64_t i) const { return i + key.size(2) - query.size(2); }

  // The weights of row i on its keys; evicted keys have 0. `gone` is [Lk].
  [[nodiscard]] std::vector<double> weights(std::int64_t b, std::int64_t h, std::int64_t i,
                                            const Rows& gone) const {
    const std::int64_t keys = key.size(2), kv = h / (query.size(1) / key.size(1));
    std::vector<double> p(at(keys));
    double sum = sinks.empty() ? 0 : std::exp(sinks[at(h)]);
    for (std::int64_t j = 0; j <= position(i) && j < keys; ++j) {
      if (gone[at(j)] <= i || (window >= 0 && j < position(i) - window)) continue;
      double s = 0;
      for (std::int64_t d = 0; d < key.size(3); ++d)
        s += query.at<double>(b, h, i, d) * key.at<double>(b, kv, j, d);
      s *= scale;
      if (softcap > 0) s = softcap * std::tanh(s / softcap);
      if (!slopes.empty()) s -= slopes[at(h)] * static_cast<double>(position(i) - j);
      p[at(j)] = std::exp(s);
      sum += p[at(j)];
    }
    for (double& x : p) x = sum > 0 ? x / sum : 0;
    return p;
  }
};

struct PlainTrace {
  Rows gone;
  double margin = std::numeric_limits<double>::infinity();
};

// Decodes batch entry b with lists of rows and sums.
PlainTrace plain_trace(const PlainCall& call, std::int64_t b, const EvictionPolicy& policy,
                       std::int64_t prompt) {
  const std::int64_t queries = call.query.size(2);
  PlainTrace trace;
  trace.gone.assign(at(call.key.size(2)), kNone);
  Rows held;
  std::vector<double> sums;
  const auto come = [&](std::int64_t end) {
    for (std::int64_t j = held.empty() && sums.empty() ? 0 : held.back() + 1; j < end; ++j) {
      held.push_back(j);
      sums.push_back(0);
    }
  };
  const auto receive = [&](std::int64_t i) {
    for (std::int64_t h = 0; h < call.query.size(1); ++h) {
      const std::vector<double> p = call.weights(b, h, i, trace.gone);
      for (std::size_t r = 0; r < held.size(); ++r) sums[r] += p[at(held[r])];
    }
  };
  const auto decay = [&] {
    for (double& sum : sums) sum *= policy.decay;
  };
  const auto evict = [&](std::int64_t i) {
    const Rows going = plain_eviction(sums, policy, trace.margin);
    for (auto row = going.rbegin(); row != going.rend(); ++row) {
      trace.gone[at(held[at(*row)])] = i;
      held.erase(held.begin() + *row);
      sums.erase(sums.begin() + *row);
    }
  };
  come(call.position(0) + prompt);
  const bool snapkv = policy.kind == EvictionKind::snapkv;
  for (std::int64_t i = snapkv ? prompt - policy.recent : 0; i < prompt; ++i) receive(i);
  if (snapkv) {
    evict(prompt);
    return trace;
  }
  for (std::int64_t i = prompt; i < queries; ++i) {
    come(call.position(i) + 1);
    evict(i);
    decay();
    receive(i);
  }
  return trace;
}

struct TracedCall {
  PlainCall plain;
  Tensor query, key, slopes, sinks;
  AttentionOptions options;
  EvictionPolicy policy;
  std::int64_t prompt = 0;
};

TracedCall draw_traced(std::uint64_t index) {
  Draw draw(kSeed ^ 0x7ace, index);
  TracedCall made;
  const std::int64_t batch = draw.between(1, 2), kv_heads = draw.between(1, 2), group = draw.between(1, 3);
  const std::int64_t queries = draw.between(2, 50), before = draw.chance(0.3) ? draw.between(1, 20) : 0;
  const std::int64_t dim = draw.pick<std::int64_t>({1, 4, 16});
  const auto dtype = draw.pick<DType>({DType::f32, DType::f32, DType::bf16, DType::f16, DType::f64});
  made.query = normal_tensor({batch, kv_heads * group, queries, dim}, draw.word(), dtype);
  made.key = normal_tensor({batch, kv_heads, queries + before, dim}, draw.word(), dtype);
  made.plain.query = Tensor::copy_of(made.query, DType::f64);
  made.plain.key = Tensor::copy_of(made.key, DType::f64);
  AttentionOptions& o = made.options;
  o.causal = true;
  o.align = heed::Align::bottom_right;
  made.plain.scale = draw.chance(0.5) ? 1 / std::sqrt(static_cast<double>(dim)) : 0.75;
  o.scale = made.plain.scale;
  if (draw.chance(0.3)) made.plain.softcap = o.softcap = 2;
  if (draw.chance(0.2)) made.plain.window = o.window.left = draw.between(5, 30);
  if (draw.chance(0.3)) {
    made.slopes = Tensor({kv_heads * group});
    for (float& slope : made.slopes.values<float>()) slope = static_cast<float>(draw.uniform() / 4);
    for (const float slope : made.slopes.values<float>()) made.plain.slopes.push_back(slope);
    o.alibi_slopes = made.slopes.view();
  }
  if (draw.chance(0.3)) {
    made.sinks = normal_tensor({kv_heads * group}, draw.word(), DType::f32);
    for (const float sink : made.sinks.values<float>()) made.plain.sinks.push_back(sink);
    o.sinks = made.sinks.view();
  }
  made.policy = {kind_of(draw), draw.between(0, 10), draw.between(1, 10),
                 draw.chance(0.5) ? 1 : draw.uniform(), 2 * draw.between(0, 3) + 1};
  made.policy.recent = std::min(made.policy.recent, queries - 1);
  const bool votes = made.policy.kind == EvictionKind::snapkv;
  made.prompt = votes || draw.chance(0.4) ? draw.between(votes ? made.policy.recent : 0, queries - 1) : 0;
  return made;
}

// The error of f32 sums of about 50 rows of weights of up to six heads. The keys are as in f64.
constexpr double kSumError = 1e-5;

TEST(Eviction, TracesADecodingAsFullRowsOfWeightsDo) {
  std::int64_t traced = 0, evicted = 0, close = 0;
  for (std::uint64_t index = 0; index < share_of(300); ++index) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", call " + std::to_string(index));
    const TracedCall call = draw_traced(index);
    const std::int64_t queries = call.query.size(2), keys = call.key.size(2);
    const EvictionTrace trace = trace_eviction(call.query, call.key, call.options, call.policy, call.prompt);
    ASSERT_EQ(trace.gone.shape(), (heed::Dims{call.query.size(0), keys}));
    ASSERT_EQ(trace.dropped.shape(), (heed::Dims{call.query.size(0), call.query.size(1), queries}));
    for (std::int64_t b = 0; b < call.query.size(0); ++b) {
      const PlainTrace plain = plain_trace(call.plain, b, call.policy, call.prompt);
      Rows gone;
      for (std::int64_t j = 0; j < keys; ++j) gone.push_back(trace.gone.at<std::int64_t>(b, j));
      // If rounding could reorder two sums, either row may be evicted.
      if (call.policy.kind != EvictionKind::streaming && plain.margin < kSumError) {
        ++close;
      } else {
        for (std::int64_t j = 0; j < keys; ++j)
          ASSERT_EQ(gone[at(j)], std::min(plain.gone[at(j)], queries)) << "batch " << b << ", key " << j;
        ++traced;
      }
      const Rows all(at(keys), kNone);
      for (std::int64_t h = 0; h < call.query.size(1); ++h)
        for (std::int64_t i = 0; i < queries; ++i) {
          const std::vector<double> p = call.plain.weights(b, h, i, all);
          double dropped = 0;
          for (std::int64_t j = 0; j < keys; ++j) dropped += gone[at(j)] <= i ? p[at(j)] : 0;
          const double given = heed::number_at(trace.dropped, {b, h, i});
          // Two logarithms of f32 sums of size up to ten, and an exponential. The error is relative to the
          // mass.
          ASSERT_NEAR(given, dropped, 1e-5 * dropped + 1e-30) << "head " << h << ", row " << i;
          evicted += dropped > 0;
        }
    }
  }
  EXPECT_GT(traced, 9 * close);
  EXPECT_GT(evicted, static_cast<std::int64_t>(share_of(300)) * 5);
}

// Streaming holds the same rows as a ring with as many sinks and an equal window.
TEST(Eviction, OfStreamingLeavesTheRowsOfARing) {
  const Tensor query = normal_tensor({1, 1, 30, 4}, 1, DType::f32);
  const EvictionTrace trace =
      trace_eviction(query, query, {.causal = true}, {EvictionKind::streaming, 3, 8}, 0);
  for (std::int64_t j = 0; j < 30; ++j)
    EXPECT_EQ(trace.gone.at<std::int64_t>(0, j), j < 3 ? 30 : std::min<std::int64_t>(30, j + 8)) << j;
}

// Old rows have sums over many queries. A new row that all later rows attend to needs a grace period to
// gather as much, or sums that decay.
TEST(Eviction, OfHeavyHittersLetsNewRowsIn) {
  const std::int64_t length = 200;
  Tensor query({1, 1, length, 1}), key({1, 1, length, 1});
  for (std::int64_t i = 0; i < length; ++i) {
    query.at<float>(0, 0, i, 0) = 1;
    key.at<float>(0, 0, i, 0) = i == 120 ? 8.0f : 0.0f;
  }
  const auto gone = [&](std::int64_t recent, double decay) {
    return trace_eviction(query, key, {.scale = 1, .causal = true},
                          {.kind = EvictionKind::h2o, .chosen = 4, .recent = recent, .decay = decay})
        .gone.at<std::int64_t>(0, 120);
  };
  // By row 120 the first row's sum is about 1 + 1/2 + … + 1/8 + 112/8 = 17. The new row has 4 by row 124.
  EXPECT_EQ(gone(4, 1), 124);
  EXPECT_EQ(gone(40, 1), length);
  EXPECT_EQ(gone(4, 0.9), length);
}

TEST(Eviction, NamesItsKinds) {
  for (const char* name : {"streaming", "h2o", "snapkv"})
    EXPECT_EQ(name_of(heed::eviction_kind_named(name).value()), name);
  EXPECT_FALSE(heed::eviction_kind_named("H2O"));
  EXPECT_EQ(name_of(static_cast<EvictionKind>(3)), "");
}

TEST(Eviction, RefusesWhatItCannotDo) {
  KvCache cache({.kv_heads = 1, .head_dim = 4, .capacity = 8});
  const auto positions = [&](std::int64_t sequence, const EvictionPolicy& policy) {
    return message_of([&] { (void)positions_to_evict(cache, sequence, policy); });
  };
  EXPECT_EQ(positions(0, {static_cast<EvictionKind>(3)}), "kind is 3; 0 to 2 is expected");
  EXPECT_EQ(positions(0, {EvictionKind::h2o, -1, 4}), "chosen is -1; 0 or more rows are expected");
  EXPECT_EQ(positions(0, {EvictionKind::h2o, 4, 0}), "recent is 0; 1 or more rows are expected");
  EXPECT_EQ(positions(0, {.kind = EvictionKind::snapkv, .pool = 2}),
            "pool is 2; an odd number of at least 1 is expected");
  EXPECT_EQ(positions(0, {.kind = EvictionKind::h2o, .decay = 2}), "decay is 2; 0 to 1 is expected");
  EXPECT_EQ(positions(0, {.kind = EvictionKind::h2o, .decay = -0.5}), "decay is -0.5; 0 to 1 is expected");
  EXPECT_EQ(positions(0, {.kind = EvictionKind::snapkv, .pool = -1}),
            "pool is -1; an odd number of at least 1 is expected");
  for (const EvictionPolicy& least : {EvictionPolicy{EvictionKind::h2o, 0, 1}, EvictionPolicy{.decay = 0},
                                      EvictionPolicy{.decay = 1}, EvictionPolicy{.pool = 1}})
    EXPECT_EQ(positions(0, least), "no error");
  EXPECT_NE(positions(1, {}), "no error");

  const Tensor query = normal_tensor({1, 2, 6, 4}, 1, DType::f32),
               key = normal_tensor({1, 1, 6, 4}, 2, DType::f32);
  const auto trace = [&](const TensorView& q, const TensorView& k, AttentionOptions options,
                         std::int64_t prompt = 0, EvictionKind kind = EvictionKind::h2o) {
    return message_of([&] { (void)trace_eviction(q, k, options, {kind, 2, 2}, prompt); });
  };
  EXPECT_EQ(trace(query, key, {}),
            "causal is false; true is expected because decoded rows see no later keys");
  EXPECT_EQ(trace(query.view().select(0, 0), key, {.causal = true}),
            "query has shape [2, 6, 4]; four axes, [B, heads, rows, D], are expected");
  EXPECT_EQ(trace(query, key.view().narrow(2, 0, 5), {.causal = true}),
            "query has 6 rows and key 5; at least as many keys are expected");
  EXPECT_EQ(trace(query.view().narrow(2, 0, 4), key, {.causal = true}),
            "align and query_offset put the first row at position 0; 2 is expected, so that the last row is "
            "at the last key");
  const Tensor bias({6, 6});
  EXPECT_EQ(trace(query, key, {.causal = true, .bias = bias.view()}),
            "bias is given; a call without it is expected because rows leave the cache");
  EXPECT_EQ(trace(query, key, {.causal = true}, 6), "prompt is 6; 0 to 5 of the 6 rows are expected");
  EXPECT_EQ(trace(query, key, {.causal = true}, 1, EvictionKind::snapkv),
            "prompt is 1; 2 to 5 of the 6 rows are expected because the last of them vote");
  EXPECT_NE(trace(query, normal_tensor({1, 1, 6, 3}, 2, DType::f32), {.causal = true}), "no error");
  EXPECT_NE(trace(query, normal_tensor({2, 1, 6, 4}, 2, DType::f32), {.causal = true}), "no error");
}

}  // namespace
