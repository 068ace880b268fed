// A row has the same bits whichever rows are computed with it, under every kind of mask and from caches. This
// holds for calls whose rows share packed keys. Few rows read keys in place, and sum in another order.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "attention_support.hpp"
#include "each_target.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/attention/plan.hpp"
#include "processor.hpp"
#include "random_mask.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::DType;
using heed::GridAxis;
using heed::KvCache;
using heed::Need;
using heed::SparseMask;
using heed::Tensor;
using heed::TensorView;
using heed::test::Draw;
using heed::test::normal_tensor;

constexpr std::uint64_t kSeed = 20261127, kCalls = 450;
constexpr std::int64_t kManyRows = 13;

// The options of a call with rows [first, first + count) of all rows.
using OptionsOfRows = std::function<AttentionOptions(std::int64_t first, std::int64_t count)>;

struct Call {
  std::string kind;
  Tensor query, key, value;
  OptionsOfRows options;
};

void set_position_mask(Draw& draw, Call& call, std::int64_t keys, std::int64_t rows) {
  const std::int64_t offset = keys - rows;
  if (call.kind == "all keys") {
    call.options = [](std::int64_t, std::int64_t) { return AttentionOptions{}; };
  } else if (call.kind == "causal") {
    call.options = [=](std::int64_t first, std::int64_t) {
      AttentionOptions options{.causal = true};
      options.query_offset = offset + first;
      return options;
    };
  } else if (call.kind == "window") {
    const heed::Window window{draw.between(0, 200), draw.between(0, 60)};
    call.options = [=](std::int64_t first, std::int64_t) {
      AttentionOptions options{.window = window};
      options.query_offset = offset + first;
      return options;
    };
  } else {
    const Tensor lengths =
        Tensor::from<std::int32_t>({static_cast<std::int32_t>(draw.between(1, keys))}, {1});
    call.options = [=](std::int64_t, std::int64_t) { return AttentionOptions{.kv_lengths = lengths}; };
  }
}

Tensor random_booleans(Draw& draw, std::int64_t rows, std::int64_t keys) {
  Tensor mask({1, 1, rows, keys}, DType::boolean);
  const double density = draw.pick<double>({0.02, 0.5, 0.95});
  auto* bytes = static_cast<std::uint8_t*>(mask.mutable_view().data());
  for (std::int64_t i = 0; i < mask.count(); ++i) bytes[i] = draw.chance(density) ? 1 : 0;
  return mask;
}

// Some masks go by another form for some of the rows: as booleans.
void set_mask(Draw& draw, Call& call, std::int64_t keys, std::int64_t rows) {
  if (call.kind == "booleans" || call.kind == "sparse") {
    heed::test::RandomMask made;
    if (call.kind == "sparse")
      made = heed::test::MaskMaker(draw, 1, call.query.view().size(1), call.key.view().size(1), rows, keys)
                 .make();
    else
      made.dense = random_booleans(draw, rows, keys);
    call.kind += " " + made.kind;
    const bool sparse = call.kind.starts_with("sparse");
    call.options = [=](std::int64_t first, std::int64_t count) {
      AttentionOptions options;
      if (sparse && count == rows)
        options.sparse_mask = made.mask;
      else
        options.mask = made.dense.view().narrow(2, first, count);
      return options;
    };
  } else if (call.kind == "expression") {
    call.options = [=](std::int64_t first, std::int64_t count) {
      AttentionOptions options;
      options.sparse_mask =
          SparseMask::expression("(i + " + std::to_string(first) + ") % 5 != j % 3 || j < 9", count, keys);
      return options;
    };
  } else {
    const std::vector<GridAxis> axes{{keys / 25, std::min<std::int64_t>(3, keys / 25)}, {25, 7}};
    const std::int64_t begin = draw.between(0, keys - rows);
    call.options = [=](std::int64_t first, std::int64_t count) {
      AttentionOptions options;
      options.sparse_mask = heed::masks::neighbourhood(axes, begin + first, count, keys);
      return options;
    };
  }
}

Call make_call(std::uint64_t index) {
  static const std::vector<std::string> kKinds{"all keys", "causal",     "window", "padding", "booleans",
                                               "sparse",   "expression", "grid",   "booleans"};
  Draw draw(kSeed, index);
  Call call;
  call.kind = kKinds[index % kKinds.size()];
  const std::int64_t heads = draw.between(1, 3), kv_heads = draw.chance(0.5) ? heads : 1;
  const std::int64_t width = draw.pick<std::int64_t>({16, 32, 40, 64, 64});
  const std::int64_t value_width = draw.pick<std::int64_t>({16, 33, 64, width});
  const std::int64_t rows = draw.chance(0.1) ? 200 : draw.between(14, 40);
  const std::int64_t keys =
      draw.chance(0.05) ? 3300 : draw.between(std::max<std::int64_t>(2, rows / 25 + 1), 28) * 25;
  const DType dtype = draw.pick<DType>({DType::f32, DType::f32, DType::bf16, DType::bf16, DType::f16});
  const auto make = [&](std::int64_t head_count, std::int64_t length, std::int64_t columns) {
    return Tensor::copy_of(normal_tensor({1, head_count, length, columns}, draw.word(), DType::f32), dtype);
  };
  call.query = make(heads, rows, width);
  call.key = make(kv_heads, keys, width);
  call.value = make(kv_heads, keys, value_width);
  if (index % kKinds.size() < 4)
    set_position_mask(draw, call, keys, rows);
  else
    set_mask(draw, call, keys, rows);
  const bool top_k = draw.chance(0.4), more = draw.chance(0.5), wide = draw.chance(0.3);
  call.options = [=, of_rows = call.options](std::int64_t first, std::int64_t count) {
    AttentionOptions options = of_rows(first, count);
    options.kernel = heed::Kernel::fused;
    options.top_k = top_k ? 5 : 0;
    if (more) options.need = Need::lse | Need::max_score | Need::entropy;
    if (wide) options.output_dtype = DType::f32;
    return options;
  };
  return call;
}

std::string unit_of(const Call& call, std::int64_t first, std::int64_t rows) {
  const TensorView query = call.query.view().narrow(2, first, rows);
  return heed::plan_attention(query, call.key, call.value, call.options(first, rows)).passes.at(0).unit;
}

KvCache cache_of(const Call& call, std::int64_t page_size) {
  heed::KvCacheOptions options{.kv_heads = call.key.view().size(1),
                               .head_dim = call.key.view().size(3),
                               .value_dim = call.value.view().size(3),
                               .layout = heed::CacheLayout::paged,
                               .capacity = call.key.view().size(2),
                               .page_size = page_size};
  options.format = call.key.dtype() == DType::f32    ? heed::CacheFormat::f32
                   : call.key.dtype() == DType::bf16 ? heed::CacheFormat::bf16
                                                     : heed::CacheFormat::f16;
  KvCache cache(options);
  cache.append(call.key, call.value);
  return cache;
}

void expect_same_rows(const AttentionResult& all, const AttentionResult& some, std::int64_t first) {
  const std::int64_t rows = some.output.view().size(2);
  for (const auto member : {&AttentionResult::output, &AttentionResult::lse, &AttentionResult::max_score,
                            &AttentionResult::top_k_index, &AttentionResult::top_k_weight}) {
    if ((some.*member).count() == 0) continue;
    EXPECT_TRUE(heed::test::same_bits((all.*member).view().narrow(2, first, rows), some.*member));
  }
  // The sum of the entropy is rounded again where a row's shift moves.
  if (some.entropy.count() > 0) {
    EXPECT_LE(heed::test::largest_difference(all.entropy.view().narrow(2, first, rows), some.entropy), 1e-4);
  }
}

// Matrix tiles multiply in another order than vectors. A target that has them computes few rows by another
// unit than many, so only rows of one unit are compared there.
TEST(RowBits, AreTheSameBesideAnyOtherRows) {
  const heed::test::EachTarget targets;
  std::map<std::string, std::int64_t> compared;
  // No divisor of the number of kinds, so that all kinds remain.
  const std::uint64_t one_in = heed::test::makes_all_calls() ? 1 : heed::test::is_emulated() ? 11 : 4;
  for (std::uint64_t index = 0; index < kCalls; ++index) {
    if (index % one_in != 0) continue;
    const Call call = make_call(index);
    const std::int64_t rows = call.query.view().size(2);
    Draw draw(kSeed + 1, index);
    for (const std::string& target : targets.available()) {
      if (!targets.takes(target, index, 5)) continue;
      heed::set_target(target);
      const AttentionResult all = heed::attention(call.query, call.key, call.value, call.options(0, rows));
      for (const std::int64_t count : {draw.between(kManyRows, rows), draw.between(kManyRows, rows)}) {
        const std::int64_t first = draw.between(0, rows - count);
        SCOPED_TRACE(testing::Message() << target << ", call " << index << " of seed " << kSeed << ", "
                                        << heed::name_of(call.key.dtype()) << ", " << call.kind << ", rows "
                                        << first << " + " << count << " of " << rows);
        const bool has_tiles = target.starts_with("amx") || target == "neonbf16";
        if (has_tiles && unit_of(call, first, count) != unit_of(call, 0, rows)) continue;
        ++compared[target];
        const TensorView query = call.query.view().narrow(2, first, count);
        const AttentionOptions options = call.options(first, count);
        expect_same_rows(all, heed::attention(query, call.key, call.value, options), first);
        if (!has_tiles && call.kind != "padding" && call.kind != "grid" && draw.chance(0.3))
          expect_same_rows(all, heed::attention(query, cache_of(call, draw.between(1, 40)), options), first);
        if (HasFailure()) return;
      }
    }
  }
  for (const auto& [target, count] : compared) EXPECT_GT(count, 20) << target;
}

// Groups of rows begin elsewhere if a call begins at another row, and so do the keys of their windows.
// Rounding to bf16 hides most differences of f32 sums, so there are many rows.
TEST(RowBits, InWindowsAreTheSameWhereverTheCallBegins) {
  constexpr std::int64_t kRows = 4096, kFirst = 5;
  const std::int64_t heads = heed::test::is_emulated() ? 2 : 16;
  const heed::test::EachTarget targets;
  const Tensor query = Tensor::copy_of(normal_tensor({1, heads, kRows, 64}, 1, DType::f32), DType::bf16);
  const Tensor key = Tensor::copy_of(normal_tensor({1, heads, kRows, 64}, 2, DType::f32), DType::bf16);
  const auto options = [](std::int64_t first) {
    AttentionOptions made{.window = heed::Window{70, 0}};
    made.scale = 0.5;
    made.query_offset = first;
    made.kernel = heed::Kernel::fused;
    return made;
  };
  for (const std::string& target : targets.available()) {
    if (!heed::test::multiplies_bf16(target)) continue;
    if (target.ends_with("emulated") && !heed::test::makes_all_calls()) continue;  // it takes seconds
    heed::set_target(target);
    const TensorView part = query.view().narrow(2, kFirst, kRows - kFirst);
    SCOPED_TRACE(target);
    expect_same_rows(heed::attention(query, key, key, options(0)),
                     heed::attention(part, key, key, options(kFirst)), kFirst);
  }
}

}  // namespace
