// Batch entries and heads are distributed as well as the sequence, over a grid of communicators.
#include <gtest/gtest.h>

#include <vector>

#include "attention_support.hpp"
#include "heed/distributed/attention.hpp"
#include "heed/random.hpp"
#include "ranks.hpp"

namespace {

using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::distributed::Layout;
using heed::distributed::Scheme;

// Ranks of odd number have the upper half of the heads.
class Grid {
 public:
  Grid() : half_(heed::test::rank() % 2) {
    MPI_Comm_split(MPI_COMM_WORLD, half_, heed::test::rank(), &comm_);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~Grid() { MPI_Comm_free(&comm_); }
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  [[nodiscard]] Layout layout(std::int64_t length) const {
    return {
        heed::Sharding::zigzag(length, size_), heed::Sharding::striped(length, size_, 3), 2, 8, 0, 4 * half_};
  }
  // This rank's half of a tensor's heads.
  [[nodiscard]] TensorView half(const TensorView& whole) const {
    const std::int64_t heads = whole.size(1) / 2;
    return whole.narrow(1, half_ * heads, heads);
  }
  [[nodiscard]] Tensor rows(const heed::Sharding& sharding, const TensorView& whole) const {
    return sharding.shard(half(whole), 2, rank_);
  }
  [[nodiscard]] MPI_Comm comm() const { return comm_; }

 private:
  int half_, rank_ = 0, size_ = 1;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

TEST(GridsOfRanks, HaveTheBitsOfOneProcess) {
  constexpr std::int64_t kLength = 131;
  heed::Generator generator(7);
  const Tensor query = heed::randn(generator, {2, 8, kLength, 24}),
               key = heed::randn(generator, {2, 4, kLength, 24}),
               value = heed::randn(generator, {2, 4, kLength, 28});
  heed::AttentionOptions options{.causal = true, .need = Need::lse | Need::received, .top_k = 3};
  options.dropout = {0.2, 11, 3};  // dropout depends on the head numbers of the whole call
  options.map = {5, 7};
  const heed::AttentionResult one = heed::attention(query, key, value, options);
  const Grid grid;
  const Layout layout = grid.layout(kLength);
  for (const Scheme scheme : {Scheme::ring, Scheme::gather, Scheme::ulysses, Scheme::decode}) {
    const auto own =
        heed::distributed::attention(grid.comm(), grid.rows(layout.query, query), grid.rows(layout.key, key),
                                     grid.rows(layout.key, value), layout, options, {scheme});
    SCOPED_TRACE(heed::distributed::name_of(scheme));
    EXPECT_TRUE(heed::test::same_bits(own.output, grid.rows(layout.query, one.output)));
    EXPECT_TRUE(heed::test::same_bits(own.top_k_index, grid.rows(layout.query, one.top_k_index)));
    EXPECT_TRUE(heed::test::same_bits(own.lse, grid.rows(layout.query, one.lse)));
    EXPECT_TRUE(heed::test::same_bits(own.received, grid.rows(layout.key, one.received)));
    EXPECT_TRUE(heed::test::same_bits(own.map, Tensor::copy_of(grid.half(one.map))));
  }
}

}  // namespace
