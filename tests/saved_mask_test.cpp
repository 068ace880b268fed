// Tests mask parts as plain data: restored parts allow the same pairs and take no more memory. Damaged data
// is refused, or gives a mask that is safe to use.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/masks/saved_mask.hpp"
#include "attention/masks/saved_parts.hpp"
#include "attention_support.hpp"
#include "heed/attention/mask_mod.hpp"
#include "heed/attention/masks.hpp"
#include "heed/error.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::DType;
using heed::SparseMask;
using heed::Tensor;
using heed::TensorView;
using heed::detail::SavedPart;
using heed::test::Draw;

constexpr std::uint64_t kSeed = 20261127;

Tensor whole(std::vector<std::int64_t> numbers, const heed::Dims& shape) {
  return Tensor::from(std::span<const std::int64_t>(numbers), shape);
}

Tensor random_whole(Draw& draw, const heed::Dims& shape, std::int64_t most) {
  Tensor tensor(shape, DType::i64);
  for (std::int64_t& x : tensor.values<std::int64_t>()) x = draw.between(0, most);
  return tensor;
}

SparseMask partial_blocks(Draw& draw) {
  const Tensor counts = whole({2, 1}, {2}), indices = whole({2, 0, 1, 0, 0, 0}, {2, 3});
  Tensor bits({3, 5, 70}, DType::boolean);
  for (bool& bit : bits.values<bool>()) bit = draw.chance(0.5);
  heed::BlockMaskView view;
  view.kv_num_blocks = counts;
  view.kv_indices = indices;
  view.partial = bits;
  view.query_block = 5;
  view.key_block = 70;
  return SparseMask::from_block_mask(view, 9, 190);
}

std::vector<SparseMask> masks(Draw& draw) {
  const Tensor doc = whole({0, 0, 1, 1, 2}, {5});
  const bool yes_and_no[] = {true, false};
  const Tensor wide = Tensor::from(std::span<const bool>(yes_and_no), {2});
  const std::pair<std::string, TensorView> arrays[] = {{"doc", doc}, {"wide", wide}};
  const heed::GridAxis grid[] = {{4, 3, 1, true}, {3, 1, 2, false}};
  return {heed::masks::documents(std::vector<std::int64_t>{3, 0, 4}, true),
          heed::masks::bigbird(4, 1, 1, 1, 3, 18, 22),
          SparseMask::row_intervals(random_whole(draw, {2, 3, 5, 2, 2}, 8), 8),
          SparseMask::column_intervals(random_whole(draw, {3, 8, 4}, 5), 5),
          SparseMask::key_lists(whole({7, 0, 3, -1, -1, 2, 5, 6, 1, 4, -1, 0}, {2, 3, 2}), 8),
          SparseMask::column_intervals(random_whole(draw, {8, 1}, 5), 5),
          partial_blocks(draw),
          SparseMask::expression("j <= i && doc[i] == doc[j] || wide[h]", 5, 5, arrays),
          heed::masks::neighbourhood(grid),
          heed::masks::prefix_lm(2, 9, 190) & partial_blocks(draw)};
}

SparseMask restored(const SavedPart& part) {
  return heed::detail::restored_part(
      part.form, part.text,
      std::vector<std::pair<std::string, TensorView>>(part.tensors.begin(), part.tensors.end()));
}

TEST(SavedMask, AllowsTheSamePairs) {
  Draw draw(kSeed, 0);
  for (const SparseMask& mask : masks(draw)) {
    SparseMask again;
    for (const auto& part : mask.parts()) again = again & restored(part->saved());
    EXPECT_TRUE(heed::test::same_bits(mask.dense(), again.dense()));
    EXPECT_EQ(mask.parts().size(), again.parts().size());
    EXPECT_LE(again.bytes(), 2 * mask.bytes());  // vectors may have spare capacity
  }
}

TEST(SavedMask, HasNoFormOfAFunction) {
  const SparseMask mask = heed::mask_mod([](auto, auto, auto i, auto j) { return j <= i; }, 1, 1, 4, 4);
  EXPECT_EQ(mask.parts().front()->saved().form, "");
}

std::string message_of(const SavedPart& part) {
  try {
    (void)restored(part);
  } catch (const heed::Error& error) {
    return error.what();
  }
  return "";
}

TEST(SavedMask, RefusesWrongDataInOneSentence) {
  Draw draw(kSeed, 1);
  const auto with = [&](const SparseMask& mask, const std::string& name, Tensor tensor) {
    SavedPart part = mask.parts().back()->saved();
    for (auto& [known, held] : part.tensors)
      if (known == name) held = std::move(tensor);
    return message_of(part);
  };
  const SparseMask rows = heed::masks::documents(std::vector<std::int64_t>{2}, true),
                   blocks = partial_blocks(draw);
  EXPECT_EQ(
      message_of({"bits", "", {}}),
      "the saved mask has the form 'bits'; rows, columns, key_lists, blocks, expression or grid is expected");
  EXPECT_EQ(message_of({"rows", "", {}}), "the saved mask lacks 'sizes'; a tensor of that name is expected");
  EXPECT_EQ(with(rows, "sizes", whole({1, 2}, {2})), "sizes of the saved mask has 2 numbers; 3 are expected");
  EXPECT_EQ(with(rows, "sizes", whole({0, 2, 2}, {3})),
            "sizes of the saved mask contains 0; 1 to 2^48 is expected");
  EXPECT_EQ(with(rows, "sparse_mask_first", whole({0, 1}, {1, 1, 2})),
            "sparse_mask_first has shape [1, 1, 2]; [B, H, 2 + 1] is expected");
  EXPECT_EQ(with(blocks, "sizes", whole({1, 2, 9, 190, 5, 70}, {6})),
            "first of the saved mask does not match its sizes; tensors of one mask are expected");
  const SparseMask grid = heed::masks::axial(std::vector<std::int64_t>{2, 3}, -1);
  const std::int64_t other = std::int64_t{1} << 62;
  EXPECT_EQ(with(grid, "windows", whole({2, -1, 1, 0, 3, 1, 1, 0, 2, 1, 1, 0, other, -1, 1, 0}, {2, 2, 4})),
            "size of axis 1 is 3 in one window and 4611686018427387904 in another; one size is expected");
  const SparseMask lists = SparseMask::key_lists(whole({3, 1, 0, 2}, {2, 2}), 4);
  EXPECT_EQ(with(lists, "first", whole({0, 3, 2}, {3})),
            "first of the saved mask does not match its sizes; tensors of one mask are expected");
  for (const auto& keys : {whole({1, 1, 0, 2}, {4}), whole({1, 4, 0, 2}, {4}), whole({-1, 3, 0, 2}, {4})})
    EXPECT_EQ(with(lists, "keys", keys),
              "keys of the saved mask does not match its sizes; tensors of one mask are expected");
  EXPECT_EQ(with(lists, "sizes", whole({1, 1, 2, 4, 1, 0}, {6})),
            "keys of the saved mask does not match its sizes; tensors of one mask are expected");
  EXPECT_EQ(with(blocks, "columns", whole({1, 1, 0}, {3})),
            "columns of the saved mask does not match its sizes; tensors of one mask are expected");
  EXPECT_EQ(with(blocks, "columns", whole({0, 3, 0}, {3})),
            "columns of the saved mask does not match its sizes; tensors of one mask are expected");
  EXPECT_EQ(with(blocks, "bits", whole({1, 2}, {2})),
            "bits of the saved mask does not match its sizes; tensors of one mask are expected");
  EXPECT_EQ(with(grid, "windows", Tensor({2, 0, 4}, DType::i64)), "the grid has 0 axes; 1 to 3 are expected");
  EXPECT_EQ(with(blocks, "columns", whole({-1, 1, 0}, {3})),
            "columns of the saved mask does not match its sizes; tensors of one mask are expected");
  for (const heed::Dims& shape :
       {heed::Dims{4}, heed::Dims{0, 1, 4}, heed::Dims{4, 1, 4}, heed::Dims{1, 1, 3}})
    EXPECT_EQ(with(grid, "windows", Tensor(shape, DType::i64)), "windows of the saved mask has shape " +
                                                                    heed::to_string(shape) +
                                                                    "; [1 to 3, 1 to 3, 4] is expected");
}

// Sizes whose products 64 bits cannot count.
TEST(SavedMask, RefusesVastSizes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48, kVast = std::int64_t{1} << 40;
  Draw draw(kSeed, 2);
  const SparseMask rows = heed::masks::documents(std::vector<std::int64_t>{2}, true),
                   blocks = partial_blocks(draw),
                   lists = SparseMask::key_lists(whole({3, 1, 0, 2}, {2, 2}), 4);
  const auto sized = [](const SparseMask& mask, const std::vector<std::int64_t>& sizes) {
    SavedPart part = mask.parts().back()->saved();
    part.tensors.front().second = whole(sizes, {std::ssize(sizes)});
    return message_of(part);
  };
  const auto of = [](const std::string& tensor) {
    return tensor + " of the saved mask does not match its sizes; tensors of one mask are expected";
  };
  EXPECT_EQ(sized(rows, {1, 2, kMost}), "");
  EXPECT_EQ(sized(rows, {1, 2, kMost + 1}),
            "sizes of the saved mask contains 281474976710657; 0 to 2^48 is expected");
  EXPECT_EQ(sized(blocks, {kVast, kVast, 9, 190, 5, 70}), of("first"));
  EXPECT_EQ(sized(blocks, {kVast, 1, kVast, 190, 1, 70}), of("first"));
  EXPECT_EQ(sized(blocks, {1, 1, 2 * kVast, 190, kVast, 1 << 30}), of("bits"));
  EXPECT_EQ(sized(blocks, {1, 1, 2 * kVast, 3 << 28, kVast, 1 << 28}), of("bits"));
  EXPECT_EQ(sized(lists, {kVast, kVast, 2, 4, 2, 0}), of("first"));
  EXPECT_EQ(sized(lists, {kVast, 1, kVast, 4, 2, 0}), of("first"));
  EXPECT_EQ(sized(lists, {1, 1, 3, 4, 2, 0}), of("first"));
  EXPECT_EQ(sized(lists, {1, 1, 2, 4, 2, 3}), of("sizes"));
  SavedPart part = lists.parts().back()->saved();
  part.tensors.at(0).second = whole({1, 1, 2, kVast, 2, 0}, {6});
  part.tensors.at(2).second = whole({1, std::int64_t{1} << 31, 0, 2}, {4});  // keys are held as i32
  EXPECT_EQ(message_of(part), of("keys"));
  part.tensors.at(1).second = whole({1, 2, 4}, {3});
  EXPECT_EQ(message_of(part), of("first"));
}

TEST(SavedMask, RunsOfEachRowAreRestoredOrRefused) {
  const SparseMask mask = heed::masks::sinks_and_window(1, 2, 6, 6) &
                          heed::masks::documents(std::vector<std::int64_t>{2, 4}, true);
  const heed::detail::SavedMask saved = heed::detail::saved_mask(mask);
  EXPECT_TRUE(
      heed::test::same_bits(heed::detail::restored_runs(saved.first, saved.keys, 6).dense(), mask.dense()));
  const auto refusal = [](const Tensor& first, const Tensor& keys) {
    return heed::test::message_of([&] { (void)heed::detail::restored_runs(first, keys, 4); });
  };
  const Tensor first = whole({0, 1, 2}, {1, 1, 3}), keys = whole({0, 2, 1, 4}, {2, 2});
  EXPECT_EQ(refusal(first, keys), "no error");
  for (const heed::Dims& shape :
       {heed::Dims{3}, heed::Dims{0, 1, 3}, heed::Dims{1, 0, 3}, heed::Dims{1, 1, 0}})
    EXPECT_EQ(refusal(Tensor(shape, DType::i64), keys)
                  .find("sparse_mask_first has shape " + heed::to_string(shape) + "; [B, H, "),
              0);
  for (const heed::Dims& shape : {heed::Dims{4}, heed::Dims{4, 1}})
    EXPECT_EQ(refusal(first, Tensor(shape, DType::i64)),
              "sparse_mask_keys has shape " + heed::to_string(shape) + "; [N, 2] is expected");
  EXPECT_EQ(refusal(whole({-1, 1, 2}, {1, 1, 3}), keys),
            "sparse_mask_first has -1 before 1; non-decreasing numbers up to 2 are expected");
  EXPECT_EQ(refusal(whole({0, 2, 1}, {1, 1, 3}), keys),
            "sparse_mask_first has 2 before 1; non-decreasing numbers up to 2 are expected");
  EXPECT_EQ(refusal(whole({0, 1, 3}, {1, 1, 3}), keys),
            "sparse_mask_first has 1 before 3; non-decreasing numbers up to 2 are expected");
  for (const auto& [begin, end] : {std::pair{-1, 2}, {3, 2}, {1, 5}})
    EXPECT_EQ(refusal(first, whole({0, 2, begin, end}, {2, 2})),
              "sparse_mask_keys has keys " + std::to_string(begin) + " to " + std::to_string(end) +
                  "; a range within 0 to 4 is expected");
}

TEST(SavedMask, DamagedDataIsRefusedOrSafe) {
  std::int64_t refused = 0, used = 0;
  for (std::uint64_t at = 0; at < heed::test::share_of(1000); ++at) {
    SCOPED_TRACE("damage " + std::to_string(at));
    Draw draw(kSeed, at);
    const std::vector<SparseMask> all = masks(draw);
    const SparseMask mask = draw.pick(all);
    SavedPart part = mask.parts().back()->saved();
    auto& [name, tensor] = part.tensors[static_cast<std::size_t>(
        draw.between(0, static_cast<std::int64_t>(part.tensors.size()) - 1))];
    if (draw.chance(0.1) || tensor.count() == 0) {
      tensor = Tensor({draw.between(0, 3), draw.between(1, 3)}, tensor.dtype());
    } else if (tensor.dtype() == DType::i64) {
      tensor.values<std::int64_t>()[static_cast<std::size_t>(draw.between(0, tensor.count() - 1))] =
          draw.between(-2, 300);
    } else if (tensor.dtype() == DType::i32) {
      tensor.values<std::int32_t>()[static_cast<std::size_t>(draw.between(0, tensor.count() - 1))] =
          static_cast<std::int32_t>(draw.between(-2, 300));
    }
    try {
      const SparseMask again = restored(part);
      ++used;
      if (again.batch() * again.heads() * again.query_length() * again.key_length() < 1'000'000)
        (void)again.dense();
    } catch (const heed::Error&) {
      ++refused;
    }
  }
  EXPECT_GT(used, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
