// Errors over ranks: all ranks refuse, with the same message.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "heed/distributed/attention.hpp"
#include "ranks.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::Need;
using heed::Sharding;
using heed::Tensor;
using heed::distributed::Choice;
using heed::distributed::Layout;
using heed::distributed::Scheme;
using heed::test::message_of;
using heed::test::rank;

// Nine rows and keys on three ranks.
struct Call {
  Layout layout{Sharding::contiguous(9, 3), Sharding::contiguous(9, 3)};
  Tensor query{{2, 3, 4}, DType::f32}, key{{1, 3, 4}, DType::f32}, value{{1, 3, 5}, DType::f32};
  AttentionOptions options;
  Choice choice;

  [[nodiscard]] std::string message() const {
    return message_of([&] {
      (void)heed::distributed::attention(MPI_COMM_WORLD, query, key, value, layout, options, choice);
    });
  }
};

TEST(DistributedCalls, AreRefusedOnAllRanksWhereOneIsWrong) {
  Call call;
  if (rank() == 1) call.query = Tensor({2, 2, 4}, DType::f32);
  const std::string own =
      "query has length 2 (shape [2, 2, 4]); 3 rows as layout.query gives rank 1 are expected";
  EXPECT_EQ(call.message(), rank() == 1 ? own : "rank 1: " + own);
  call = {};
  call.layout.query = Sharding::from_ranges({{{0, 4}}, {{4, 5}}, {{5, 9}}});
  if (rank() != 1) call.query = Tensor({2, 4, 4}, DType::f32);
  const std::string of_one =
      "query has length 3 (shape [2, 3, 4]); 1 row as layout.query gives rank 1 is expected";
  EXPECT_EQ(call.message(), rank() == 1 ? of_one : "rank 1: " + of_one);
  call = {};
  if (rank() == 2) call.options.softcap = -1;
  EXPECT_EQ(call.message(), std::string(rank() == 2 ? "" : "rank 2: ") +
                                "softcap is -1; a finite number of 0 (off) or more is expected");
}

TEST(DistributedCalls, AreRefusedForANegativeNumberOfEntriesOrHeads) {
  Call call;
  call.layout.batch = -1;
  EXPECT_EQ(call.message(),
            "layout.batch is -1 and layout.heads 0; 0 (those of query) or more is expected for both");
  call = {};
  call.layout.heads = -2;
  EXPECT_EQ(call.message(),
            "layout.batch is 0 and layout.heads -2; 0 (those of query) or more is expected for both");
}

TEST(DistributedCalls, AreRefusedWhereRanksDisagree) {
  Call call;
  call.options.causal = rank() == 0;
  EXPECT_EQ(call.message(), "options.causal is " + std::to_string(rank() == 0 ? 1 : 0) + " on rank " +
                                std::to_string(rank()) +
                                " and ranges from 0 to 1 over all ranks; equal values are expected");
  call = {};
  if (rank() == 0) call.options.need = Need::lse;
  EXPECT_NE(call.message().find("the requested results, as bits, is "), std::string::npos);
  call = {};
  const Tensor decay({9 + rank()});
  call.options.decay = decay;
  EXPECT_NE(call.message().find("the number of positions of options.decay, or 0, is "), std::string::npos);
  call = {};
  const std::array<std::int64_t, 1> lengths{rank()};
  call.options.kv_lengths = heed::TensorView(lengths.data(), DType::i64, {1});
  EXPECT_NE(call.message().find("the hash of kv_lengths is "), std::string::npos);
  call = {};
  call.layout.batch = rank();
  EXPECT_NE(call.message().find("layout.batch is "), std::string::npos);
}

// Each rank holds a mask, a bias or a function of its own numbers, of the same sizes.
TEST(DistributedCalls, AreRefusedWhereTheNumbersOfMasksDiffer) {
  const std::int64_t one = rank() == 1 ? 1 : 0;
  const auto disagree_on = [](const Call& call, const std::string& name) {
    const std::string message = call.message();
    EXPECT_EQ(message.substr(0, name.size() + 4), name + " is ");
    EXPECT_NE(message.find("equal values are expected"), std::string::npos);
  };
  Tensor allowed({1, 9}, DType::boolean), added({1, 9});
  allowed.at<bool>(0, one) = true;
  added.at<float>(0, one) = 1;
  Call call;
  call.options.mask = allowed;
  disagree_on(call, "the hash of mask");
  call = {};
  call.options.bias = added;
  disagree_on(call, "the hash of bias");
  Tensor list({9, 1}, DType::i64), bounds({9, 1, 2}, DType::i64), rows({9, 1}, DType::i64);
  list.at<std::int64_t>(4, 0) = bounds.at<std::int64_t>(4, 0, 1) = rows.at<std::int64_t>(4, 0) = one;
  const std::vector<std::pair<std::string, heed::TensorView>> arrays{{"w", added.view().select(0, 0)}};
  const std::array axes{heed::GridAxis{.size = 9, .window = 3 + 2 * one}};
  using heed::SparseMask;
  for (const SparseMask& mask :
       {SparseMask::row_intervals(bounds, 9), SparseMask::column_intervals(rows, 9),
        SparseMask::key_lists(list, 9), SparseMask::expression("j < " + std::to_string(4 + one), 9, 9),
        SparseMask::expression("w[j] > 0", 9, 9, arrays), heed::masks::neighbourhood(axes),
        heed::masks::sliding_window(2, one, 9, 9) & heed::masks::prefix_lm(3, 9, 9)}) {
    call = {};
    call.options.sparse_mask = mask;
    disagree_on(call, "the hash of sparse_mask");
  }
  call = {};
  call.options.score_mod = heed::ScoreMod::expression("s + w[0]", arrays);
  disagree_on(call, "the hash of score_mod's text and arrays");
  call = {};
  if (one == 1) call.options.scale = 0;
  disagree_on(call, "the bits of options.scale");
  call = {};
  call.choice.scheme = static_cast<Scheme>(5);
  EXPECT_EQ(call.message(), "choice.scheme is 5; 0 to 4 is expected");
}

TEST(DistributedCalls, AreRefusedWhereRanksAskForOtherSizes) {
  const int one = rank() == 2 ? 1 : 0;
  const auto differs = [&](const char* name, int own, int least, int most) {
    return std::string(name) + " is " + std::to_string(own) + " on rank " + std::to_string(rank()) +
           " and ranges from " + std::to_string(least) + " to " + std::to_string(most) +
           " over all ranks; equal values are expected";
  };
  Call call;
  call.options.top_k = 2 + one;
  EXPECT_EQ(call.message(), differs("the number of top keys", 2 + one, 2, 3));
  call = {};
  call.options.map = {3, 2 + one};
  EXPECT_EQ(call.message(), differs("the map's column count", 2 + one, 2, 3));
  call.options.map = {3 + one, 2};
  EXPECT_EQ(call.message(), differs("the map's row count", 3 + one, 3, 4));
  call = {};
  call.options.need = Need::scores;
  call.choice.scheme = Scheme::gather;
  if (one == 1) call.options.scores_stage = heed::ScoresStage::raw;
  EXPECT_NE(call.message().find("options.scores_stage is "), std::string::npos);
}

TEST(DistributedCalls, AreRefusedWhereTheSchemeCannotGiveAResult) {
  Call call;
  call.choice.scheme = Scheme::ring;
  call.options.need = Need::weights;
  EXPECT_EQ(call.message(),
            "outputs.weights is requested with scheme ring, which never has all weights of a row; gather or "
            "ulysses is expected");
  call.layout.key = Sharding::contiguous(9, 2);
  EXPECT_EQ(call.message().substr(0, 60), "layout.key has 2 ranks; the communicator's 3 are expected");
}

TEST(DistributedCalls, AreRefusedWhereMachinesCannotBe) {
  Call call;
  const auto message = [&](const heed::distributed::Machines& machines) {
    call.choice.machines = machines;
    return call.message();
  };
  const std::string start = "choice.machines.", above = "; a finite number above 0 is expected";
  const double nan = std::nan("");
  EXPECT_EQ(message({}), start + "flops_per_second is 0" + above);
  EXPECT_EQ(message({0, 1e9, 1e9}), start + "ranks_per_node is 0; at least 1 is expected");
  EXPECT_EQ(message({1, nan, 1e9}), start + "flops_per_second is nan" + above);
  EXPECT_EQ(message({1, 1e9, -1}), start + "bytes_per_second is -1" + above);
  EXPECT_EQ(message({1, 1e9, 1e9, 0}), start + "node_bytes_per_second is 0" + above);
  EXPECT_EQ(message({1, 1e9, 1e9, 1e9, nan}),
            start + "latency_seconds is nan; a finite number of at least 0 is expected");
  // The same when the caller chooses the scheme, and for gradients.
  call.choice.scheme = Scheme::gather;
  EXPECT_EQ(message({}), start + "flops_per_second is 0" + above);
  const Tensor output({2, 3, 5}, DType::f32), lse({2, 3}, DType::f32);
  EXPECT_EQ(message_of([&] {
              (void)heed::distributed::attention_backward(
                  MPI_COMM_WORLD, {call.query, call.key, call.value, output, lse, output}, call.layout, {},
                  {}, call.choice);
            }),
            start + "flops_per_second is 0" + above);
}

TEST(DistributedCalls, NeedMpi) {
  Call call;
  EXPECT_EQ(message_of([&] {
              (void)heed::distributed::attention(MPI_COMM_NULL, call.query, call.key, call.value,
                                                 call.layout);
            }),
            "comm is MPI_COMM_NULL; a communicator is expected");
}

TEST(DistributedGradients, AreRefusedWhereTheSchemeCannotGiveThem) {
  Call call;
  const Tensor output({2, 3, 5}, DType::f32), lse({2, 3}, DType::f32);
  const Tensor bias({1, 1, 9}, DType::f32);
  call.options.bias = bias;
  const heed::AttentionBackwardInputs inputs{call.query, call.key, call.value, output, lse, output};
  const auto message = [&](const Choice& choice, const heed::GradientRequest& request) {
    return message_of([&] {
      (void)heed::distributed::attention_backward(MPI_COMM_WORLD, inputs, call.layout, call.options, request,
                                                  choice);
    });
  };
  EXPECT_EQ(message({Scheme::ring}, {}), "scheme is ring; gather or ulysses is expected for gradients");
  EXPECT_EQ(message({Scheme::gather}, {.bias = true}),
            "scheme is gather, which computes gradients of query, key and value only and accepts no "
            "grad_weights; ulysses is expected");
  EXPECT_EQ(message({}, {.sinks = true}), "request.sinks is true, but the call has no sinks");
  EXPECT_EQ(message({}, {.decay = true}), "request.decay is true, but the call has no decay");
  const Tensor decay({9});
  call.options.decay = decay;
  EXPECT_EQ(message({Scheme::gather}, {.decay = true}),
            "scheme is gather, which computes gradients of query, key and value only and accepts no "
            "grad_weights; ulysses is expected");
}

TEST(DistributedGradients, OfSumsOverHeadsAreNoOnesBits) {
  Call call;
  call.key = Tensor({2, 3, 4}, DType::f32);
  call.value = Tensor({2, 3, 5}, DType::f32);
  const Tensor output({2, 3, 5}, DType::f32), lse({2, 3}, DType::f32), bias({1, 1, 9}, DType::f32);
  call.options.bias = bias;
  EXPECT_EQ(
      message_of([&] {
        (void)heed::distributed::attention_backward(
            MPI_COMM_WORLD, {call.query, call.key, call.value, output, lse, output}, call.layout,
            call.options, {.bias = true}, {Scheme::automatic, true});
      }),
      "deterministic is true, but gradients of a bias, sinks or a decay shared by heads or batch entries "
      "are requested; ranks sum these in another order than one process");
}

TEST(DistributedCalls, ThatMayHaveOtherBitsAreRefused) {
  Call call;
  call.choice.deterministic = true;
  const Tensor decay({9}), indices({9, 0}, DType::i64);
  call.options.decay = decay;
  const std::string of_decay =
      "deterministic is true, but there is a decay; one process skips keys that it leaves without weight, "
      "and "
      "ranks compute them";
  EXPECT_EQ(call.message(), of_decay);
  const Tensor output({2, 3, 5}, DType::f32), lse({2, 3}, DType::f32);
  const auto message_of_gradients = [&] {
    return message_of([&] {
      (void)heed::distributed::attention_backward(MPI_COMM_WORLD,
                                                  {call.query, call.key, call.value, output, lse, output},
                                                  call.layout, call.options, {}, call.choice);
    });
  };
  EXPECT_EQ(message_of_gradients(), of_decay);
  call.options.decay.reset();
  const std::string of_lists =
      "deterministic is true, but sparse_mask has lists or a neighbourhood, whose keys one process may "
      "gather "
      "and these ranks do not; ";
  const auto lists = [&](heed::Gather gather) { return heed::SparseMask::key_lists(indices, 9, {}, gather); };
  const std::array axes{heed::GridAxis{.size = 9, .window = 3}};
  for (const heed::SparseMask& mask : {lists(heed::Gather::automatic), heed::masks::neighbourhood(axes)}) {
    call.options.sparse_mask = mask;
    for (const Scheme scheme : {Scheme::ring, Scheme::decode}) {
      call.choice.scheme = scheme;
      EXPECT_EQ(call.message(), of_lists + "scheme gather or ulysses is expected");
    }
    for (const Scheme scheme : {Scheme::automatic, Scheme::gather, Scheme::ulysses}) {
      call.choice.scheme = scheme;
      EXPECT_EQ(call.message(), "no error");
    }
    call.choice.scheme = Scheme::automatic;
    EXPECT_EQ(message_of_gradients(), of_lists + "a mask of another form is expected");
  }
  call.options.sparse_mask = lists(heed::Gather::never);
  call.choice.scheme = Scheme::ring;
  EXPECT_EQ(call.message(), "no error");
}

// Ranks that share a gradient otherwise would send other messages, and wait for ever.
TEST(DistributedGradients, AreRefusedWhereRanksDisagreeWhoSharesThem) {
  Call call;
  const Tensor output({2, 3, 5}, DType::f32), lse({2, 3}, DType::f32);
  const Tensor shared({9}), of_heads({2, 9});
  call.options.decay = rank() == 0 ? shared.view() : of_heads.view();
  const std::string message = message_of([&] {
    (void)heed::distributed::attention_backward(MPI_COMM_WORLD,
                                                {call.query, call.key, call.value, output, lse, output},
                                                call.layout, call.options, {.decay = true}, {});
  });
  EXPECT_EQ(message, "the number of heads of gradients.decay, or 0, is " +
                         std::to_string(rank() == 0 ? 1 : 2) + " on rank " + std::to_string(rank()) +
                         " and ranges from 1 to 2 over all ranks; equal values are expected");
}

}  // namespace
