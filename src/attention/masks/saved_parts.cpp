#include "attention/masks/saved_parts.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "attention/masks/column_intervals.hpp"
#include "attention/masks/expression.hpp"
#include "attention/masks/grid_mask.hpp"
#include "attention/masks/interval_lists.hpp"
#include "attention/masks/key_lists.hpp"
#include "attention/masks/partial_blocks.hpp"
#include "attention/masks/saved_mask.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"

namespace heed::detail {
namespace {

using SavedViews = std::span<const std::pair<std::string, TensorView>>;

constexpr const char* kSizes = "sizes";
constexpr const char* kArray = "array ";  // followed by the array's name in the expression
constexpr std::int64_t kMaxSize = std::int64_t{1} << 48;

Tensor numbers_tensor(std::span<const std::int64_t> numbers) {
  return Tensor::from(numbers, {std::ssize(numbers)});
}

const TensorView& saved_view(SavedViews tensors, std::string_view name) {
  const auto found = std::ranges::find_if(tensors, [&](const auto& one) { return one.first == name; });
  if (found == tensors.end()) refuse("the saved mask lacks '", name, "'; a tensor of that name is expected");
  return found->second;
}

std::vector<std::int64_t> saved_numbers(SavedViews tensors, std::string_view name) {
  return whole_numbers_of(name, saved_view(tensors, name));
}

// Reads the sizes and checks each against its least value.
std::vector<std::int64_t> saved_sizes(SavedViews tensors, std::initializer_list<std::int64_t> least) {
  std::vector<std::int64_t> sizes = saved_numbers(tensors, kSizes);
  if (sizes.size() != least.size())
    refuse("sizes of the saved mask has ", counted(sizes.size(), "number"), "; ", least.size(),
           " are expected");
  for (std::size_t n = 0; n < sizes.size(); ++n)
    if (sizes[n] < least.begin()[n] || sizes[n] > kMaxSize)
      refuse("sizes of the saved mask contains ", sizes[n], "; ", least.begin()[n], " to 2^48 is expected");
  return sizes;
}

SparseMask restored_rows(SavedViews tensors) {
  const std::vector<std::int64_t> sizes = saved_sizes(tensors, {1, 0, 0});
  return restored_lists(saved_view(tensors, kMaskFirst), saved_view(tensors, kMaskKeys), sizes[0], sizes[1],
                        sizes[2]);
}

void check_saved(bool holds, const char* what) {
  if (!holds) refuse(what, " of the saved mask does not match its sizes; tensors of one mask are expected");
}

// Checks that list n, one of `rows` lists for each plane, is from first[n] to first[n + 1] of `count`
// entries.
void check_first(const std::vector<std::int64_t>& first, const MaskShape& shape, std::int64_t rows,
                 std::int64_t count) {
  std::int64_t lists = 0;
  check_saved(!__builtin_mul_overflow(shape.batch, shape.heads, &lists) &&
                  !__builtin_mul_overflow(lists, rows, &lists) && std::ssize(first) - 1 == lists &&
                  first.front() == 0 && first.back() == count && std::ranges::is_sorted(first),
              "first");
}

SparseMask restored_blocks(SavedViews tensors) {
  const std::vector<std::int64_t> sizes = saved_sizes(tensors, {1, 1, 0, 0, 1, 1});
  const MaskShape shape{sizes[0], sizes[1], sizes[2], sizes[3]};
  const std::int64_t query_block = sizes[4], key_block = sizes[5];
  const auto ceil_of = [](std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); };
  const std::int64_t rows = ceil_of(shape.query_length, query_block),
                     columns = ceil_of(shape.key_length, key_block);
  const std::vector<std::int64_t> first = saved_numbers(tensors, "first"),
                                  column = saved_numbers(tensors, "columns"),
                                  bits = saved_numbers(tensors, "bits");
  std::int64_t words = 0, all = 0;
  const auto count = std::ssize(column);
  check_first(first, shape, rows, count);
  check_saved(!__builtin_mul_overflow(query_block, ceil_of(key_block, 64), &words) &&
                  !__builtin_mul_overflow(words, count, &all) && std::ssize(bits) == all,
              "bits");
  std::vector<PartialBlock> blocks;
  for (std::int64_t n = 0; n < count; ++n) blocks.push_back({column[static_cast<std::size_t>(n)], n * words});
  for (std::size_t list = 0; list + 1 < first.size(); ++list)
    for (std::int64_t n = first[list]; n < first[list + 1]; ++n) {
      const auto at = static_cast<std::size_t>(n);
      check_saved(
          column[at] >= 0 && column[at] < columns && (n == first[list] || column[at - 1] < column[at]),
          "columns");
    }
  std::vector<std::uint64_t> packed(bits.size());
  if (!bits.empty()) std::memcpy(packed.data(), bits.data(), bits.size() * sizeof bits[0]);
  return SparseMask(std::make_shared<PartialBlocks>(shape, query_block, key_block,
                                                    std::vector<std::size_t>(first.begin(), first.end()),
                                                    std::move(blocks), std::move(packed)));
}

SparseMask restored_key_lists(SavedViews tensors) {
  const std::vector<std::int64_t> sizes = saved_sizes(tensors, {1, 1, 0, 0, 0, 0});
  const MaskShape shape{sizes[0], sizes[1], sizes[2], sizes[3]};
  std::vector<std::int64_t> first = saved_numbers(tensors, "first");
  const std::vector<std::int64_t> listed = saved_numbers(tensors, "keys");
  check_saved(sizes[5] <= static_cast<std::int64_t>(Gather::always), "sizes");
  check_first(first, shape, shape.query_length, std::ssize(listed));
  for (std::size_t list = 0; list + 1 < first.size(); ++list)
    for (std::int64_t n = first[list]; n < first[list + 1]; ++n) {
      const auto at = static_cast<std::size_t>(n);
      check_saved(n - first[list] < sizes[4] && listed[at] >= 0 && listed[at] < shape.key_length &&
                      listed[at] <= INT32_MAX && (n == first[list] || listed[at - 1] < listed[at]),
                  "keys");
    }
  return SparseMask(std::make_shared<KeyLists>(shape, sizes[4], static_cast<Gather>(sizes[5]),
                                               std::move(first),
                                               std::vector<std::int32_t>(listed.begin(), listed.end())));
}

SparseMask restored_expression(std::string_view text, SavedViews tensors) {
  const std::vector<std::int64_t> sizes = saved_sizes(tensors, {0, 0});
  const std::string_view prefix = kArray;
  std::vector<std::pair<std::string, TensorView>> arrays;
  for (const auto& [name, view] : tensors)
    if (name.starts_with(prefix)) arrays.emplace_back(name.substr(prefix.size()), view);
  return SparseMask::expression(text, sizes[0], sizes[1], arrays);
}

// Each window of a grid has size, window, dilation and causal per axis.
SparseMask restored_grid(SavedViews tensors) {
  const std::vector<std::int64_t> sizes = saved_sizes(tensors, {0, 0, 0});
  const TensorView& windows = saved_view(tensors, "windows");
  const std::vector<std::int64_t> numbers = saved_numbers(tensors, "windows");
  if (windows.rank() != 3 || windows.size(0) < 1 || windows.size(0) > 3 || windows.size(2) != 4)
    refuse("windows of the saved mask has shape ", windows.shape(), "; [1 to 3, 1 to 3, 4] is expected");
  std::vector<GridMask::Axes> all(static_cast<std::size_t>(windows.size(0)));
  for (std::size_t at = 0; at < numbers.size(); at += 4)
    all[at / 4 / static_cast<std::size_t>(windows.size(1))].push_back(
        {numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3] != 0});
  return grid_mask(std::move(all), sizes[0], sizes[1], sizes[2]);
}

}  // namespace

SavedPart IntervalLists::saved() const {
  std::vector<std::int64_t> first, keys;
  for (std::int64_t plane = 0, list = 0; plane < shape().planes(); ++plane) {
    first.push_back(static_cast<std::int64_t>(keys.size() / 2));
    for (std::int64_t n = 0; n < lists_a_plane(); ++n, ++list) {
      for (const KeyInterval* at = lists_[list].begin; at != lists_[list].end; ++at)
        keys.insert(keys.end(), {at->begin, at->end});
      first.push_back(static_cast<std::int64_t>(keys.size() / 2));
    }
  }
  const std::int64_t sizes[] = {rows_each_, shape().query_length, shape().key_length};
  SavedPart part{"rows", "", {}};
  part.tensors.emplace_back(kSizes, numbers_tensor(sizes));
  part.tensors.emplace_back(
      kMaskFirst, numbers_tensor(first).reshaped({shape().batch, shape().heads, lists_a_plane() + 1}));
  part.tensors.emplace_back(kMaskKeys,
                            numbers_tensor(keys).reshaped({static_cast<std::int64_t>(keys.size() / 2), 2}));
  return part;
}

SavedPart ColumnIntervals::saved() const {
  Tensor intervals({shape().batch, shape().heads, key_length_, 2 * count_}, DType::i32);
  const std::span<std::int32_t> to = intervals.values<std::int32_t>();
  for (std::int64_t plane = 0, at = 0; plane < shape().planes(); ++plane)
    for (std::int64_t j = 0; j < key_length_; ++j)
      for (std::int64_t n = 0; n < 2 * count_; ++n, ++at)
        to[static_cast<std::size_t>(at)] =
            rows_[static_cast<std::size_t>((plane * count_ * 2 + n) * key_length_ + j)];
  const std::int64_t sizes[] = {shape().query_length};
  SavedPart part{"columns", "", {}};
  part.tensors.emplace_back(kSizes, numbers_tensor(sizes));
  part.tensors.emplace_back("intervals", std::move(intervals));
  return part;
}

SavedPart KeyLists::saved() const {
  const std::int64_t sizes[] = {shape().batch,      shape().heads, shape().query_length,
                                shape().key_length, width_,        static_cast<std::int64_t>(gather_)};
  SavedPart part{"key_lists", "", {}};
  part.tensors.emplace_back(kSizes, numbers_tensor(sizes));
  part.tensors.emplace_back("first", numbers_tensor(first_));
  part.tensors.emplace_back("keys", Tensor::from(std::span<const std::int32_t>(keys_), {std::ssize(keys_)}));
  return part;
}

SavedPart PartialBlocks::saved() const {
  const std::int64_t sizes[] = {shape().batch,      shape().heads, shape().query_length,
                                shape().key_length, query_block_,  key_block_};
  std::vector<std::int64_t> columns, bits;
  for (const PartialBlock& block : blocks_) {
    columns.push_back(block.column);
    for (std::int64_t word = 0; word < query_block_ * words_; ++word)
      bits.push_back(static_cast<std::int64_t>(bits_[static_cast<std::size_t>(block.bits + word)]));
  }
  SavedPart part{"blocks", "", {}};
  part.tensors.emplace_back(kSizes, numbers_tensor(sizes));
  part.tensors.emplace_back("first", numbers_tensor(std::vector<std::int64_t>(first_.begin(), first_.end())));
  part.tensors.emplace_back("columns", numbers_tensor(columns));
  part.tensors.emplace_back("bits", numbers_tensor(bits));
  return part;
}

SavedPart ExpressionMask::saved() const {
  const std::int64_t sizes[] = {shape().query_length, shape().key_length};
  SavedPart part{"expression", program_.expression().text, {}};
  part.tensors.emplace_back(kSizes, numbers_tensor(sizes));
  for (auto& [name, values] : arrays_of(program_.expression()))
    part.tensors.emplace_back(kArray + name, std::move(values));
  return part;
}

SavedPart GridMask::saved() const {
  const std::int64_t sizes[] = {first_query_, shape().query_length, shape().key_length};
  const auto count = [](const auto& list) { return std::ssize(list); };
  std::vector<std::int64_t> numbers;
  for (const Axes& window : windows_)
    for (const GridAxis& axis : window)
      numbers.insert(numbers.end(), {axis.size, axis.window, axis.dilation, axis.causal ? 1 : 0});
  SavedPart part{"grid", "", {}};
  part.tensors.emplace_back(kSizes, numbers_tensor(sizes));
  part.tensors.emplace_back("windows",
                            numbers_tensor(numbers).reshaped({count(windows_), count(windows_.front()), 4}));
  return part;
}

SparseMask restored_part(std::string_view form, std::string_view text, SavedViews tensors) {
  if (form == "rows") return restored_rows(tensors);
  if (form == "columns")
    return SparseMask::column_intervals(saved_view(tensors, "intervals"), saved_sizes(tensors, {0}).front());
  if (form == "key_lists") return restored_key_lists(tensors);
  if (form == "blocks") return restored_blocks(tensors);
  if (form == "expression") return restored_expression(text, tensors);
  if (form == "grid") return restored_grid(tensors);
  refuse("the saved mask has the form '", form,
         "'; rows, columns, key_lists, blocks, expression or grid is expected");
}

}  // namespace heed::detail
