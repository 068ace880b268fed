// Rows whose keys arrive range by range have the same bits as over all keys at once.
#include "heed/attention/streamed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention_support.hpp"
#include "cut_call.hpp"
#include "describe_call.hpp"
#include "each_target.hpp"
#include "fused_calls.hpp"
#include "guarded.hpp"
#include "heed/attention/attention.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionOutputs;
using heed::AttentionResult;
using heed::CallPart;
using heed::DType;
using heed::Kernel;
using heed::PartRow;
using heed::PositionRange;
using heed::StreamedAttention;
using heed::Tensor;
using heed::TensorView;
using heed::test::CallLimits;
using heed::test::CutCall;
using heed::test::Draw;
using heed::test::EachTarget;
using heed::test::Guarded;
using heed::test::message_of;
using heed::test::normal_tensor;
using heed::test::RandomCall;
using heed::test::same_bits;
using heed::test::Side;

constexpr std::uint64_t kSeed = 20261125;

// Results that do not need the weights a second time.
bool comes_by_ranges(const heed::ResultEntry& entry) {
  return heed::has_rows(entry.shape) && entry.shape != heed::ResultShape::pair &&
         entry.need != heed::Need::masked_mass;
}

// The call, requesting only those results.
RandomCall asking_for_rows(RandomCall call) {
  AttentionOptions& options = call.options;
  heed::Need need = heed::Need::none;
  for (std::size_t i = 0; i < heed::kResultCount; ++i) {
    const heed::ResultEntry& entry = heed::result_entry(i);
    if (comes_by_ranges(entry) && heed::has(options.need, entry.need)) need |= entry.need;
  }
  options.need = need;
  options.received_last = 0;
  options.map = {};
  return call;
}

// Memory for the requested results, with the shapes in `shapes`.
AttentionOutputs outputs_of(const AttentionOptions& options, const AttentionResult& shapes,
                            AttentionResult& memory) {
  AttentionOutputs outputs;
  for (std::size_t i = 0; i < heed::kResultCount; ++i) {
    const heed::ResultEntry& entry = heed::result_entry(i);
    if (!heed::is_asked_for(entry, options)) continue;
    const Tensor& shape = heed::result<Tensor>(shapes, i);
    heed::result<Tensor>(memory, i) = Tensor(shape.shape(), shape.dtype());
    heed::result(outputs, i) = heed::result<Tensor>(memory, i).mutable_view();
  }
  return outputs;
}

// The part of the whole call's results that belongs to the cut call.
AttentionResult share_of(const CutCall& cut, const AttentionResult& whole) {
  AttentionResult share;
  for (std::size_t i = 0; i < heed::kResultCount; ++i) {
    const heed::ResultEntry& entry = heed::result_entry(i);
    const Tensor& all = heed::result<Tensor>(whole, i);
    if (all.shape() != heed::Dims{0})
      heed::result<Tensor>(share, i) = cut.share_of(all, true, heed::test::axes_of(entry.shape));
  }
  return share;
}

// The smallest ranges, some of them combined.
std::vector<PositionRange> random_ranges(Draw& draw, const StreamedAttention& streamed) {
  std::vector<PositionRange> ranges;
  const double joins = draw.pick<double>({0, 0.5, 1});
  for (const PositionRange& one : streamed.ranges(1)) {
    if (!ranges.empty() && draw.chance(joins))
      ranges.back().end = one.end;
    else
      ranges.push_back(one);
  }
  return ranges;
}

// A copy of the rows of a range, directly before inaccessible memory.
Guarded rows_in_buffer(const Tensor& all, const PositionRange& range) {
  return {Tensor::copy_of(all.view().narrow(all.rank() - 2, range.begin, range.end - range.begin)),
          Side::last_byte};
}

// The same rows stored by columns, so that no row is contiguous.
Tensor transposed(const TensorView& view) {
  return Tensor::copy_of(view.transpose(view.rank() - 1, view.rank() - 2));
}

struct Tally {
  std::int64_t calls = 0, ranges = 0, left_away = 0, by_bytes = 0, left_out = 0, rows = 0;
};

void give(Draw& draw, const CutCall& cut, const PositionRange& range, StreamedAttention& streamed,
          StreamedAttention& elsewhere, Tally& tally) {
  ++tally.ranges;
  const Guarded key = rows_in_buffer(cut.key, range), value = rows_in_buffer(cut.value, range);
  if (draw.chance(0.3)) {
    ++tally.by_bytes;
    std::vector<std::byte> bytes(streamed.state_bytes(range) + 1);
    const std::span<std::byte> unaligned = std::span(bytes).subspan(1);
    elsewhere.states(range, key.view(), value.view(), unaligned);
    return streamed.merge(range, unaligned);
  }
  if (draw.chance(0.2)) {
    const Tensor key_columns = transposed(key.view()), value_columns = transposed(value.view());
    const auto rows = [](const Tensor& columns) {
      return columns.view().transpose(columns.rank() - 1, columns.rank() - 2);
    };
    return streamed.attend(range, rows(key_columns), rows(value_columns));
  }
  streamed.attend(range, key.view(), value.view());
}

// Rows that were left out are computed as a part of the call.
void compute_left_out(const CutCall& cut, const StreamedAttention& streamed, const AttentionOutputs& outputs,
                      const AttentionResult& expected, Tally& tally) {
  const auto left = static_cast<std::int64_t>(streamed.left_out().size());
  if (left == 0) return;
  AttentionResult again;
  AttentionOptions asked = cut.options;
  const AttentionOutputs whole = outputs_of(asked, expected, again);
  const heed::AttentionRun run =
      heed::attention_part_into(cut.query, cut.key, cut.value, cut.options, cut.part, whole);
  EXPECT_GE(left, run.recomputed_rows);
  tally.left_out += left;
  for (const PartRow& row : streamed.left_out())
    for (std::size_t i = 0; i < heed::kResultCount; ++i) {
      if (heed::result(outputs, i).data() == nullptr) continue;
      const int axes = heed::test::axes_of(heed::result_entry(i).shape);
      const auto of_row = [&](auto view) {
        if (view.rank() - axes > 1) view = view.narrow(0, row.batch, 1);
        if (view.rank() - axes > 0) view = view.narrow(view.rank() - axes - 1, row.head, 1);
        return view.narrow(view.rank() - axes, row.row, 1);
      };
      heed::copy(of_row(heed::result(whole, i)), of_row(heed::result(outputs, i)));
    }
}

void compare_streamed(Draw& draw, const RandomCall& call, const heed::test::Box& box, Tally& tally) {
  const AttentionResult whole = heed::attention(Tensor::copy_of(call.query), Tensor::copy_of(call.key),
                                                Tensor::copy_of(call.value), call.options);
  const CutCall cut(call, box);
  const AttentionResult expected = share_of(cut, whole);
  AttentionResult found, other;
  const AttentionOutputs outputs = outputs_of(call.options, expected, found);
  const heed::KeyShape keys{cut.key.rank() > 2 ? cut.key.size(-3) : 1, cut.key.size(-2), cut.value.size(-1)};
  StreamedAttention streamed(cut.query, keys, cut.options, cut.part, outputs);
  StreamedAttention elsewhere(cut.query, keys, cut.options, cut.part,
                              outputs_of(call.options, expected, other));
  for (const PositionRange& range : random_ranges(draw, streamed)) {
    if (!streamed.needs(range) && draw.chance(0.8))
      ++tally.left_away;
    else
      give(draw, cut, range, streamed, elsewhere, tally);
  }
  const heed::AttentionRun run = streamed.finish();
  EXPECT_EQ(run.kernel, whole.kernel);
  EXPECT_EQ(run.isa, whole.isa);
  EXPECT_EQ(run.recomputed_rows, 0);
  ++tally.calls;
  tally.rows += cut.query.count() / cut.query.size(-1);
  compute_left_out(cut, streamed, outputs, expected, tally);
  for (std::size_t i = 0; i < heed::kResultCount; ++i) {
    if (heed::result(outputs, i).data() == nullptr) continue;
    EXPECT_TRUE(same_bits(heed::result<Tensor>(found, i), heed::result<Tensor>(expected, i)))
        << heed::result_entry(i).name();
  }
}

// Packed sequences of several key spans beside short ones.
CallLimits long_key_calls() {
  CallLimits limits = heed::test::document_calls();
  limits.most_documents = 4;
  limits.document_queries = {1, 3, 13, 40};
  limits.document_keys = {1, 49, 300, 3072, 3073, 6200};
  return limits;
}

// A share of the calls need not meet everything.
const bool kMakesAllCalls = heed::test::makes_all_calls();

Tally compare_calls(const CallLimits& limits, std::uint64_t count) {
  const EachTarget targets;
  Tally tally;
  for (std::uint64_t at = 0; at < heed::test::share_of(count); ++at) {
    const RandomCall call = asking_for_rows(heed::test::random_call(kSeed, at, limits));
    if (call.query.count() == 0) continue;
    for (const std::string& target : targets.available()) {
      if (!targets.takes(target, at, 5)) continue;
      heed::set_target(target);
      Draw draw(kSeed + 1, at);
      SCOPED_TRACE(target + ": " + heed::test::describe(call));
      compare_streamed(draw, call, heed::test::random_box(draw, call, true), tally);
      if (testing::Test::HasFailure()) return tally;
    }
  }
  EXPECT_GT(tally.calls, 0);
  if (kMakesAllCalls) {
    EXPECT_GT(tally.by_bytes, 0);
  }
  EXPECT_LT(tally.left_out, tally.rows / 2);
  return tally;
}

TEST(StreamedAttention, HasTheBitsOfTheWholeInSmallCalls) {
  (void)compare_calls(heed::test::small_calls(), 600);
}
TEST(StreamedAttention, LeavesOutRowsThatF32CannotHold) {
  const Tally tally = compare_calls(heed::test::extreme_calls(), 300);
  if (kMakesAllCalls) {
    EXPECT_GT(tally.left_out, 0);
  }
}
TEST(StreamedAttention, HasTheBitsOfTheWholeByTheReference) { (void)compare_calls({}, 300); }
TEST(StreamedAttention, HasTheBitsOfTheWholeAcrossTiles) {
  (void)compare_calls(heed::test::tile_calls(), 100);
}
TEST(StreamedAttention, HasTheBitsOfTheWholeAcrossSpans) {
  const Tally tally = compare_calls(heed::test::span_calls(), 40);
  if (kMakesAllCalls) {
    EXPECT_GT(tally.ranges, tally.calls);
  }
  if (kMakesAllCalls) {
    EXPECT_GT(tally.left_away, 0);
  }
}
TEST(StreamedAttention, HasTheBitsOfTheWholeInPackedSequences) {
  const Tally tally = compare_calls(long_key_calls(), 25);
  if (kMakesAllCalls) {
    EXPECT_GT(tally.ranges, tally.calls);
  }
  if (kMakesAllCalls) {
    EXPECT_GT(tally.left_away, 0);
  }
}

// Rows 2 to 5 and 6500 to 6503 of 7000, with a window of 50 keys as a sparse mask.
class WindowedRows : public ::testing::Test {
 protected:
  static constexpr std::int64_t kLength = 7000;
  const std::vector<PositionRange> rows_{{2, 5}, {6500, 6503}};
  const Tensor query_ = normal_tensor({kLength, 16}, 1, DType::f32),
               key_ = normal_tensor({kLength, 16}, 2, DType::f32),
               value_ = normal_tensor({kLength, 8}, 3, DType::f32);
  const Tensor part_query_ = heed::test::rows_of(query_, rows_);
  AttentionOptions options_{.sparse_mask =
                                heed::SparseMask::expression("j <= i && i - j < 50", kLength, kLength)};
  Tensor output_{{6, 8}, DType::f32}, lse_{{6}, DType::f32}, index_{{6, 8}, DType::i64};
  AttentionOutputs outputs_;

  WindowedRows() {
    outputs_.output = output_.mutable_view();
    outputs_.lse = lse_.mutable_view();
  }
  [[nodiscard]] CallPart part() const { return {.query_length = kLength, .rows = rows_}; }
  // Returns the ranges that the call needs, and in `left_out` the rows that it left out.
  std::vector<PositionRange> stream(std::vector<PartRow>& left_out) {
    StreamedAttention streamed(part_query_, {1, kLength, 8}, options_, part(), outputs_);
    std::vector<PositionRange> needed;
    for (const PositionRange& range : streamed.ranges(1)) {
      if (!streamed.needs(range)) continue;
      needed.push_back(range);
      streamed.attend(range, rows_in_buffer(key_, range).view(), rows_in_buffer(value_, range).view());
    }
    (void)streamed.finish();
    left_out.assign(streamed.left_out().begin(), streamed.left_out().end());
    return needed;
  }
};

TEST_F(WindowedRows, NeedTheRangesThatTheirMaskLeaves) {
  std::vector<PartRow> left_out;
  EXPECT_EQ(stream(left_out), (std::vector<PositionRange>{{0, 3072}, {6144, 7000}}));
  EXPECT_TRUE(left_out.empty());
  const AttentionResult whole = heed::attention(query_, key_, value_, options_);
  EXPECT_TRUE(same_bits(output_, heed::test::rows_of(whole.output, rows_)));
  // The reference in f64. 1e-5 is about a hundred roundings of f32 for numbers around 1.
  options_.kernel = Kernel::reference;
  options_.need = heed::Need::lse;
  const AttentionResult exact =
      heed::attention(Tensor::copy_of(query_, DType::f64), Tensor::copy_of(key_, DType::f64),
                      Tensor::copy_of(value_, DType::f64), options_);
  EXPECT_LE(heed::test::largest_difference(output_, heed::test::rows_of(exact.output, rows_)), 1e-5);
  for (std::int64_t i = 0; i < 6; ++i) {
    const std::int64_t row = i < 3 ? 2 + i : 6500 + i - 3;
    EXPECT_NEAR(lse_.view().at<float>(i), exact.lse.view().at<double>(row), 1e-5);
  }
}

// A ScoreMod may forbid keys that are already gone. So rows whose top-k lists lack entries are left out.
TEST_F(WindowedRows, LeaveOutListsThatNeedTheirKeysOnceMore) {
  options_.score_mod =
      heed::ScoreMod::function([](auto s, std::int64_t, std::int64_t, std::int64_t, std::int64_t j) {
        return s * (1.0f + 0.001f * static_cast<float>(j % 7));
      });
  options_.top_k = 8;
  outputs_.top_k_index = index_.mutable_view();
  std::vector<PartRow> left_out;
  (void)stream(left_out);
  EXPECT_EQ(left_out, (std::vector<PartRow>{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}}));
  const AttentionResult whole = heed::attention(query_, key_, value_, options_);
  EXPECT_TRUE(same_bits(index_.view().narrow(0, 3, 3), whole.top_k_index.view().narrow(0, 6500, 3)));
  EXPECT_TRUE(same_bits(output_.view().narrow(0, 3, 3), whole.output.view().narrow(0, 6500, 3)));
}

// Wrong uses, each with its message.
class SmallStreams : public ::testing::Test {
 protected:
  Tensor query_ = normal_tensor({2, 3, 4}, 1, DType::f32), key_ = normal_tensor({1, 7000, 4}, 2, DType::f32),
         value_ = normal_tensor({1, 7000, 5}, 3, DType::f32), output_{{2, 3, 5}, DType::f32};
  std::vector<PositionRange> rows_{{5000, 5003}};
  CallPart part_{1, 2, 7000, 0, 0, rows_};
  AttentionOutputs outputs_;
  AttentionOptions options_{.causal = true};

  SmallStreams() { outputs_.output = output_.mutable_view(); }
  StreamedAttention stream() { return {query_, {1, 7000, 5}, options_, part_, outputs_}; }
  static TensorView range_of(const Tensor& all, std::int64_t begin, std::int64_t end) {
    return all.view().narrow(1, begin, end - begin);
  }
  void attend(StreamedAttention& streamed, std::int64_t begin, std::int64_t end) const {
    streamed.attend({begin, end}, range_of(key_, begin, end), range_of(value_, begin, end));
  }
};

TEST_F(SmallStreams, SayWhatTheSizesOfKeysAre) {
  const auto message = [&](const heed::KeyShape& keys) {
    return message_of([&] { StreamedAttention(query_, keys, options_, part_, outputs_); });
  };
  EXPECT_EQ(message({1, -1, 5}), "keys.length is -1; 0 or more is expected");
  EXPECT_EQ(message({-1, 1, 5}), "keys.kv_heads is -1; 0 or more is expected");
  EXPECT_EQ(message({1, 1, -5}), "keys.value_dim is -5; 0 or more is expected");
  const Tensor rows = normal_tensor({3, 4}, 1, DType::f32);
  EXPECT_EQ(message_of([&] {
              StreamedAttention(rows, {2, 7000, 5}, options_, part_, {});
            }),
            "keys.kv_heads is 2; 1 is expected with a query of 2 axes");
}

TEST_F(SmallStreams, SayWhichResultsTheyHave) {
  Tensor masked_mass({2, 3}, DType::f32), weights({2, 3, 7000}, DType::f32), map({2, 2, 2}, DType::f32);
  const auto message = [&] { return message_of([&] { (void)stream(); }); };
  std::string expected = " is given; output";
  for (const auto& [entry, member] : heed::kResults<int>)
    if (comes_by_ranges(entry) && entry.name() != "output") expected += ", " + std::string(entry.name());
  expected += " are expected when keys arrive range by range";
  outputs_.masked_mass = masked_mass.mutable_view();
  EXPECT_EQ(message(), "outputs.masked_mass" + expected);
  outputs_.masked_mass = {};
  outputs_.weights = weights.mutable_view();
  EXPECT_EQ(message(), "outputs.weights" + expected);
  outputs_.weights = {};
  outputs_.map = map.mutable_view();
  EXPECT_EQ(message(), "outputs.map" + expected);
}

TEST_F(SmallStreams, SayWhereRangesBeginAndEnd) {
  StreamedAttention streamed = stream();
  EXPECT_EQ(streamed.ranges(1), (std::vector<PositionRange>{{0, 3072}, {3072, 6144}, {6144, 7000}}));
  EXPECT_EQ(streamed.ranges(6200), (std::vector<PositionRange>{{0, 6144}, {6144, 7000}}));
  EXPECT_EQ(message_of([&] { (void)streamed.ranges(0); }), "keys is 0; 1 or more is expected");
  const std::string expected =
      "; a multiple of 3072 keys from the begin of a sequence, or a sequence's begin or end, is expected for "
      "both";
  EXPECT_EQ(message_of([&] { attend(streamed, 0, 100); }), "range is 0 to 100" + expected);
  EXPECT_EQ(message_of([&] { attend(streamed, 100, 3072); }), "range is 100 to 3072" + expected);
  EXPECT_EQ(message_of([&] { attend(streamed, 0, 0); }), "range is 0 to 0" + expected);
  EXPECT_EQ(message_of([&] { (void)streamed.state_bytes({0, 1}); }), "range is 0 to 1" + expected);
}

TEST_F(SmallStreams, SayWhichRangeComesNext) {
  StreamedAttention streamed = stream();
  EXPECT_TRUE(streamed.needs({0, 1}));
  EXPECT_FALSE(streamed.needs({5003, 7000}));
  EXPECT_EQ(message_of([&] { attend(streamed, 3072, 6144); }),
            "keys 0 to 3072 have not arrived, but rows may see them");
  attend(streamed, 0, 3072);
  EXPECT_EQ(message_of([&] { attend(streamed, 0, 3072); }),
            "range begins at 0; 3072, the end of the last range, or more is expected");
  EXPECT_EQ(message_of([&] { (void)streamed.finish(); }),
            "keys 3072 to 7000 have not arrived, but rows may see them");
  attend(streamed, 3072, 6144);
  EXPECT_NO_THROW((void)streamed.finish());
  EXPECT_EQ(message_of([&] { (void)streamed.finish(); }),
            "finish() was called; a new StreamedAttention is expected");
  EXPECT_EQ(message_of([&] { attend(streamed, 6144, 7000); }),
            "finish() was called; a new StreamedAttention is expected");
  EXPECT_TRUE(same_bits(
      output_,
      heed::attention(heed::detail::concatenated(
                          std::vector<TensorView>{normal_tensor({2, 5000, 4}, 9, DType::f32), query_}, 1),
                      key_, value_, options_)
          .output.view()
          .narrow(1, 5000, 3)));
}

TEST_F(SmallStreams, SayWhatKeysAndBytesAreExpected) {
  StreamedAttention streamed = stream();
  const TensorView key = range_of(key_, 0, 3072), value = range_of(value_, 0, 3072);
  EXPECT_EQ(message_of([&] {
              streamed.attend({0, 3072}, value, value);
            }),
            "key has shape [1, 3072, 5]; [1, 3072, 4] is expected");
  EXPECT_EQ(message_of([&] {
              streamed.attend({0, 3072}, key, key);
            }),
            "value has shape [1, 3072, 4]; [1, 3072, 5] is expected");
  const Tensor wide = Tensor::copy_of(key, DType::f64);
  EXPECT_EQ(message_of([&] {
              streamed.attend({0, 3072}, wide, value);
            }),
            "key has dtype f64; f32 as in query is expected");
  std::vector<std::byte> bytes(streamed.state_bytes({0, 3072}) + 1);
  const std::string expected = "bytes has size " + std::to_string(bytes.size()) + "; " +
                               std::to_string(bytes.size() - 1) + ", as state_bytes() returns, is expected";
  EXPECT_EQ(message_of([&] { streamed.states({0, 3072}, key, value, bytes); }), expected);
  EXPECT_EQ(message_of([&] { streamed.merge({0, 3072}, bytes); }), expected);
  EXPECT_GT(streamed.bytes(), 0U);
}

TEST_F(SmallStreams, HaveTheSameBytesWhateverWasComputedBefore) {
  StreamedAttention used = stream(), fresh = stream();
  attend(used, 0, 3072);
  std::vector<std::byte> bytes(used.state_bytes({3072, 6144}), std::byte{1}), again(bytes);
  used.states({3072, 6144}, range_of(key_, 3072, 6144), range_of(value_, 3072, 6144), bytes);
  fresh.states({3072, 6144}, range_of(key_, 3072, 6144), range_of(value_, 3072, 6144), again);
  EXPECT_EQ(bytes, again);
}

}  // namespace
