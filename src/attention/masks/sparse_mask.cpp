// Construction of masks: checks each form and converts it to parts. Also the queries on masks.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/masks/column_intervals.hpp"
#include "attention/masks/grid_mask.hpp"
#include "attention/masks/interval_lists.hpp"
#include "attention/masks/key_lists.hpp"
#include "attention/masks/partial_blocks.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"
#include "heed/attention/masks.hpp"

namespace heed {
namespace detail {
namespace {

// Upper limit of the rows of all slices together, and of the mask's, which bounds the lists' memory.
constexpr std::int64_t kMaxSliceRows = std::int64_t{1} << 27;
constexpr std::int64_t kMaxLength = std::int64_t{1} << 48;

void check_length(const char* name, std::int64_t length) {
  if (length < 0 || length > kMaxLength) refuse(name, " is ", length, "; 0 to 2^48 is expected");
}

void check_within(const char* name, std::int64_t index, std::int64_t value, std::int64_t most) {
  if (value < 0 || value > most)
    refuse(name, " has ", value, " at position ", index, "; 0 to ", most, " is expected");
}

SparseMask mask_of(const MaskShape& shape, std::int64_t rows_each, ListOfIntervals lists) {
  return SparseMask(std::make_shared<IntervalLists>(shape, rows_each, std::move(lists)));
}

// The batch and head sizes of a tensor that has [B, H], [H] or nothing before its last `axes` axes.
MaskShape planes_of(const char* name, const TensorView& view, int axes, const char* expected) {
  const int planes = view.rank() - axes;
  if (planes < 0 || planes > 2) refuse(name, " has shape ", view.shape(), "; ", expected, " is expected");
  MaskShape shape;
  if (planes > 0) shape.heads = view.size(planes - 1);
  if (planes > 1) shape.batch = view.size(0);
  if (shape.batch < 1 || shape.heads < 1)
    refuse(name, " has shape ", view.shape(), "; at least one batch entry and head is expected");
  return shape;
}

struct BlockSizes {
  std::int64_t query, key;
};

void check_blocks(const BlockSizes& block, std::int64_t query_length, std::int64_t key_length) {
  if (block.query < 1) refuse("query_block is ", block.query, "; 1 or more is expected");
  if (block.key < 1) refuse("key_block is ", block.key, "; 1 or more is expected");
  check_length("query_length", query_length);
  check_length("key_length", key_length);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

KeyInterval keys_of_column(std::int64_t column, std::int64_t key_block, std::int64_t key_length) {
  return {column * key_block, std::min(key_length, (column + 1) * key_block)};
}

// Reads a BlockMask's lists.
class BlockMaskReader {
 public:
  BlockMaskReader(const BlockMaskView& view, std::int64_t query_length, std::int64_t key_length)
      : view_(view), key_length_(key_length) {
    check_blocks({view.query_block, view.key_block}, query_length, key_length);
    if (view.full_kv_num_blocks.has_value() != view.full_kv_indices.has_value())
      refuse("only one of full_kv_num_blocks and full_kv_indices is given; both or neither are expected");
    shape_ = planes_of("kv_num_blocks", view.kv_num_blocks, 1, "[B, H, R]");
    shape_.query_length = query_length;
    shape_.key_length = key_length;
    rows_ = ceil_div(query_length, view.query_block);
    columns_ = ceil_div(key_length, view.key_block);
    counts_ = numbers_of("kv_num_blocks", view.kv_num_blocks, 1);
    indices_ = numbers_of("kv_indices", view.kv_indices, 2);
    stride_ = static_cast<std::size_t>(view.kv_indices.size(-1));
    if (view.full_kv_num_blocks) {
      full_counts_ = numbers_of("full_kv_num_blocks", *view.full_kv_num_blocks, 1);
      full_indices_ = numbers_of("full_kv_indices", *view.full_kv_indices, 2);
      full_stride_ = static_cast<std::size_t>(view.full_kv_indices->size(-1));
    }
  }

  [[nodiscard]] SparseMask listed() const {
    ListOfIntervals lists;
    for (std::size_t row = 0; row < counts_.size(); ++row) {
      std::vector<KeyInterval> list;
      add_blocks("kv_indices", counts_[row], indices_, stride_, row, list);
      if (!full_counts_.empty())
        add_blocks("full_kv_indices", full_counts_[row], full_indices_, full_stride_, row, list);
      normalise(list);
      lists.append(list);
    }
    return mask_of(shape_, view_.query_block, std::move(lists));
  }

  [[nodiscard]] SparseMask partial(const TensorView& bits) const {
    std::int64_t total = 0;
    for (const std::int64_t count : counts_) total += count;
    const Dims expected{total, view_.query_block, view_.key_block};
    if (bits.dtype() != DType::boolean) refuse("partial has dtype ", bits.dtype(), "; bool is expected");
    if (bits.shape() != expected) refuse("partial has shape ", bits.shape(), "; ", expected, " is expected");
    const Tensor copy = Tensor::copy_of(bits);
    const std::int64_t words = ceil_div(view_.key_block, 64);
    std::vector<std::size_t> first{0};
    std::vector<PartialBlock> blocks;
    std::vector<std::uint64_t> packed(static_cast<std::size_t>(total * view_.query_block * words));
    for (std::size_t row = 0; row < counts_.size(); ++row) {
      const std::size_t begin = blocks.size();
      for (std::int64_t n = 0; n < counts_[row]; ++n)
        blocks.push_back({indices_[row * stride_ + static_cast<std::size_t>(n)],
                          std::ssize(blocks) * view_.query_block * words});
      std::sort(blocks.begin() + static_cast<std::ptrdiff_t>(begin), blocks.end(),
                [](const PartialBlock& a, const PartialBlock& b) { return a.column < b.column; });
      first.push_back(blocks.size());
    }
    const bool* from = reinterpret_cast<const bool*>(copy.view().data());
    for (std::int64_t r = 0; r < total * view_.query_block; ++r)
      for (std::int64_t k = 0; k < view_.key_block; ++k)
        if (*from++) packed[static_cast<std::size_t>(r * words + k / 64)] |= std::uint64_t{1} << (k % 64);
    return SparseMask(std::make_shared<PartialBlocks>(
        shape_, view_.query_block, view_.key_block, std::move(first), std::move(blocks), std::move(packed)));
  }

 private:
  // The numbers of a tensor with one, or a list, for each block row; `axes` is 1 or 2.
  std::vector<std::int64_t> numbers_of(const char* name, const TensorView& view, int axes) const {
    const MaskShape own = planes_of(name, view, axes, axes == 1 ? "[B, H, R]" : "[B, H, R, C]");
    if (own.batch != shape_.batch || own.heads != shape_.heads || view.size(-axes) != rows_)
      refuse(name, " has shape ", view.shape(), "; ", counted(rows_, "block row"), " for ",
             counted(shape_.query_length, "query", "queries"), ", ",
             counted(shape_.batch, "batch entry", "batch entries"), " and ", counted(shape_.heads, "head"),
             " are expected");
    return whole_numbers_of(name, view);
  }
  void add_blocks(const char* name, std::int64_t count, const std::vector<std::int64_t>& indices,
                  std::size_t stride, std::size_t row, std::vector<KeyInterval>& to) const {
    if (count < 0 || count > static_cast<std::int64_t>(stride))
      refuse(name, " lists ", count, " blocks of block row ", row, "; 0 to ", stride, " are expected");
    for (std::size_t n = 0; n < static_cast<std::size_t>(count); ++n) {
      const std::int64_t column = indices[row * stride + n];
      if (column < 0 || column >= columns_)
        refuse(name, " names block column ", column, "; 0 to ", columns_ - 1, " is expected");
      to.push_back(keys_of_column(column, view_.key_block, key_length_));
    }
  }

  const BlockMaskView& view_;
  std::int64_t key_length_;
  MaskShape shape_;
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<std::int64_t> counts_, indices_, full_counts_, full_indices_;
  std::size_t stride_ = 0, full_stride_ = 0;
};

// The keys of a slice that row i may see.
KeyInterval keys_of_slice(const MaskSlice& slice, std::int64_t i) {
  KeyInterval keys{slice.key_begin, slice.key_end};
  const bool causal = slice.kind == SliceKind::causal || slice.kind == SliceKind::both_causal;
  const bool inverse = slice.kind == SliceKind::inverse_causal || slice.kind == SliceKind::both_causal;
  if (causal) keys.end = std::min(keys.end, slice.key_end + (i - slice.query_end) + 1);
  if (inverse) keys.begin = std::max(keys.begin, slice.key_begin + (i - slice.query_begin));
  return keys;
}

void check_slices(std::span<const MaskSlice> slices, std::int64_t query_length, std::int64_t key_length) {
  if (query_length < 0 || query_length > kMaxSliceRows)
    refuse("query_length is ", query_length, "; 0 to 2^27 is expected for slices");
  std::int64_t rows = 0;
  for (std::size_t n = 0; n < slices.size(); ++n) {
    const MaskSlice& s = slices[n];
    if (s.query_begin < 0 || s.query_begin > s.query_end || s.query_end > query_length)
      refuse("slices[", n, "] has queries ", s.query_begin, " to ", s.query_end, "; a range within 0 to ",
             query_length, " is expected");
    if (s.key_begin < 0 || s.key_begin > s.key_end || s.key_end > key_length)
      refuse("slices[", n, "] has keys ", s.key_begin, " to ", s.key_end, "; a range within 0 to ",
             key_length, " is expected");
    if (s.kind < SliceKind::full || s.kind > SliceKind::both_causal)
      refuse("slices[", n, "] has kind ", static_cast<std::int64_t>(s.kind), "; 0 to 3 is expected");
    rows += s.query_end - s.query_begin;
    if (rows > kMaxSliceRows) refuse("slices have more than 2^27 rows in total; fewer are expected");
  }
}

std::vector<std::int32_t> column_rows(const char* name, const TensorView& intervals, const MaskShape& shape,
                                      std::int64_t& count) {
  const std::vector<std::int64_t> numbers = whole_numbers_of(name, intervals);
  const std::int64_t each = intervals.size(-1);
  const std::int64_t keys = shape.key_length;
  count = each == 4 ? 2 : 1;
  if (keys == 0) return {};
  std::vector<std::int32_t> rows(static_cast<std::size_t>(shape.planes() * count * 2 * keys));
  for (std::int64_t plane = 0; plane < shape.planes(); ++plane)
    for (std::int64_t j = 0; j < keys; ++j)
      for (std::int64_t n = 0; n < 2 * count; ++n) {
        const std::int64_t at = (plane * keys + j) * each + n;
        const std::int64_t row = n < each ? numbers[static_cast<std::size_t>(at)] : shape.query_length;
        check_within(name, at, row, shape.query_length);
        rows[static_cast<std::size_t>((plane * count * 2 + n) * keys + j)] = static_cast<std::int32_t>(row);
      }
  return rows;
}

// Messages call the argument `name`.
SparseMask column_mask(const char* name, const TensorView& intervals, std::int64_t query_length) {
  if (query_length < 0 || query_length > INT32_MAX)
    refuse("query_length is ", query_length, "; 0 to 2^31 - 1 is expected");
  MaskShape shape = planes_of(name, intervals, 2, "[Lk, n], optionally after [B, H] or [H],");
  const std::int64_t each = intervals.size(-1);
  if (each != 1 && each != 2 && each != 4)
    refuse(name, " has shape ", intervals.shape(), "; 1, 2 or 4 numbers per key are expected");
  shape.query_length = query_length;
  shape.key_length = intervals.size(-2);
  std::int64_t count = 0;
  std::vector<std::int32_t> rows = column_rows(name, intervals, shape, count);
  return SparseMask(std::make_shared<ColumnIntervals>(shape, shape.key_length, count, std::move(rows)));
}

}  // namespace
}  // namespace detail

using namespace detail;

SparseMask::SparseMask(std::shared_ptr<const MaskPart> part) : parts_{std::move(part)} {}

SparseMask SparseMask::row_intervals(const TensorView& intervals, std::int64_t key_length) {
  check_length("key_length", key_length);
  MaskShape shape = planes_of("intervals", intervals, 3, "[Lq, n, 2], optionally after [B, H] or [H],");
  if (intervals.size(-1) != 2)
    refuse("intervals has shape ", intervals.shape(),
           "; two numbers per interval, a begin and an end, are expected");
  shape.query_length = intervals.size(-3);
  shape.key_length = key_length;
  if (intervals.size(-2) == 0 && shape.planes() * shape.query_length > kMaxEmptyRows)
    refuse("intervals has shape ", intervals.shape(), "; at most 2^27 rows without entries are expected");
  const std::vector<std::int64_t> numbers = whole_numbers_of("intervals", intervals);
  ListOfIntervals lists;
  std::vector<KeyInterval> list;
  const std::int64_t each = intervals.size(-2);
  for (std::size_t at = 0, row = 0; row < static_cast<std::size_t>(shape.planes() * shape.query_length);
       ++row) {
    list.clear();
    for (std::int64_t n = 0; n < each; ++n, at += 2) {
      for (std::size_t k = at; k < at + 2; ++k)
        check_within("intervals", static_cast<std::int64_t>(k), numbers[k], key_length);
      list.push_back({numbers[at], numbers[at + 1]});
    }
    normalise(list);
    lists.append(list);
  }
  return mask_of(shape, 1, std::move(lists));
}

SparseMask SparseMask::column_intervals(const TensorView& intervals, std::int64_t query_length) {
  return column_mask("intervals", intervals, query_length);
}

SparseMask SparseMask::slices(std::span<const MaskSlice> slices, std::int64_t query_length,
                              std::int64_t key_length) {
  check_length("key_length", key_length);
  check_slices(slices, query_length, key_length);
  std::vector<MaskSlice> waiting(slices.begin(), slices.end());
  std::ranges::sort(waiting, std::ranges::greater(), &MaskSlice::query_begin);
  std::vector<MaskSlice> active;
  ListOfIntervals lists;
  std::vector<KeyInterval> list;
  for (std::int64_t i = 0; i < query_length; ++i) {
    for (; !waiting.empty() && waiting.back().query_begin <= i; waiting.pop_back())
      active.push_back(waiting.back());
    std::erase_if(active, [&](const MaskSlice& s) { return s.query_end <= i; });
    list.clear();
    for (const MaskSlice& slice : active) list.push_back(keys_of_slice(slice, i));
    normalise(list);
    lists.append(list);
  }
  return mask_of({1, 1, query_length, key_length}, 1, std::move(lists));
}

SparseMask SparseMask::blocks(const TensorView& offsets, const TensorView& indices, std::int64_t query_block,
                              std::int64_t key_block, std::int64_t query_length, std::int64_t key_length) {
  check_blocks({query_block, key_block}, query_length, key_length);
  const std::int64_t rows = ceil_div(query_length, query_block), columns = ceil_div(key_length, key_block);
  const std::vector<std::int64_t> first = integers_of("offsets", offsets);
  const std::vector<std::int64_t> index = integers_of("indices", indices);
  const auto count = std::ssize(index);
  if (std::ssize(first) != rows + 1)
    refuse("offsets has ", counted(first.size(), "number"), "; ", rows + 1, " for ",
           counted(rows, "block row"), " are expected");
  if (first.front() != 0 || first.back() != count || !std::ranges::is_sorted(first))
    refuse("offsets run from ", first.front(), " to ", first.back(), "; non-decreasing numbers from 0 to ",
           count, ", the number of indices, are expected");
  ListOfIntervals lists;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<KeyInterval> list;
    for (std::int64_t n = first[static_cast<std::size_t>(r)]; n < first[static_cast<std::size_t>(r) + 1];
         ++n) {
      const std::int64_t column = index[static_cast<std::size_t>(n)];
      if (column < 0 || column >= columns)
        refuse("indices[", n, "] is ", column, "; a block column of 0 to ", columns - 1, " is expected");
      list.push_back(keys_of_column(column, key_block, key_length));
    }
    normalise(list);
    lists.append(list);
  }
  return mask_of({1, 1, query_length, key_length}, query_block, std::move(lists));
}

SparseMask SparseMask::from_block_mask(const BlockMaskView& mask, std::int64_t query_length,
                                       std::int64_t key_length) {
  const BlockMaskReader reader(mask, query_length, key_length);
  const SparseMask listed = reader.listed();
  return mask.partial ? listed & reader.partial(*mask.partial) : listed;
}

SparseMask SparseMask::from_flash_mask(const TensorView& startend_row_indices, bool causal,
                                       std::int64_t query_length) {
  const TensorView& given = startend_row_indices;
  const std::int64_t each = given.rank() > 0 ? given.size(-1) : 0;
  const bool known = causal ? each == 1 || each == 2 : each == 2 || each == 4;
  if (!known)
    refuse("startend_row_indices has shape ", given.shape(), "; ", causal ? "1 or 2" : "2 or 4",
           " numbers per key are expected ", causal ? "with" : "without", " causal");
  if (causal) {
    const SparseMask columns = column_mask("startend_row_indices", given, query_length);
    return columns & masks::sliding_window(-1, 0, query_length, columns.key_length());
  }
  if (each == 4) return column_mask("startend_row_indices", given, query_length);
  // Hides rows from the first number on, and rows before the second.
  Dims shape = given.shape();
  shape[shape.size() - 1] = 4;
  Tensor four(shape, DType::i64);
  const std::vector<std::int64_t> two = whole_numbers_of("startend_row_indices", given);
  const std::span<std::int64_t> to = four.values<std::int64_t>();
  for (std::size_t key = 0; 2 * key < two.size(); ++key) {
    for (std::size_t at = 2 * key; at < 2 * key + 2; ++at)
      check_within("startend_row_indices", static_cast<std::int64_t>(at), two[at], query_length);
    to[4 * key] = two[2 * key];
    to[4 * key + 1] = query_length;
    to[4 * key + 3] = two[2 * key + 1];
  }
  return column_mask("startend_row_indices", four, query_length);
}

SparseMask operator&(const SparseMask& a, const SparseMask& b) {
  if (a.is_empty()) return b;
  if (b.is_empty()) return a;
  const auto fits = [](std::int64_t x, std::int64_t y) { return std::max(x, y) % std::min(x, y) == 0; };
  const bool batch = a.batch() == b.batch() || std::min(a.batch(), b.batch()) == 1;
  if (a.query_length() != b.query_length() || a.key_length() != b.key_length() || !batch ||
      !fits(a.heads(), b.heads()))
    refuse("masks have sizes ", Dims{a.batch(), a.heads(), a.query_length(), a.key_length()}, " and ",
           Dims{b.batch(), b.heads(), b.query_length(), b.key_length()},
           "; equal sizes, or 1 for a batch size or head count, are expected");
  SparseMask both = a;
  both.parts_.insert(both.parts_.end(), b.parts_.begin(), b.parts_.end());
  return both;
}

std::int64_t SparseMask::batch() const noexcept {
  std::int64_t most = 1;
  for (const auto& part : parts_) most = std::max(most, part->shape().batch);
  return most;
}

std::int64_t SparseMask::heads() const noexcept {
  std::int64_t most = 1;
  for (const auto& part : parts_) most = std::max(most, part->shape().heads);
  return most;
}

std::int64_t SparseMask::query_length() const noexcept {
  return parts_.empty() ? 0 : parts_.front()->shape().query_length;
}

std::int64_t SparseMask::key_length() const noexcept {
  return parts_.empty() ? 0 : parts_.front()->shape().key_length;
}

bool SparseMask::may_be_gathered() const noexcept {
  return std::ranges::any_of(parts_, [](const auto& part) {
    const auto* lists = dynamic_cast<const detail::KeyLists*>(part.get());
    return lists != nullptr ? lists->gather() != Gather::never
                            : dynamic_cast<const detail::GridMask*>(part.get()) != nullptr;
  });
}

std::size_t SparseMask::bytes() const noexcept {
  std::size_t sum = 0;
  for (const auto& part : parts_) sum += part->bytes();
  return sum;
}

namespace {

// Fills `visible` with whether one row may see keys [key_begin, key_end).
void fill_row(const SparseMask& mask, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t key_begin,
              std::int64_t key_end, std::uint8_t* visible) {
  std::fill(visible, visible + (key_end - key_begin), std::uint8_t{1});
  if (key_begin == key_end) return;
  for (const auto& part : mask.parts()) {
    const MaskShape& shape = part->shape();
    part->restrict_row(
        {shape.batch == 1 ? 0 : b, h / (mask.heads() / shape.heads), i, i + 1, key_begin, key_end}, visible);
  }
}

void check_row(const SparseMask& mask, std::int64_t b, std::int64_t h, std::int64_t i) {
  if (b < 0 || b >= mask.batch() || h < 0 || h >= mask.heads() || i < 0 || i >= mask.query_length())
    refuse("batch entry ", b, ", head ", h, ", query ", i, ": the mask has ", mask.batch(), ", ",
           mask.heads(), " and ", mask.query_length(), " of them");
}

}  // namespace

bool SparseMask::allows(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  if (is_empty()) return true;
  check_row(*this, b, h, i);
  if (j < 0 || j >= key_length()) refuse("key is ", j, ", but the mask has ", counted(key_length(), "key"));
  std::uint8_t visible = 0;
  fill_row(*this, b, h, i, j, j + 1, &visible);
  return visible != 0;
}

Tensor SparseMask::dense() const {
  Tensor all({batch(), heads(), query_length(), key_length()}, DType::boolean);
  if (all.count() == 0) return all;  // such a mask may have any number of batch entries
  auto* to = static_cast<std::uint8_t*>(all.mutable_view().data());
  for (std::int64_t b = 0; b < batch(); ++b)
    for (std::int64_t h = 0; h < heads(); ++h)
      for (std::int64_t i = 0; i < query_length(); ++i, to += key_length())
        fill_row(*this, b, h, i, 0, key_length(), to);
  return all;
}

std::vector<std::pair<std::int64_t, std::int64_t>> SparseMask::runs(std::int64_t b, std::int64_t h,
                                                                    std::int64_t i) const {
  check_row(*this, b, h, i);
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(key_length()));
  fill_row(*this, b, h, i, 0, key_length(), visible.data());
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (std::int64_t j = 0; j < key_length(); ++j) {
    if (visible[static_cast<std::size_t>(j)] == 0) continue;
    if (!runs.empty() && runs.back().second == j)
      ++runs.back().second;
    else
      runs.emplace_back(j, j + 1);
  }
  return runs;
}

}  // namespace heed
