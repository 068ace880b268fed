// Compares attention over ranks with the definitions in f64, then with the bits of one process.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "attention_support.hpp"
#include "checked_call.hpp"
#include "compare_results.hpp"
#include "describe_call.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "heed/distributed/attention.hpp"
#include "mpi_layer.hpp"
#include "sharded_calls.hpp"
#include "support.hpp"

namespace {

using heed::AttentionResult;
using heed::Kernel;
using heed::Need;
using heed::Tensor;
using heed::distributed::Choice;
using heed::distributed::Layout;
using heed::distributed::Scheme;
using heed::test::CallLimits;
using heed::test::Draw;
using heed::test::RandomCall;

constexpr std::uint64_t kSeed = 20261125;

// A random layout and scheme for a call.
struct Drawn {
  Layout layout;
  Choice choice;
};

Drawn drawn(const RandomCall& call, std::uint64_t index) {
  Draw draw(kSeed + 1, index);
  const int ranks = heed::test::ranks();
  const bool has_pairs = has(call.options.need, Need::weights) || has(call.options.need, Need::scores) ||
                         has(call.options.need, Need::masked_mass);
  std::vector<Scheme> schemes{Scheme::automatic, Scheme::gather, Scheme::ulysses};
  if (!has_pairs)
    schemes = {Scheme::automatic, Scheme::gather, Scheme::ring, Scheme::ring, Scheme::decode, Scheme::decode};
  return {{heed::test::random_sharding(draw, call.query.size(-2), ranks),
           heed::test::random_sharding(draw, call.key.size(-2), ranks)},
          {draw.pick<Scheme>(schemes), false}};
}

heed::test::Rounding rounding_of(const AttentionResult& result, const RandomCall& call) {
  if (result.kernel == Kernel::reference) return {};
  return heed::test::fused_rounding(call.query.dtype(), call.options, std::string(result.isa));
}

// The number of calls that each scheme computed, over all tests.
std::map<Scheme, int>& calls_by_scheme() {
  static std::map<Scheme, int> calls;
  return calls;
}

// Removes requests that ring and decode cannot answer.
void ask_for_no_pairs(heed::AttentionOptions& options) {
  constexpr auto kPairs = static_cast<std::uint32_t>(Need::weights | Need::scores | Need::masked_mass);
  options.need = static_cast<Need>(static_cast<std::uint32_t>(options.need) & ~kPairs);
}

// Every rank draws the same calls.
void compare_calls(const CallLimits& limits, std::uint64_t count) {
  heed::test::RowTally tally;
  for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
    heed::test::CheckedCall checked = heed::test::checked_call(kSeed, index, limits);
    if (index % 3 != 0) ask_for_no_pairs(checked.call.options);
    const RandomCall& call = checked.call;
    const auto [layout, choice] = drawn(call, index);
    const heed::test::ShardedCall shard(call, layout);
    // Late and reordered messages must change nothing.
    if (index % 2 == 0)
      heed::test::mpi_layer::shuffle(8 * index + static_cast<std::uint64_t>(heed::test::rank()));
    const auto own = heed::distributed::attention(MPI_COMM_WORLD, shard.query, shard.key, shard.value, layout,
                                                  shard.options, choice);
    heed::test::mpi_layer::off();
    ++calls_by_scheme()[own.scheme];
    const AttentionResult whole = heed::test::whole_of(own, layout, call.options);
    std::string failure;
    if (heed::test::rank() == 0) {
      const AttentionResult one = heed::attention(Tensor::copy_of(call.query), Tensor::copy_of(call.key),
                                                  Tensor::copy_of(call.value), call.options);
      failure = heed::test::compare_results(
          one.kernel == Kernel::reference || whole.isa.empty() ? one : whole, call.options, checked.naive,
          rounding_of(one, call), tally, [](auto, auto, auto) { return false; });
      if (failure.empty()) failure = heed::test::other_bits(whole, one, call.options);
    }
    failure = heed::test::agreed(failure);
    ASSERT_EQ(failure, "") << "call " << index << " by " << heed::distributed::name_of(own.scheme) << "\n"
                           << heed::test::describe(call);
  }
}

TEST(DistributedAttention, IsThatOfOneProcessInSmallCalls) { compare_calls(heed::test::small_calls(), 150); }
TEST(DistributedAttention, IsThatOfOneProcessByTheReference) { compare_calls({}, 60); }
TEST(DistributedAttention, IsThatOfOneProcessAcrossTiles) { compare_calls(heed::test::tile_calls(), 60); }

TEST(DistributedAttention, IsThatOfOneProcessAcrossSpans) { compare_calls(heed::test::span_calls(), 30); }
TEST(DistributedAttention, IsThatOfOneProcessInPackedSequences) {
  compare_calls(heed::test::document_calls(), 40);
}
// Runs after the other tests.
TEST(DistributedAttention, TookEveryScheme) {
  if (heed::test::share_of(100) != 100) GTEST_SKIP() << "a share of the calls need not take every scheme";
  for (const Scheme scheme : {Scheme::ring, Scheme::gather, Scheme::ulysses, Scheme::decode})
    EXPECT_GE(calls_by_scheme()[scheme], 1) << heed::distributed::name_of(scheme);
}

}  // namespace
