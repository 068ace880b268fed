// A decay over ranks. It has a number for each position of the whole call, so every rank has all of them.
// Results and gradients are compared with one process, which decay_test compares with the formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "describe_call.hpp"
#include "fused_calls.hpp"
#include "mpi_layer.hpp"
#include "sharded_calls.hpp"

namespace {

using heed::AttentionGradients;
using heed::AttentionResult;
using heed::Dims;
using heed::DType;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::distributed::Choice;
using heed::distributed::Layout;
using heed::distributed::Scheme;
using heed::test::BackwardCall;
using heed::test::CallLimits;
using heed::test::Draw;

constexpr std::uint64_t kSeed = 20261128;

// Gives the call a decay of some shape that broadcasts to [B, H, L].
void add_decay(heed::test::CheckedCall& checked, Draw& draw) {
  heed::AttentionOptions& options = checked.call.options;
  const std::int64_t batch = checked.naive.batch, heads = checked.naive.heads;
  const std::int64_t more = options.query_segments ? 0 : draw.between(0, 5);
  const std::int64_t positions = checked.call.key.size(-2) + more;
  const Dims shape = draw.pick(std::vector<Dims>{{positions},
                                                 {heads, positions},
                                                 {batch, 1, positions},
                                                 {batch, heads, positions},
                                                 {batch, heads, positions}});
  Tensor decay(shape, DType::f64);
  double sum = 0;
  for (double& c : decay.values<double>()) c = sum -= 0.2 * std::abs(draw.normal());
  const DType dtype = draw.pick(std::vector{DType::f64, DType::f32, DType::bf16});
  options.decay = checked.call.memory.emplace_back(Tensor::copy_of(decay, dtype));
}

// Late and reordered messages must change nothing.
void shuffle_messages(std::uint64_t index) {
  if (index % 2 == 0)
    heed::test::mpi_layer::shuffle(8 * index + static_cast<std::uint64_t>(heed::test::rank()));
}

Layout drawn_layout(const heed::test::RandomCall& call, Draw& draw) {
  const int ranks = heed::test::ranks();
  return {heed::test::random_sharding(draw, call.query.size(-2), ranks),
          heed::test::random_sharding(draw, call.key.size(-2), ranks)};
}

void compare_results(const CallLimits& limits, std::uint64_t count, std::set<Scheme>& taken) {
  for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
    heed::test::CheckedCall checked = heed::test::checked_call(kSeed, index, limits);
    Draw draw(kSeed + 1, index);
    add_decay(checked, draw);
    heed::test::RandomCall& call = checked.call;
    constexpr auto kPairs = static_cast<std::uint32_t>(Need::weights | Need::scores | Need::masked_mass);
    std::vector<Scheme> schemes{Scheme::automatic, Scheme::gather, Scheme::ulysses};
    if (index % 3 != 0) {
      schemes = {Scheme::ring, Scheme::decode, Scheme::gather};
      call.options.need = static_cast<Need>(static_cast<std::uint32_t>(call.options.need) & ~kPairs);
    }
    const Layout layout = drawn_layout(call, draw);
    const heed::test::ShardedCall shard(call, layout);
    shuffle_messages(index);
    const auto own = heed::distributed::attention(MPI_COMM_WORLD, shard.query, shard.key, shard.value, layout,
                                                  shard.options, {draw.pick(schemes)});
    heed::test::mpi_layer::off();
    taken.insert(own.scheme);
    const AttentionResult whole = heed::test::whole_of(own, layout, call.options);
    std::string failure;
    if (heed::test::rank() == 0) {
      const AttentionResult one = heed::attention(Tensor::copy_of(call.query), Tensor::copy_of(call.key),
                                                  Tensor::copy_of(call.value), call.options);
      failure = heed::test::other_bits(whole, one, call.options);
    }
    ASSERT_EQ(heed::test::agreed(failure), "") << "call " << index << " by " << name_of(own.scheme) << "\n"
                                               << heed::test::describe(call);
  }
}

TEST(DistributedDecay, ResultsAreThoseOfOneProcess) {
  std::set<Scheme> taken;
  compare_results(heed::test::small_calls(), 60, taken);
  compare_results({}, 40, taken);
  compare_results(heed::test::document_calls(), 20, taken);
  compare_results(heed::test::span_calls(), 20, taken);
  if (heed::test::share_of(100) == 100) {
    EXPECT_EQ(taken.size(), 4u);
  }
}

// The gradient by a decay that heads or entries share is a sum over ranks, rounded in another order: each of
// its terms is a sum in f64 of f32 numbers of size 1 or so.
std::string compare_gradients(const AttentionGradients& whole, const BackwardCall& made) {
  const AttentionGradients one = heed::test::one_process(made);
  const std::string bits = heed::test::other_bits(whole, one);
  if (!bits.empty() || !made.request.decay) return bits;
  if (whole.decay.shape() != one.decay.shape() || whole.decay.dtype() != one.decay.dtype())
    return "dC has another shape than in one process";
  const Dims& shape = made.call.options.decay->shape();
  const bool own_heads = made.naive.heads == 1 || (shape.size() > 1 && shape[shape.size() - 2] > 1);
  const bool own_entries = made.naive.batch == 1 || (shape.size() > 2 && shape[0] > 1);
  const bool is_rounded = one.decay.dtype() == DType::bf16;
  const double most = own_heads && own_entries ? 0 : is_rounded ? 0x1p-7 : 1e-6;
  const Tensor a = Tensor::copy_of(whole.decay, DType::f64), b = Tensor::copy_of(one.decay, DType::f64);
  for (std::size_t i = 0; i < a.values<double>().size(); ++i) {
    const double x = a.values<double>()[i], y = b.values<double>()[i];
    if (!(x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= most * (1 + std::abs(y))))
      return "dC has " + std::to_string(x) + "; one process has " + std::to_string(y);
  }
  return "";
}

void compare_backward(const CallLimits& limits, std::uint64_t count) {
  for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
    heed::test::CheckedCall checked = heed::test::checked_call(kSeed, index, limits);
    Draw draw(kSeed + 2, index);
    add_decay(checked, draw);
    BackwardCall made = heed::test::BackwardCallMaker(std::move(checked)).make();
    made.request.decay = index % 3 != 0;
    const bool by_keys =
        !made.request.bias && !made.request.sinks && !made.request.decay && !made.inputs.grad_weights;
    const Scheme scheme = by_keys ? draw.pick(std::vector{Scheme::gather, Scheme::ulysses})
                                  : draw.pick(std::vector{Scheme::automatic, Scheme::ulysses});
    const Layout layout = drawn_layout(made.call, draw);
    const heed::test::BackwardShard shard(made, layout);
    shuffle_messages(index);
    const auto own = heed::distributed::attention_backward(MPI_COMM_WORLD, shard.inputs, layout,
                                                           shard.forward.options, made.request, {scheme});
    heed::test::mpi_layer::off();
    const AttentionGradients whole = heed::test::whole_of(own, made, layout);
    const std::string failure = heed::test::rank() == 0 ? compare_gradients(whole, made) : "";
    ASSERT_EQ(heed::test::agreed(failure), "") << "call " << index << " by " << name_of(own.scheme) << "\n"
                                               << heed::test::describe(made.call);
  }
}

TEST(DistributedDecay, GradientsAreThoseOfOneProcess) {
  compare_backward(heed::test::small_calls(), 60);
  compare_backward({}, 40);
  compare_backward(heed::test::document_calls(), 20);
}

// Every rank has the gradient by the decay.
TEST(DistributedDecay, ItsGradientIsOnEveryRank) {
  const int ranks = heed::test::ranks();
  const Layout layout{heed::Sharding::zigzag(40, ranks), heed::Sharding::striped(40, ranks, 3)};
  const std::int64_t rows = layout.query.rows(heed::test::rank()), keys = layout.key.rows(heed::test::rank());
  const Tensor query = heed::test::normal_tensor({1, 4, 40, 8}, 1, DType::f32),
               key = heed::test::normal_tensor({1, 2, 40, 8}, 2, DType::f32);
  Tensor decay({4, 40}, DType::f64);
  for (std::size_t i = 0; i < 160; ++i) decay.values<double>()[i] = -0.1 * static_cast<double>(i % 40);
  const heed::AttentionOptions options{.causal = true, .decay = decay};
  const Tensor q = layout.query.shard(query, 2, heed::test::rank()),
               k = layout.key.shard(key, 2, heed::test::rank());
  const auto forward = heed::distributed::attention(MPI_COMM_WORLD, q, k, k, layout,
                                                    {.causal = true, .decay = decay, .need = Need::lse});
  const auto own = heed::distributed::attention_backward(
      MPI_COMM_WORLD, {q, k, k, forward.output, forward.lse, q}, layout, options, {.decay = true});
  EXPECT_EQ(own.query.shape(), (Dims{1, 4, rows, 8}));
  EXPECT_EQ(own.key.shape(), (Dims{1, 2, keys, 8}));
  const AttentionResult whole =
      heed::attention(query, key, key, {.causal = true, .decay = decay, .need = Need::lse});
  const AttentionGradients one =
      heed::attention_backward({query, key, key, whole.output, whole.lse, query}, options, {.decay = true});
  EXPECT_TRUE(heed::test::same_bits(own.decay, one.decay));
}

}  // namespace
