// Compares gradients over ranks with the definitions in f64, then with the bits of one process.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "attention_support.hpp"
#include "backward_call.hpp"
#include "compare_gradients.hpp"
#include "describe_call.hpp"
#include "each_target.hpp"
#include "fused_calls.hpp"
#include "gradient_rounding.hpp"
#include "head_out_of_range.hpp"
#include "heed/distributed/attention.hpp"
#include "mpi_layer.hpp"
#include "sharded_calls.hpp"
#include "support.hpp"

namespace {

using heed::AttentionBackwardInputs;
using heed::AttentionGradients;
using heed::DType;
using heed::Kernel;
using heed::Tensor;
using heed::TensorView;
using heed::distributed::Choice;
using heed::distributed::Layout;
using heed::distributed::Scheme;
using heed::test::BackwardCall;
using heed::test::BackwardShard;
using heed::test::CallLimits;
using heed::test::Draw;

constexpr std::uint64_t kSeed = 20261126;

std::string compare(const AttentionGradients& whole, const BackwardCall& made, heed::test::RowTally& tally) {
  const bool exact = whole.kernel == Kernel::reference;
  const heed::test::Rounding rounding =
      exact ? heed::test::Rounding{} : heed::test::gradient_rounding(made, whole.isa);
  const std::string failure =
      heed::test::GradientComparison(made, rounding, tally, [&](auto, auto, auto) { return exact; })(whole);
  return failure.empty() ? heed::test::other_bits(whole, heed::test::one_process(made)) : failure;
}

void compare_calls(const CallLimits& limits, std::uint64_t count) {
  heed::test::RowTally tally;
  for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
    const BackwardCall made = heed::test::backward_call(kSeed, index, limits);
    Draw draw(kSeed + 1, index);
    const int ranks = heed::test::ranks();
    const Layout layout{heed::test::random_sharding(draw, made.call.query.size(-2), ranks),
                        heed::test::random_sharding(draw, made.call.key.size(-2), ranks)};
    const bool by_keys = !made.request.bias && !made.request.sinks && !made.inputs.grad_weights;
    std::vector<Scheme> schemes{Scheme::automatic, Scheme::ulysses};
    if (by_keys) schemes = {Scheme::automatic, Scheme::gather, Scheme::gather, Scheme::ulysses};
    const Choice choice{draw.pick<Scheme>(schemes)};
    const BackwardShard shard(made, layout);
    // Late and reordered messages must change nothing.
    if (index % 2 == 0)
      heed::test::mpi_layer::shuffle(8 * index + static_cast<std::uint64_t>(heed::test::rank()));
    const auto own = heed::distributed::attention_backward(MPI_COMM_WORLD, shard.inputs, layout,
                                                           shard.forward.options, made.request, choice);
    heed::test::mpi_layer::off();
    const AttentionGradients whole = heed::test::whole_of(own, made, layout);
    const std::string failure =
        heed::test::agreed(heed::test::rank() == 0 ? compare(whole, made, tally) : "");
    ASSERT_EQ(failure, "") << "call " << index << " by " << heed::distributed::name_of(own.scheme) << "\n"
                           << heed::test::describe(made.call);
  }
}

TEST(DistributedGradients, AreThoseOfOneProcessInSmallCalls) {
  compare_calls(heed::test::small_calls(), 150);
}
TEST(DistributedGradients, AreThoseOfOneProcessByTheReference) { compare_calls({}, 60); }
TEST(DistributedGradients, AreThoseOfOneProcessAcrossTiles) { compare_calls(heed::test::tile_calls(), 40); }
TEST(DistributedGradients, AreThoseOfOneProcessOfDocuments) {
  compare_calls(heed::test::document_calls(), 20);
}

// A rank without the head whose numbers exceed f32 need not know about it.
TEST(DistributedGradients, HaveTheBitsOfOneProcessBesideAHeadOutOfRange) {
  const heed::test::EachTarget targets;
  for (const std::string& target : targets.available())
    for (const heed::DType dtype : {heed::DType::f32, heed::DType::f16, heed::DType::bf16})
      for (const Scheme scheme : {Scheme::gather, Scheme::ulysses}) {
        heed::set_target(target);
        heed::test::HeadOutOfRange call(dtype);
        BackwardCall made;
        made.call.query = call.query.mutable_view();
        made.call.key = call.key.mutable_view();
        made.call.value = call.value.mutable_view();
        made.call.options = call.options;
        made.inputs = call.inputs();
        const int ranks = heed::test::ranks();
        const Layout layout{heed::Sharding::zigzag(20, ranks), heed::Sharding::striped(800, ranks, 5)};
        const BackwardShard shard(made, layout);
        const auto own = heed::distributed::attention_backward(MPI_COMM_WORLD, shard.inputs, layout,
                                                               shard.forward.options, {}, {scheme, true});
        const AttentionGradients whole = heed::test::whole_of(own, made, layout);
        const std::string failure = heed::test::agreed(
            heed::test::rank() == 0 ? heed::test::other_bits(whole, heed::test::one_process(made)) : "");
        EXPECT_EQ(failure, "") << target << ", " << name_of(dtype) << " by " << name_of(scheme);
        EXPECT_GT(own.recomputed_rows, 0);
      }
}

// docs/distributed.md shows these lines word for word (tests/scripts/documents.py compares them).
TEST(DistributedGradients, AreMadeAsTheDocumentSays) {
  const std::int64_t length = 9;
  const int ranks = heed::test::ranks();
  const std::int64_t rows = heed::Sharding::zigzag(length, ranks).rows(heed::test::rank());
  const Tensor query({1, 2, rows, 8}, heed::DType::f32), key({1, 1, rows, 8}, heed::DType::f32);
  const Tensor value({1, 1, rows, 8}, heed::DType::f32), slope({1, 2, rows, 8}, heed::DType::f32);

  const heed::distributed::Layout layout{heed::Sharding::zigzag(length, ranks),
                                         heed::Sharding::zigzag(length, ranks)};
  // query [B, H, layout.query.rows(rank), D]; key and value [B, Hkv, layout.key.rows(rank), D | Dv]
  const auto result =
      heed::distributed::attention(MPI_COMM_WORLD, query, key, value, layout,
                                   {.causal = true, .need = heed::Need::lse | heed::Need::entropy});
  const auto gradients = heed::distributed::attention_backward(
      MPI_COMM_WORLD, {query, key, value, result.output, result.lse, slope}, layout, {.causal = true});

  EXPECT_EQ(result.entropy.shape(), (heed::Dims{1, 2, rows}));
  EXPECT_EQ(gradients.key.shape(), key.shape());
}

TEST(DistributedGradients, SharedGradientsAreZerosInACallWithoutEntries) {
  const int ranks = heed::test::ranks();
  const Layout layout{heed::Sharding::zigzag(40, ranks), heed::Sharding::striped(40, ranks, 3)};
  const std::int64_t rows = layout.query.rows(heed::test::rank()), keys = layout.key.rows(heed::test::rank());
  const Tensor q({0, 4, rows, 8}, DType::f32), k({0, 4, keys, 8}, DType::f32), lse({0, 4, rows}, DType::f32);
  const Tensor decay({4, 40}, DType::f32), sinks({4}, DType::f32), bias({4, rows, 40}, DType::f32);
  Tensor by_decay = heed::test::normal_tensor({4, 40}, 1, DType::f32),
         by_sinks = heed::test::normal_tensor({4}, 2, DType::f32),
         by_bias = heed::test::normal_tensor({4, rows, 40}, 3, DType::f32);
  heed::AttentionGradientViews views;
  views.decay = by_decay.mutable_view();
  views.sinks = by_sinks.mutable_view();
  views.bias = by_bias.mutable_view();
  (void)heed::distributed::attention_backward_into(MPI_COMM_WORLD, {q, k, k, q, lse, q}, layout,
                                                   {.bias = bias, .decay = decay, .sinks = sinks}, views, {});
  EXPECT_TRUE(heed::test::same_bits(by_decay, Tensor({4, 40}, DType::f32)));
  EXPECT_TRUE(heed::test::same_bits(by_sinks, Tensor({4}, DType::f32)));
  EXPECT_TRUE(heed::test::same_bits(by_bias, Tensor({4, rows, 40}, DType::f32)));
}

}  // namespace
