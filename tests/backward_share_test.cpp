// Gradients whose keys are distributed over ranks have the same bits as in one call.
#include "heed/attention/backward_share.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "backward_call.hpp"
#include "compare_gradients.hpp"
#include "describe_call.hpp"
#include "each_target.hpp"
#include "fused_calls.hpp"
#include "gradient_rounding.hpp"
#include "random_call.hpp"
#include "shared_call.hpp"
#include "support.hpp"

namespace {

using heed::AttentionBackwardInputs;
using heed::AttentionGradients;
using heed::AttentionOptions;
using heed::CallPart;
using heed::DType;
using heed::GradientShareViews;
using heed::GradientTask;
using heed::MutableTensorView;
using heed::PositionRange;
using heed::Tensor;
using heed::TensorView;
using heed::test::CallLimits;
using heed::test::Draw;
using heed::test::EachTarget;
using heed::test::message_of;
using heed::test::normal_tensor;
using heed::test::RandomCall;
using heed::test::same_bits;
using heed::test::SharedCall;
using heed::test::SharesOutcome;
using heed::test::whole_call;

constexpr std::uint64_t kSeed = 20261125;

void compare_with_whole(const AttentionBackwardInputs& inputs, const AttentionOptions& options, Draw& draw,
                        SharesOutcome& outcome) {
  const AttentionGradients whole = heed::attention_backward(inputs, options);
  SharedCall shared(inputs, options, whole_call(inputs.query), draw);
  if (!shared.join(draw.between(1, 5), outcome)) {
    ++outcome.out_of_range;
    return;
  }
  ASSERT_EQ(whole.recomputed_rows, 0);
  outcome.joined += !shared.tasks().empty();
  outcome.split += std::any_of(shared.tasks().begin(), shared.tasks().end(),
                               [](const GradientTask& task) { return task.splits > 1; });
  EXPECT_TRUE(same_bits(shared.gradients().query, whole.query)) << "query";
  EXPECT_TRUE(same_bits(shared.gradients().key, whole.key)) << "key";
  EXPECT_TRUE(same_bits(shared.gradients().value, whole.value)) << "value";
}

// Few heads and many keys, with lse small enough to normalise rows by.
CallLimits split_calls() {
  CallLimits limits = heed::test::small_calls();
  limits.batches = {1, 1, 2};
  limits.kv_heads = {1, 1, 2};
  limits.query_lengths = {1, 13, 40, 140, 400};
  limits.lengths = {769, 1700, 2500};
  limits.dims = {8, 16, 20, 33, 64};
  limits.families = heed::test::mostly_normal();
  return limits;
}

struct Kind {
  CallLimits limits;
  std::uint64_t count;
};

TEST(BackwardShares, JoinedHaveTheBitsOfTheWholeOnEveryTarget) {
  const EachTarget targets;
  std::map<std::string, SharesOutcome> outcomes;
  for (const Kind& kind : {Kind{heed::test::small_calls(), 400}, Kind{heed::test::tile_calls(), 60},
                           Kind{split_calls(), 60}, Kind{heed::test::matrix_gradient_calls(), 60},
                           Kind{heed::test::threshold_calls(), 40}, Kind{heed::test::document_calls(), 60}})
    for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
      RandomCall call = heed::test::random_call(kSeed, index, kind.limits);
      call.options.threads = 2;
      // Kernels read keys in place or packed, depending on their layout. Here the whole call and its shares
      // have the same layout.
      const Tensor key = Tensor::copy_of(call.key), value = Tensor::copy_of(call.value);
      AttentionOptions forward_options = call.options;
      forward_options.need = heed::Need::lse;
      forward_options.top_k = forward_options.received_last = 0;
      forward_options.map = {};
      const auto forward = heed::attention(call.query, key, value, forward_options);
      const Tensor grad = normal_tensor(forward.output.shape(), index, forward.output.dtype());
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 10)) continue;
        SCOPED_TRACE(target + ": " + describe(call));
        heed::set_target(target);
        Draw draw(kSeed + 1, index);
        compare_with_whole({call.query, key, value, forward.output, forward.lse, grad}, call.options, draw,
                           outcomes[target]);
        if (HasFailure()) return;
      }
    }
  for (const auto& [target, outcome] : outcomes) {
    SCOPED_TRACE(target);
    std::cout << target << ": joined " << outcome.joined << ", with several splits " << outcome.split
              << ", shares that need all keys " << outcome.needs_all_keys << ", that do not "
              << outcome.poisoned << ", calls out of range " << outcome.out_of_range << "\n";
    if (!heed::test::makes_all_calls()) continue;  // a share of the calls need not meet everything
    const std::uint64_t times = targets.least_paths(target) / 2;
    EXPECT_GE(outcome.joined, 5 * times);
    EXPECT_GE(outcome.split, times);
    EXPECT_GE(outcome.needs_all_keys, times / 2);
    EXPECT_GE(outcome.poisoned, times);
  }
}

TEST(BackwardShares, AreNearTheDefinitions) {
  const EachTarget targets;
  std::map<std::string, SharesOutcome> outcomes;
  for (const Kind& kind : {Kind{heed::test::tile_calls(), 30}, Kind{heed::test::long_gradient_calls(), 12},
                           Kind{heed::test::matrix_gradient_calls(), 12}})
    for (std::uint64_t index = 0; index < heed::test::share_of(kind.count); ++index) {
      heed::test::BackwardCall made = heed::test::backward_call(kSeed, index, kind.limits);
      made.inputs.grad_weights.reset();
      made.request = {};
      for (const std::string& target : targets.available()) {
        if (!targets.takes(target, index, 30)) continue;
        SCOPED_TRACE(target + ": " + describe(made.call));
        heed::set_target(target);
        Draw draw(kSeed + 2, index);
        SharedCall shared(made.inputs, made.call.options, whole_call(made.inputs.query), draw);
        if (!shared.join(3, outcomes[target])) continue;
        ++outcomes[target].joined;
        heed::test::RowTally tally;
        ASSERT_EQ(
            compare_gradients(made, shared.gradients(), heed::test::gradient_rounding(made, target), tally),
            "");
      }
    }
  if (!heed::test::makes_all_calls()) return;
  for (const auto& [target, outcome] : outcomes)
    EXPECT_GE(outcome.joined, targets.least_paths(target) < 100 ? 1U : 40U) << target;
}

// B 2, H 4, Hkv 2, Lq 20, Lk 3500, D 32: four splits per key head. A single head would have five.
struct LongCall {
  explicit LongCall(DType dtype = DType::f32)
      : query(normal_tensor({2, 4, 20, 32}, 1, dtype)),
        key(normal_tensor({2, 2, 3500, 32}, 2, dtype)),
        value(normal_tensor({2, 2, 3500, 32}, 3, dtype)),
        grad(normal_tensor({2, 4, 20, 32}, 4, dtype)),
        lengths(Tensor::from<std::int64_t>({3500, 3100}, {2})),
        options{.causal = true,
                .align = heed::Align::bottom_right,
                .window = {.left = 3000},
                .kv_lengths = lengths,
                .dropout = {.probability = 0.25, .seed = 5},
                .need = heed::Need::lse},
        forward(heed::attention(query, key, value, options)) {}

  [[nodiscard]] AttentionBackwardInputs inputs() const {
    return {query, key, value, forward.output, forward.lse, grad};
  }

  Tensor query, key, value, grad, lengths;
  AttentionOptions options;
  heed::AttentionResult forward;
  std::vector<PositionRange> rows{{0, 20}};
  CallPart whole{2, 4, 20, 0, 0, rows};
};

template <class View>
View of_head(const View& view, std::int64_t batch, std::int64_t head, std::int64_t heads) {
  return view.narrow(0, batch, 1).narrow(1, head, heads);
}

TEST(BackwardShares, OfAPartHaveTheBitsOfTheWhole) {
  const EachTarget targets;
  SharesOutcome outcome;
  Draw draw(kSeed, 7);
  for (const std::string& target : targets.available())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(target);
      heed::set_target(target);
      const LongCall call(dtype);
      const AttentionGradients whole = heed::attention_backward(call.inputs(), call.options);
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t kv = 0; kv < 2; ++kv) {
          const auto rows_of = [&](const Tensor& x) { return of_head(x.view(), b, 2 * kv, 2); };
          const auto keys_of_head = [&](const Tensor& x) { return of_head(x.view(), b, kv, 1); };
          AttentionOptions options = call.options;
          options.kv_lengths = call.lengths.view().narrow(0, b, 1);
          SharedCall shared({rows_of(call.query), keys_of_head(call.key), keys_of_head(call.value),
                             rows_of(call.forward.output), rows_of(call.forward.lse), rows_of(call.grad)},
                            options, {2, 4, 20, b, 2 * kv, {}}, draw);
          ASSERT_EQ(shared.tasks().size(), 4U);
          ASSERT_TRUE(shared.join(3, outcome));
          EXPECT_TRUE(same_bits(shared.gradients().query, rows_of(whole.query)));
          EXPECT_TRUE(same_bits(shared.gradients().key, keys_of_head(whole.key)));
          EXPECT_TRUE(same_bits(shared.gradients().value, keys_of_head(whole.value)));
        }
    }
  EXPECT_EQ(outcome.needs_all_keys, 0U);
}

// Kernel units differ in how they round bf16 below 2^-126.
TEST(BackwardShares, RoundAsTheUnitOfTheWholeDoes) {
  const EachTarget targets;
  SharesOutcome outcome;
  for (const std::string& target : targets.available()) {
    SCOPED_TRACE(target);
    heed::set_target(target);
    LongCall call(DType::bf16);
    call.options.scale = 1e-29;
    for (heed::BFloat16& g : call.grad.values<heed::BFloat16>()) g = heed::to_bfloat16(to_float(g) * 1e-7F);
    Draw draw(kSeed, 8);
    compare_with_whole(call.inputs(), call.options, draw, outcome);
  }
  EXPECT_EQ(outcome.joined, targets.available().size());
}

std::vector<GradientTask> tasks_of(const LongCall& call, const AttentionOptions& options,
                                   DType dtype = DType::f32) {
  return heed::gradient_tasks(call.query.shape(), call.key.shape(), call.value.shape(), dtype, options,
                              call.whole);
}

TEST(BackwardShares, ListWhatEachTaskComputes) {
  const LongCall call;
  const std::vector<GradientTask> tasks = tasks_of(call, call.options);
  ASSERT_EQ(tasks.size(), 16U);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const GradientTask& task = tasks[t];
    const auto at = static_cast<std::int64_t>(t);
    EXPECT_EQ(task.batch, at / 8);
    EXPECT_EQ(task.kv_head, at / 4 % 2);
    EXPECT_EQ(task.split, at % 4);
    EXPECT_EQ(task.splits, 4);
    EXPECT_EQ(task.rows, (PositionRange{0, 20}));
    const std::int64_t keys = task.batch == 0 ? 3500 : 3100;
    EXPECT_EQ(task.keys.begin, task.split == 0 ? 0 : tasks[t - 1].keys.end);
    EXPECT_TRUE(task.split < 3 || task.keys.end == keys);
    std::int64_t cells = 0;
    for (std::int64_t i = 0; i < 20; ++i)
      for (std::int64_t j = task.keys.begin; j < task.keys.end; ++j) {
        const std::int64_t position = i + keys - 20;
        cells += 2 * static_cast<std::int64_t>(j <= position && j >= position - 3000);
      }
    EXPECT_EQ(task.work, cells);
  }
}

TEST(BackwardShares, OfWhatTheFusedKernelDoesNotTakeThereAreNone) {
  const LongCall call;
  AttentionOptions options = call.options;
  EXPECT_TRUE(tasks_of(call, options, DType::f64).empty());
  options.kernel = heed::Kernel::reference;
  EXPECT_TRUE(tasks_of(call, options).empty());
}

TEST(BackwardShares, SayWhereF32DoesNotHoldARow) {
  LongCall call;
  AttentionOptions options = call.options;
  options.window = {};
  call.key.at<float>(0, 1, 1234, 3) = 1e30F;
  const std::vector<GradientTask> tasks = tasks_of(call, options);
  ASSERT_EQ(tasks.size(), 16U);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const std::vector<std::int64_t> mine{static_cast<std::int64_t>(t)};
    const bool has_it = tasks[t].batch == 0 && tasks[t].kv_head == 1 && tasks[t].keys.begin <= 1234 &&
                        1234 < tasks[t].keys.end;
    EXPECT_EQ(heed::attention_backward_share_into(call.inputs(), options, call.whole, mine, {}).out_of_range,
              has_it)
        << t;
  }
}

TEST(BackwardShares, ComputeWhatIsAskedForAlone) {
  const LongCall call;
  const std::vector<std::int64_t> mine{2, 9};
  Tensor key(call.key.shape()), value(call.value.shape()), key_alone(call.key.shape());
  std::vector<float> parts(2 * 20 * 2 * 32), parts_alone(parts.size());
  const auto compute = [&](const GradientShareViews& views) {
    (void)heed::attention_backward_share_into(call.inputs(), call.options, call.whole, mine, views);
  };
  compute({key, value, parts});
  compute({key_alone, {}, {}});
  compute({{}, {}, parts_alone});
  EXPECT_TRUE(same_bits(key, key_alone));
  EXPECT_EQ(parts, parts_alone);
}

TEST(BackwardShares, ThatDoNotFitAreRefused) {
  const LongCall call;
  const auto message = [&](const AttentionBackwardInputs& inputs, const CallPart& part,
                           const std::vector<std::int64_t>& mine, std::span<float> parts = {},
                           const AttentionOptions* options = nullptr) {
    return message_of([&] {
      (void)heed::attention_backward_share_into(inputs, options == nullptr ? call.options : *options, part,
                                                mine, {{}, {}, parts});
    });
  };
  EXPECT_EQ(message(call.inputs(), call.whole, {0, 3}), "no error");
  EXPECT_EQ(message(call.inputs(), call.whole, {0, 16}),
            "tasks[1] is 16; ascending numbers from 1, below 16, are expected");
  EXPECT_EQ(message(call.inputs(), call.whole, {3, 3}),
            "tasks[1] is 3; ascending numbers from 4, below 16, are expected");
  AttentionOptions options = call.options;
  options.kernel = heed::Kernel::reference;
  EXPECT_EQ(message(call.inputs(), call.whole, {0}, {}, &options),
            "tasks[0] is 0; ascending numbers from 0, below 0, are expected");
  std::vector<float> parts(100);
  EXPECT_EQ(message(call.inputs(), call.whole, {0, 3}, parts),
            "gradients.query_parts has 100 floats; 2560 floats for the parts of 2 tasks are expected");
  AttentionBackwardInputs inputs = call.inputs();
  inputs.grad_weights = call.query;
  EXPECT_EQ(
      message(inputs, call.whole, {0}),
      "grad_weights is given; no gradient of the weights is expected when keys are divided among shares");
  const std::string not_all = "part.rows are 20 of 25 rows; all rows are expected for gradients";
  CallPart longer = call.whole;
  longer.query_length = 25;
  EXPECT_EQ(message(call.inputs(), longer, {0}), not_all);
  EXPECT_EQ(message_of([&] {
              (void)heed::gradient_tasks(call.query.shape(), call.key.shape(), call.value.shape(), DType::f32,
                                         call.options, longer);
            }),
            not_all);
}

TEST(BackwardShares, PartsThatDoNotFitAreRefused) {
  const auto message = [](const TensorView& parts, const MutableTensorView& rows) {
    return message_of([&] { heed::add_gradient_parts(parts, DType::f32, {}, {}, rows); });
  };
  Tensor rows({2, 7, 8}), flat({7, 8}), wide({2, 7, 8}, DType::f64);
  const Tensor parts({3, 7, 2, 8});
  EXPECT_EQ(message(parts, rows), "no error");
  EXPECT_EQ(message(parts, flat), "grad_query has shape [7, 8]; 3 axes, [H, rows, D], are expected");
  EXPECT_EQ(message(parts, wide), "grad_query has dtype f64; f32, f16 or bf16 is expected");
  EXPECT_EQ(message(Tensor({3, 7, 2, 8}, DType::bf16), rows), "parts has dtype bf16; f32 is expected");
  EXPECT_EQ(message(Tensor({3, 6, 2, 8}), rows),
            "parts has shape [3, 6, 2, 8]; [3, 7, 2, 8], [splits, rows, H, D], is expected");
  EXPECT_EQ(message(Tensor({0, 7, 2, 8}), rows),
            "parts has shape [0, 7, 2, 8]; [1, 7, 2, 8], [splits, rows, H, D], is expected");
  EXPECT_EQ(message(Tensor({3, 7, 8, 2}).view().transpose(2, 3), rows),
            "parts has strides [112, 16, 1, 2]; stride 1 is expected for the last axis");
  Tensor same({1, 7, 2, 8});
  const MutableTensorView own_rows = same.mutable_view().select(0, 0).transpose(0, 1);
  EXPECT_EQ(message(same, own_rows), "grad_query overlaps parts in memory; separate memory is expected");
  const auto message_of_numbers = [&](const AttentionOptions& options, DType grad_output) {
    return message_of([&] { heed::add_gradient_parts(parts, grad_output, options, {}, rows); });
  };
  EXPECT_EQ(message_of_numbers({}, static_cast<DType>(77)),
            "grad_output has dtype 77; f64, f32, f16 or bf16 is expected");
  EXPECT_EQ(message_of_numbers({.scale = std::nan("")}, DType::f32),
            "scale is nan; a finite number is expected");
  EXPECT_EQ(message_of_numbers({.threads = -1}, DType::f32),
            "threads is -1; 0 (all of the machine) or more is expected");
}

}  // namespace
