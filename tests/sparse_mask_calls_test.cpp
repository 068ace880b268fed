// Random masks in O(L) memory on every target. All results of the forward pass are compared with the
// definitions, where the mask is boolean. They are also compared bit for bit with the fused kernel with the
// boolean mask. Gradients are compared likewise.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "attention_support.hpp"
#include "backward_call.hpp"
#include "each_target.hpp"
#include "expect_tight.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "gradient_errors.hpp"
#include "gradient_rounding.hpp"
#include "heed/attention/plan.hpp"
#include "path_watch.hpp"
#include "random_mask.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::Kernel;
using heed::Tensor;
using heed::test::BackwardCall;
using heed::test::CheckedCall;
using heed::test::EachTarget;
using heed::test::Path;
using heed::test::RandomCall;

constexpr std::uint64_t kSeed = 20261123;

enum class Masks { any, lists, gathered, grids };

struct Kind {
  heed::test::CallLimits limits;
  std::uint64_t count;
  Masks masks = Masks::any;
};

struct Outcome {
  heed::test::PathWatch paths;
  heed::test::RowTally tally;
};

// A call whose mask is boolean, with the results of the definitions. `sparse` has the mask under test.
struct MaskedCall {
  CheckedCall checked;
  AttentionOptions sparse;
  std::string kind;
};

// Leaves out what a call that gathers keys does not take.
void make_gatherable(AttentionOptions& options) {
  using heed::Need;
  Need kept = Need::none;
  for (const Need need : {Need::lse, Need::max_score, Need::entropy, Need::distance})
    if (has(options.need, need)) kept |= need;
  options.need = kept;
  options.map = {};
  options.received_last = 0;
  options.bias.reset();
  options.dropout = {};
}

heed::test::RandomMask random_mask(heed::test::MaskMaker& maker, Masks masks) {
  if (masks == Masks::any) return maker.make();
  if (masks == Masks::grids) return maker.make_grid();
  return maker.make_key_lists(masks == Masks::gathered ? heed::Gather::always : heed::Gather::automatic);
}

MaskedCall masked_call(std::uint64_t index, const heed::test::CallLimits& limits, Masks masks = Masks::any) {
  RandomCall call = heed::test::random_call(kSeed, index, limits);
  if (masks == Masks::gathered && index % 8 != 0) make_gatherable(call.options);
  heed::test::Draw draw(kSeed ^ 0x3a5c, index);
  const int rank = call.query.rank();
  const std::int64_t batch = rank > 3 ? call.query.size(0) : 1;
  const std::int64_t heads = rank > 2 ? call.query.size(-3) : 1, kv_heads = rank > 2 ? call.key.size(-3) : 1;
  heed::test::MaskMaker maker(draw, batch, heads, kv_heads, call.query.size(-2), call.key.size(-2));
  heed::test::RandomMask mask = random_mask(maker, masks);
  MaskedCall made;
  made.kind = mask.kind;
  made.sparse = call.options;
  made.sparse.sparse_mask = mask.mask;
  auto* to = static_cast<std::uint8_t*>(mask.dense.mutable_view().data());
  if (call.options.mask)
    heed::test::for_each_index(mask.dense.shape(), [&](const heed::Dims& at) {
      if (heed::test::naive_element(*call.options.mask, {at[0], at[1], at[2], at[3]}) == 0) *to = 0;
      ++to;
    });
  call.options.mask = call.memory.emplace_back(std::move(mask.dense)).view();
  heed::test::Naive naive = heed::test::naive_attention(call.query, call.key, call.value, call.options);
  made.checked = {std::move(call), std::move(naive)};
  return made;
}

void compare(const MaskedCall& made, const std::string& target, Outcome& outcome) {
  const auto& [call, naive] = made.checked;
  heed::set_target(target);
  outcome.paths.start_call();
  const auto result = heed::attention(call.query, call.key, call.value, made.sparse);
  ASSERT_EQ(result.kernel, Kernel::fused);
  const std::string failure = heed::test::compare_results(
      result, call.options, naive, heed::test::fused_rounding(call.query.dtype(), call.options, target),
      outcome.tally, [&](auto b, auto h, auto i) { return outcome.paths.fell_back(b, h, i); });
  ASSERT_EQ(failure, "") << describe(call);
  outcome.paths.end_call();
  const auto dense = heed::attention(call.query, call.key, call.value, call.options);
  ASSERT_TRUE(heed::test::same_bits(result, dense)) << describe(call);
}

TEST(SparseMaskCalls, AgreeWithTheDefinitionsAndWithBooleansBitForBit) {
  const EachTarget targets;
  std::map<std::string, Outcome> outcomes;
  for (const Kind& kind :
       {Kind{heed::test::small_calls(), 2400}, Kind{heed::test::tile_calls(), 300},
        Kind{heed::test::decoding_calls(), 250}, Kind{heed::test::poisoned_decoding_calls(), 50},
        Kind{heed::test::span_calls(), 60}, Kind{heed::test::document_calls(), 60},
        Kind{heed::test::long_calls(), 8}, Kind{heed::test::uncached_calls(), 10},
        Kind{heed::test::small_calls(), 700, Masks::grids}})
    for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
      MaskedCall made = masked_call(index, kind.limits, kind.masks);
      SCOPED_TRACE(made.kind);
      made.sparse.kernel = made.checked.call.options.kernel = Kernel::fused;
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 8)) continue;
        SCOPED_TRACE(target);
        compare(made, target, outcomes[target]);
        if (HasFatalFailure()) return;
      }
    }
  for (const auto& [target, outcome] : outcomes) {
    SCOPED_TRACE(target);
    outcome.paths.expect_each_taken(Path::mask_empty, Path::mask_cut, target, targets.least_paths(target));
    heed::test::expect_tight(outcome.tally, 0.95);
  }
}

// Up to a third of the calls read keys by the mask: every eighth by choice, others for another mask or for an
// option.
TEST(SparseMaskCalls, OfGatheredKeysAgreeWithTheDefinitionsForAnyThreads) {
  const EachTarget targets;
  std::map<std::string, Outcome> outcomes;
  std::int64_t calls = 0, gathered = 0;
  for (const Kind& kind :
       {Kind{heed::test::small_calls(), 1200}, Kind{heed::test::tile_calls(), 200},
        Kind{heed::test::decoding_calls(), 200}, Kind{heed::test::poisoned_decoding_calls(), 50},
        Kind{heed::test::span_calls(), 30}, Kind{heed::test::document_calls(), 60}})
    for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
      MaskedCall made = masked_call(index, kind.limits, Masks::gathered);
      const RandomCall& call = made.checked.call;
      SCOPED_TRACE(made.kind);
      made.sparse.kernel = Kernel::fused;
      const heed::AttentionPlan plan = heed::plan_attention(call.query, call.key, call.value, made.sparse);
      ++calls;
      gathered += !plan.passes.empty() && plan.passes[0].because.starts_with("Lists have room") ? 1 : 0;
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 8)) continue;
        SCOPED_TRACE(target);
        heed::set_target(target);
        made.sparse.threads = 1;
        const auto result = heed::attention(call.query, call.key, call.value, made.sparse);
        ASSERT_EQ(
            heed::test::compare_results(result, call.options, made.checked.naive,
                                        heed::test::fused_rounding(call.query.dtype(), call.options, target),
                                        outcomes[target].tally),
            "")
            << describe(call);
        made.sparse.threads = 3;
        ASSERT_TRUE(
            heed::test::same_bits(result, heed::attention(call.query, call.key, call.value, made.sparse)))
            << describe(call);
      }
    }
  EXPECT_GE(3 * gathered, (calls < 100 ? 1 : 2) * calls);  // of 30 calls, 18 were gathered
}

bool same_gradients(const heed::AttentionGradients& a, const heed::AttentionGradients& b) {
  using heed::test::same_bits;
  return same_bits(a.query, b.query) && same_bits(a.key, b.key) && same_bits(a.value, b.value) &&
         same_bits(a.bias, b.bias) && same_bits(a.sinks, b.sinks);
}

void compare_gradients(const BackwardCall& made, const AttentionOptions& sparse, const std::string& target,
                       Outcome& outcome) {
  heed::set_target(target);
  outcome.paths.start_call();
  const auto gradients = heed::attention_backward(made.inputs, sparse, made.request);
  ASSERT_EQ(gradients.kernel, Kernel::fused);
  const std::string failure = heed::test::compare_gradients(
      made, gradients, heed::test::gradient_rounding(made, target), outcome.tally,
      [&](auto b, auto h, auto i) { return outcome.paths.gradients_fell_back(b, h, i); });
  ASSERT_EQ(failure, "") << describe(made.call);
  outcome.paths.end_call();
  const auto dense = heed::attention_backward(made.inputs, made.call.options, made.request);
  ASSERT_TRUE(same_gradients(gradients, dense)) << describe(made.call);
}

TEST(SparseMaskGradients, AgreeWithTheDefinitionsAndWithBooleansBitForBit) {
  const EachTarget targets;
  std::map<std::string, Outcome> outcomes;
  for (const Kind& kind :
       {Kind{heed::test::small_calls(), 2500}, Kind{heed::test::tile_calls(), 60},
        Kind{heed::test::long_gradient_calls(), 8}, Kind{heed::test::matrix_gradient_calls(), 60},
        Kind{heed::test::bare_gradient_calls(), 60}, Kind{heed::test::threshold_calls(), 100},
        Kind{heed::test::document_calls(), 250}, Kind{heed::test::small_calls(), 600, Masks::grids},
        Kind{heed::test::small_calls(), 600, Masks::lists}})
    for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
      MaskedCall masked = masked_call(index, kind.limits, kind.masks);
      SCOPED_TRACE(masked.kind);
      BackwardCall made = heed::test::BackwardCallMaker(std::move(masked.checked)).make();
      made.inputs.grad_weights.reset();
      made.call.options.kernel = masked.sparse.kernel = Kernel::fused;
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 8)) continue;
        SCOPED_TRACE(target);
        compare_gradients(made, masked.sparse, target, outcomes[target]);
        if (HasFatalFailure()) return;
      }
    }
  for (const auto& [target, outcome] : outcomes) {
    SCOPED_TRACE(target);
    outcome.paths.expect_each_taken(Path::mask_empty, Path::mask_cut, target, targets.least_paths(target));
    heed::test::expect_tight(outcome.tally, 0.95);
  }
}

std::int64_t mask_tiles(const heed::test::PathWatch& paths) {
  return paths.taken_now(Path::mask_empty) + paths.taken_now(Path::mask_full) +
         paths.taken_now(Path::mask_cut);
}

// Calls with a bias, a decay or dropout go by the mask, as forward.
TEST(SparseMaskGradients, OfGatheredKeysAgreeWithTheDefinitionsForAnyThreads) {
  const EachTarget targets;
  std::map<std::string, Outcome> outcomes;
  std::int64_t calls = 0, gathered = 0;
  for (const Kind& kind :
       {Kind{heed::test::small_calls(), 500}, Kind{heed::test::tile_calls(), 40},
        Kind{heed::test::long_gradient_calls(), 8}, Kind{heed::test::matrix_gradient_calls(), 40},
        Kind{heed::test::threshold_calls(), 40}, Kind{heed::test::document_calls(), 100}})
    for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
      MaskedCall masked = masked_call(index, kind.limits, Masks::gathered);
      SCOPED_TRACE(masked.kind);
      AttentionOptions sparse = masked.sparse;
      BackwardCall made = heed::test::BackwardCallMaker(std::move(masked.checked)).make();
      made.inputs.grad_weights.reset();
      sparse.kernel = Kernel::fused;
      const heed::AttentionPlan plan = heed::plan_attention_backward(made.inputs, sparse, made.request);
      const bool gathers = !plan.passes.empty() && plan.passes[0].because.starts_with("Lists have room");
      ++calls;
      gathered += gathers ? 1 : 0;
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 8)) continue;
        SCOPED_TRACE(target);
        Outcome& outcome = outcomes[target];
        heed::set_target(target);
        outcome.paths.start_call();
        sparse.threads = 1;
        const auto gradients = heed::attention_backward(made.inputs, sparse, made.request);
        ASSERT_EQ(heed::test::compare_gradients(made, gradients, heed::test::gradient_rounding(made, target),
                                                outcome.tally),
                  "")
            << describe(made.call);
        ASSERT_TRUE(!gathers || mask_tiles(outcome.paths) == 0) << describe(made.call);
        outcome.paths.end_call();
        for (sparse.threads = 2; sparse.threads <= 3; ++sparse.threads)
          ASSERT_TRUE(same_gradients(gradients, heed::attention_backward(made.inputs, sparse, made.request)))
              << describe(made.call);
      }
    }
  EXPECT_GE(3 * gathered, (calls < 100 ? 1 : 2) * calls);
  for (const auto& [target, outcome] : outcomes) {
    SCOPED_TRACE(target);
    outcome.paths.expect_each_taken(Path::backward_plain, Path::backward_recomputed_lse, target,
                                    targets.least_paths(target));
  }
}

// The reference kernel reads a sparse mask key by key.
TEST(SparseMaskCalls, OfTheReferenceAreThoseOfBooleans) {
  heed::test::CallLimits limits;
  for (std::uint64_t index = 0; index < heed::test::share_of(600); ++index) {
    MaskedCall made = masked_call(index, limits);
    SCOPED_TRACE(made.kind);
    made.sparse.kernel = Kernel::reference;
    const RandomCall& call = made.checked.call;
    const auto result = heed::attention(call.query, call.key, call.value, made.sparse);
    AttentionOptions dense_options = call.options;
    dense_options.kernel = Kernel::reference;
    const auto dense = heed::attention(call.query, call.key, call.value, dense_options);
    ASSERT_TRUE(heed::test::same_bits(result, dense)) << describe(call);
  }
}

}  // namespace
