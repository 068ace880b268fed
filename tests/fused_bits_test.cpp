// The fused kernel gives the same bits in every setting: any number of threads, any pool, a row alone or
// among others, several callers at once, a forked child.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "attention_support.hpp"
#include "heed/parallel.hpp"
#include "path_watch.hpp"
#include "support.hpp"

namespace {

using heed::attention;
using heed::AttentionOptions;
using heed::AttentionResult;
using heed::DType;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::is_emulated;
using heed::test::kEveryNeed;
using heed::test::normal_tensor;
using heed::test::same_bits;

// Calls with enough work for several threads. A call below about two million multiply-adds uses one thread.
class FusedBits : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = heed::test::why_not_fused();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  void TearDown() override { heed::set_parallel_for({}); }

  // The call numbers; together the calls cover every option that changes how work is split. If
  // HEED_TEST_SHARE skips calls, a slow emulation makes one in three.
  static constexpr int kCalls = 11;
  static std::vector<int> calls() {
    std::vector<int> numbers;
    for (int which = 0; which < kCalls; which += is_emulated() && !heed::test::makes_all_calls() ? 3 : 1)
      numbers.push_back(which);
    return numbers;
  }
  AttentionResult call(int which, int threads) const {
    AttentionOptions options{.kernel = heed::Kernel::fused, .threads = threads};
    switch (which) {
      case 0:
        break;
      case 1:
        options.causal = true;
        options.need = kEveryNeed;
        break;
      case 2:
        options.window = {30, 2};
        options.need = Need::lse | Need::received;
        break;
      case 3:
        options.bias = bias_;
        options.mask = mask_;
        options.softcap = 5;
        options.need = kEveryNeed;
        break;
      case 4:
        options.top_k = 7;
        options.map = {5, 9};
        options.received_last = 40;
        options.need = kEveryNeed;
        break;
      case 5:
        options.kv_lengths = lengths_;
        options.align = heed::Align::bottom_right;
        options.causal = true;
        options.map = {13, 4};
        break;
      case 6:
        return attention(Tensor::copy_of(query_, DType::bf16), Tensor::copy_of(key_, DType::bf16),
                         Tensor::copy_of(value_, DType::bf16), options);
      case 7:  // a decoding step, with keys split into several spans (split-KV)
        return attention(query_.view().narrow(2, 0, 1), long_key_, long_value_, options);
      case 8:  // the same with all outputs that partial results hold
      case 9:
        options.causal = which == 9;
        options.align = heed::Align::bottom_right;
        options.top_k = 70;
        options.need = kEveryNeed;
        return attention(query_.view().narrow(2, 0, 13), long_key_, long_value_, options);
      default:
        return attention(Tensor::copy_of(query_.view().narrow(2, 0, 30), DType::bf16),
                         Tensor::copy_of(long_key_, DType::bf16), Tensor::copy_of(long_value_, DType::bf16),
                         options);
    }
    return attention(query_, key_, value_, options);
  }

  Tensor query_ = normal_tensor({2, 4, 211, 40}, 1, DType::f32);
  Tensor key_ = normal_tensor({2, 2, 230, 40}, 2, DType::f32);
  Tensor value_ = normal_tensor({2, 2, 230, 33}, 3, DType::f32);
  Tensor long_key_ = normal_tensor({2, 2, 5000, 40}, 7, DType::f32);
  Tensor long_value_ = normal_tensor({2, 2, 5000, 33}, 8, DType::f32);
  Tensor bias_ = normal_tensor({4, 211, 230}, 4, DType::f32);
  Tensor mask_ = Tensor::copy_of(normal_tensor({211, 230}, 5), DType::boolean);
  Tensor lengths_ = Tensor::from<std::int32_t>({230, 101}, {2});
};

TEST_F(FusedBits, AreTheSameForEveryNumberOfThreads) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const std::vector<int> counts =
      is_emulated() ? std::vector<int>{2, 5} : std::vector<int>{2, 3, 5, 8, 2 * cores};
  for (const int which : calls()) {
    const AttentionResult alone = call(which, 1);
    EXPECT_EQ(alone.threads, 1);
    for (const int threads : counts)
      for (int repeat = 0; repeat < (which < 8 && !is_emulated() ? 3 : 1); ++repeat) {
        const AttentionResult shared = call(which, threads);
        EXPECT_GT(shared.threads, 1) << which;
        ASSERT_TRUE(same_bits(alone, shared)) << "call " << which << " on " << threads << " threads";
      }
  }
}

// A row's results do not depend on which rows are computed with it. Row magnitudes differ, so that some rows
// alone need no shift for their exponentials, while among others all rows have one.
//
// Entropy and distance agree only within rounding. sum_j p_j (s_j - shift) rounds differently when the shift
// moves, since that is not a product with a power of two. The distances of a window's keys are summed in
// vectors, which begin where the window begins among the loaded keys.
//
// Where f32 uses matrix tiles, fewer than 128 rows (13 in the emulation) do not, so more rows are taken.
TEST_F(FusedBits, OfARowAloneAreThoseOfTheRowAmongOthers) {
  const char* isa = std::getenv("HEED_ISA");
  const std::string_view target = isa != nullptr ? isa : "";
  const std::vector<std::int64_t> few_rows = target == "amx_f32" ? std::vector<std::int64_t>{128, 150}
                                             : target == "amx_f32_emulated"
                                                 ? std::vector<std::int64_t>{13, 17, 40}
                                                 : std::vector<std::int64_t>{1, 2, 13};
  using heed::test::largest_difference;
  AttentionOptions options{
      .causal = true,
      .need = Need::lse | Need::max_score | Need::weights | Need::entropy | Need::distance,
      .top_k = 5,
      .kernel = heed::Kernel::fused};
  Tensor query = Tensor::copy_of(query_);
  for (std::size_t i = 0; i < query.values<float>().size(); ++i)
    query.values<float>()[i] *= static_cast<float>(i / 40 % 20) / 4;
  for (const std::int64_t left : {-1, 50}) {
    options.window.left = left;
    options.query_offset = 0;
    const AttentionResult all = attention(query, key_, value_, options);
    for (std::int64_t row = 0; row < 211; row += 7)
      for (const std::int64_t rows : few_rows) {
        if (row + rows > 211) continue;
        SCOPED_TRACE(::testing::Message() << "rows " << row << " + " << rows << ", left " << left);
        options.query_offset = row;
        const AttentionResult some = attention(query.view().narrow(2, row, rows), key_, value_, options);
        const auto part = [&](const Tensor& tensor) { return tensor.view().narrow(2, row, rows); };
        ASSERT_TRUE(same_bits(part(all.output), some.output));
        ASSERT_TRUE(same_bits(part(all.lse), some.lse));
        ASSERT_TRUE(same_bits(part(all.max_score), some.max_score));
        ASSERT_TRUE(same_bits(part(all.weights), some.weights));
        ASSERT_TRUE(same_bits(part(all.top_k_index), some.top_k_index));
        ASSERT_TRUE(same_bits(part(all.top_k_weight), some.top_k_weight));
        // Twice the bound: 211 terms in at least 4 sums, and scores at most 8 log 2 above their shift.
        // Measured: 6e-6.
        ASSERT_TRUE(largest_difference(part(all.entropy), some.entropy) <= 2 * 53 * 0x1p-24 * 8 * 0.7);
        // Twice the bound: 51 terms in at least 4 sums, then those sums; distances are at most 50. Measured:
        // 1.2e-5.
        if (left < 0)
          ASSERT_TRUE(same_bits(part(all.distance), some.distance));
        else
          ASSERT_TRUE(largest_difference(part(all.distance), some.distance) <= 2 * 16 * 0x1p-24 * 50);
      }
  }
}

TEST_F(FusedBits, OfABatchEntryAloneAreThoseOfTheEntryAmongOthers) {
  const AttentionResult all = call(1, 2);
  AttentionOptions options{.causal = true, .need = kEveryNeed, .kernel = heed::Kernel::fused};
  const AttentionResult one = attention(query_.view().narrow(0, 1, 1), key_.view().narrow(0, 1, 1),
                                        value_.view().narrow(0, 1, 1), options);
  EXPECT_TRUE(same_bits(all.output.view().narrow(0, 1, 1), one.output));
  EXPECT_TRUE(same_bits(all.received.view().narrow(0, 1, 1), one.received));
}

// Packed sequences with one query and with many, as in serving. Each sequence must get the same kernel alone
// as among the others.
TEST_F(FusedBits, OfAPackedSequenceAloneAreThoseOfTheSequenceAmongOthers) {
  const std::vector<std::int64_t> queries{1, 40, 3, 1, 8, 20, 5}, keys{700, 40, 300, 3100, 8, 250, 193};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t group : {1, 4}) {
      Tensor query_segments({8}, DType::i64), key_segments({8}, DType::i64);
      const auto query_ends = query_segments.values<std::int64_t>(),
                 key_ends = key_segments.values<std::int64_t>();
      for (std::size_t s = 0; s < queries.size(); ++s) {
        query_ends[s + 1] = query_ends[s] + queries[s];
        key_ends[s + 1] = key_ends[s] + keys[s];
      }
      const Tensor query =
          Tensor::copy_of(normal_tensor({2 * group, query_ends[7], 64}, 1, DType::f32), dtype);
      const Tensor key = Tensor::copy_of(normal_tensor({2, key_ends[7], 64}, 2, DType::f32), dtype);
      const AttentionOptions alone{.causal = true,
                                   .align = heed::Align::bottom_right,
                                   .need = Need::lse,
                                   .top_k = 5,
                                   .kernel = heed::Kernel::fused};
      AttentionOptions together = alone;
      together.query_segments = query_segments;
      together.key_segments = key_segments;
      const AttentionResult all = attention(query, key, key, together);
      for (std::size_t s = 0; s < queries.size(); ++s) {
        SCOPED_TRACE(testing::Message() << heed::name_of(dtype) << ", group " << group << ", sequence " << s);
        const TensorView own_keys = key.view().narrow(1, key_ends[s], keys[s]);
        const AttentionResult one =
            attention(query.view().narrow(1, query_ends[s], queries[s]), own_keys, own_keys, alone);
        for (const auto member :
             {&AttentionResult::output, &AttentionResult::lse, &AttentionResult::top_k_weight})
          EXPECT_TRUE(same_bits(Tensor::copy_of((all.*member).view().narrow(1, query_ends[s], queries[s]),
                                                (one.*member).dtype()),
                                one.*member));
      }
    }
}

// A large weight matrix is written with non-temporal stores, its parts are not. With 2049 keys, rows begin at
// unaligned addresses.
TEST_F(FusedBits, OfALargeMatrixOfWeightsAreThoseOfItsParts) {
  constexpr std::int64_t kRows = 2100;
  for (const std::int64_t keys : {2048, 2049}) {
    const Tensor query = normal_tensor({1, kRows, 8}, 1, DType::f32);
    const Tensor key = normal_tensor({1, keys, 8}, 2, DType::f32);
    AttentionOptions options{
        .causal = true, .need = Need::weights, .kernel = heed::Kernel::fused, .threads = 2};
    const AttentionResult all = attention(query, key, key, options);
    for (std::int64_t row = 0; row < kRows; row += 700) {
      options.query_offset = row;
      const AttentionResult some = attention(query.view().narrow(1, row, 700), key, key, options);
      EXPECT_TRUE(same_bits(all.weights.view().narrow(1, row, 700), some.weights)) << keys << ", row " << row;
    }
  }
}

// One caller gets the pool; the others compute on their own threads.
// The last results take a second pass, for which the first keeps what it otherwise need not. Each call has a
// thread of its own, whose working memory is only as large as planned: AddressSanitizer sees a write beyond
// it.
TEST_F(FusedBits, OfTheOutputAreThoseWhateverElseIsAskedFor) {
  const auto run = [](const TensorView& query, const TensorView& key, const TensorView& value,
                      const AttentionOptions& options) {
    return std::async(std::launch::async, [&] { return attention(query, key, value, options); }).get();
  };
  const Tensor sinks = normal_tensor({4}, 9, DType::f32);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool causal : {false, true}) {
      if (causal && is_emulated() && !heed::test::makes_all_calls()) continue;
      const Tensor query = Tensor::copy_of(query_, dtype), key = Tensor::copy_of(key_, dtype),
                   value = Tensor::copy_of(value_, dtype);
      const AttentionOptions alone{
          .causal = causal, .sinks = sinks, .kernel = heed::Kernel::fused, .threads = 1};
      const AttentionResult expected = run(query, key, value, alone);
      AttentionOptions lists = alone, map = alone;
      lists.top_k = 5;
      map.map = {7, 11};
      std::vector<AttentionOptions> others = {lists, map};
      for (const auto& [entry, member] : heed::kResults<int>) {
        if (entry.need == Need::none) continue;
        others.push_back(alone);
        others.back().need = entry.need;
      }
      for (std::size_t i = 0; i < others.size(); ++i)
        EXPECT_TRUE(same_bits(run(query, key, value, others[i]).output, expected.output))
            << heed::name_of(dtype) << ", causal " << causal << ", other results " << i;
    }
}

TEST_F(FusedBits, AreTheSameForManyCallersAtOnce) {
  const std::vector<int> numbers = calls();
  std::vector<AttentionResult> alone;
  for (const int which : numbers) alone.push_back(call(which, 1));
  const int callers =
      (numbers.size() < kCalls ? 1 : 4) * static_cast<int>(std::thread::hardware_concurrency());
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int caller = 0; caller < callers; ++caller)
    threads.emplace_back([&, caller] {
      for (int repeat = 0; repeat < 4; ++repeat) {
        const std::size_t at = static_cast<std::size_t>(caller + repeat) % numbers.size();
        if (!same_bits(alone[at], call(numbers[at], 4))) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Simulates a host's pool: new threads for every few pieces, last piece first, workers numbered as they come.
TEST_F(FusedBits, AreTheSameInAHostsPool) {
  const std::vector<int> numbers = calls();
  std::vector<AttentionResult> own;
  for (const int which : numbers) own.push_back(call(which, 3));
  std::atomic<int> runs = 0;
  heed::set_parallel_for([&](std::int64_t count, int threads, const heed::ParallelBody& body) {
    ++runs;
    for (std::int64_t end = count; end > 0;) {
      std::vector<std::future<void>> pieces;
      for (int worker = 0; worker < threads && end > 0; ++worker, --end)
        pieces.push_back(std::async(std::launch::async, body, end - 1, worker));
      for (std::future<void>& piece : pieces) piece.get();
    }
  });
  for (std::size_t at = 0; at < numbers.size(); ++at)
    EXPECT_TRUE(same_bits(own[at], call(numbers[at], 3))) << numbers[at];
  EXPECT_GE(runs, static_cast<int>(numbers.size()));
}

TEST_F(FusedBits, AreTheSameInAChildThatWasForked) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of several threads";
#endif
#if defined(HEED_EMULATED)
  GTEST_SKIP() << "qemu 7.2 itself fails when several threads are forked";
#endif
  const AttentionResult before = call(4, 3);  // the pool now has threads, which the child will lack
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // ends a hanging child, which fails the test
    const bool same = static_cast<bool>(same_bits(before, call(4, 3)));
    _exit(same ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(same_bits(before, call(4, 3)));
}

TEST_F(FusedBits, AreTheSameAfterAPieceOfOtherWorkHasThrown) {
  const AttentionResult before = call(1, 3);
  for (const std::int64_t bad : {0, 57, 99}) {
    std::atomic<int> under_way = 0;
    try {
      heed::parallel_for(100, 3, [&](std::int64_t index, int) {
        ++under_way;
        if (index == bad) {
          --under_way;
          throw std::runtime_error("piece");
        }
        --under_way;
      });
      ADD_FAILURE() << "the exception was lost";
    } catch (const std::runtime_error&) {
      EXPECT_EQ(under_way, 0);
    }
    EXPECT_TRUE(same_bits(before, call(1, 3)));
  }
}

TEST_F(FusedBits, AreTheSameForACallFromWithinAPieceOfWork) {
  const AttentionResult before = call(0, 3);
  std::atomic<int> wrong = 0;
  heed::parallel_for(4, 2, [&](std::int64_t, int) { wrong += same_bits(before, call(0, 3)) ? 0 : 1; });
  EXPECT_EQ(wrong, 0);
}

// In [B, L, H, D], a kernel for few rows reads a row's parts of all heads together. In [B, H, L, D] it reads
// one head after the other.
TEST_F(FusedBits, OfHeadsThatLieSideBySideAreThoseOfHeadsApart) {
  const Tensor query = normal_tensor({2, 8, 1, 64}, 31, DType::f32);
  const Tensor keys = normal_tensor({2, 7000, 4, 64}, 32, DType::f32);
  const Tensor values = normal_tensor({2, 7000, 4, 64}, 33, DType::f32);
  const TensorView key = keys.view().transpose(1, 2), value = values.view().transpose(1, 2);
  for (const int threads : {1, 3}) {
    AttentionOptions options{.kernel = heed::Kernel::fused, .threads = threads};
    options.need = Need::lse | Need::entropy | Need::received | Need::weights;
    options.top_k = 5;
    heed::test::PathWatch paths;
    paths.start_call();
    const AttentionResult beside = attention(query, key, value, options);
    EXPECT_GT(paths.taken_now(heed::test::Path::spans_together), 0);
    paths.start_call();
    const AttentionResult apart = attention(query, Tensor::copy_of(key), Tensor::copy_of(value), options);
    EXPECT_EQ(paths.taken_now(heed::test::Path::spans_together), 0);
    EXPECT_TRUE(same_bits(beside, apart)) << threads << " threads";
  }
}

}  // namespace
