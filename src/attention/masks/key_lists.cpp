#include "attention/masks/key_lists.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "attention/problem/operands.hpp"
#include "core/index.hpp"
#include "core/message.hpp"
#include "heed/parallel.hpp"

namespace heed {
namespace detail {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;  // of a piece of work

// Reads the lists of key_lists(). Rows are counted over all planes.
class KeyListReader {
 public:
  KeyListReader(const TensorView& indices, std::int64_t key_length, const std::optional<TensorView>& counts)
      : indices_(indices), counts_(counts) {
    if (key_length < 0 || key_length > INT32_MAX)
      refuse("key_length is ", key_length, "; 0 to 2^31 - 1 is expected");
    check_whole_numbers("indices", indices);
    if (indices.rank() < 2 || indices.rank() > 4)
      refuse("indices has shape ", indices.shape(), "; [Lq, n], optionally after [B, H] or [H], is expected");
    tensor_ = tensor_of("indices", indices);
    shape_ = {tensor_.size[0], tensor_.size[1], tensor_.size[2], key_length};
    if (shape_.batch < 1 || shape_.heads < 1)
      refuse("indices has shape ", indices.shape(), "; at least one batch entry and head is expected");
    if (width() == 0 && shape_.planes() * shape_.query_length > kMaxEmptyRows)
      refuse("indices has shape ", indices.shape(), "; at most 2^27 rows without entries are expected");
    if (!counts) return;
    check_whole_numbers("counts", *counts);
    const Dims expected(std::span(indices.shape().begin(), indices.shape().end() - 1));
    if (counts->shape() != expected)
      refuse("counts has shape ", counts->shape(), "; ", expected, " is expected for indices of shape ",
             indices.shape());
  }

  [[nodiscard]] std::shared_ptr<const KeyLists> read(Gather gather) {
    std::vector<std::int64_t> first{0};
    std::vector<std::int32_t> keys;
    const Tensor counts = counts_ ? Tensor::copy_of(*counts_, DType::i64) : Tensor();
    for (std::int64_t row = 0; row < shape_.planes() * shape_.query_length; ++row) {
      const std::int64_t count = counts_ ? counts.values<std::int64_t>()[index(row)] : width();
      if (count < 0 || count > width())
        refuse("counts has ", count, " at ", place_of(row), "; 0 to ", width(),
               ", the room of a list, is expected");
      if (indices_.dtype() == DType::i32)
        append<std::int32_t>(row, count, keys);
      else
        append<std::int64_t>(row, count, keys);
      first.push_back(std::ssize(keys));
    }
    sort(first, keys);
    return std::make_shared<KeyLists>(shape_, width(), gather, std::move(first), std::move(keys));
  }

 private:
  [[nodiscard]] std::int64_t width() const { return tensor_.size[3]; }
  // The indices of a row in the caller's tensor: "[1, 0, 7]".
  [[nodiscard]] Dims place_of(std::int64_t row) const {
    const std::int64_t plane = row / shape_.query_length, i = row % shape_.query_length;
    const Dims all{plane / shape_.heads, plane % shape_.heads, i};
    return Dims(std::span(all.end() - (indices_.rank() - 1), all.end()));
  }

  template <class Number>
  void append(std::int64_t row, std::int64_t count, std::vector<std::int32_t>& keys) const {
    const std::int64_t plane = row / shape_.query_length;
    const auto& stride = tensor_.rows.stride;
    const Number* from = static_cast<const Number*>(tensor_.rows.data) + plane / shape_.heads * stride[0] +
                         plane % shape_.heads * stride[1] + row % shape_.query_length * stride[2];
    for (std::int64_t n = 0; n < count; ++n) {
      const Number key = from[n * stride[3]];
      if (key == -1 && !counts_) continue;
      if (key < 0 || key >= shape_.key_length) {
        Dims at = place_of(row);
        at.push_back(n);
        refuse("indices has ", key, " at ", at, "; a key of 0 to ", shape_.key_length - 1,
               counts_ ? " is expected" : ", or -1 for an unused entry, is expected");
      }
      keys.push_back(static_cast<std::int32_t>(key));
    }
  }

  // Sorts each list, and refuses the first that names a key twice.
  void sort(const std::vector<std::int64_t>& first, std::vector<std::int32_t>& keys) const {
    const auto rows = std::ssize(first) - 1;
    std::atomic<std::int64_t> wrong{rows};
    const auto list_of = [&](std::int64_t row) {
      return std::span(keys).subspan(index(first[index(row)]),
                                     index(first[index(row) + 1] - first[index(row)]));
    };
    parallel_for((rows + kRowsAtOnce - 1) / kRowsAtOnce, default_threads(), [&](std::int64_t piece, int) {
      const std::int64_t end = std::min(rows, (piece + 1) * kRowsAtOnce);
      for (std::int64_t row = piece * kRowsAtOnce; row < end; ++row) {
        const std::span<std::int32_t> list = list_of(row);
        if (!std::ranges::is_sorted(list)) std::ranges::sort(list);
        if (std::ranges::adjacent_find(list) == list.end()) continue;
        std::int64_t known = wrong.load();
        while (row < known && !wrong.compare_exchange_weak(known, row)) {
        }
      }
    });
    if (wrong == rows) return;
    const std::span<std::int32_t> list = list_of(wrong);
    refuse("indices lists key ", *std::ranges::adjacent_find(list), " twice at ", place_of(wrong),
           "; each key at most once is expected");
  }

  const TensorView& indices_;
  const std::optional<TensorView>& counts_;
  CallTensor tensor_;
  MaskShape shape_;
};

}  // namespace

KeyLists::KeyLists(const MaskShape& shape, std::int64_t width, Gather gather, std::vector<std::int64_t> first,
                   std::vector<std::int32_t> keys)
    : MaskPart(shape), width_(width), gather_(gather), first_(std::move(first)), keys_(std::move(keys)) {
  keys_.shrink_to_fit();
  first_.shrink_to_fit();
}

std::span<const std::int32_t> KeyLists::keys_of(std::int64_t batch, std::int64_t head, std::int64_t row,
                                                std::int64_t key_begin, std::int64_t key_end) const {
  const std::size_t list = index((batch * shape().heads + head) * shape().query_length + row);
  const std::int32_t *begin = keys_.data() + first_[list], *end = keys_.data() + first_[list + 1];
  begin = std::lower_bound(begin, end, key_begin);
  return {begin, std::lower_bound(begin, end, key_end)};
}

Coverage KeyLists::coverage(const MaskTile& tile) const {
  bool any = false, all = true;
  for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row) {
    const auto keys = keys_of(tile.batch, tile.head, row, tile.key_begin, tile.key_end).size();
    any = any || keys > 0;
    all = all && keys == index(tile.key_end - tile.key_begin);
    if (any && !all) return Coverage::cut;
  }
  return all ? Coverage::full : Coverage::empty;
}

void KeyLists::restrict_row(const MaskTile& row, std::uint8_t* visible) const {
  std::int64_t done = row.key_begin;
  const auto forbid = [&](std::int64_t end) {
    std::memset(visible + (done - row.key_begin), 0, index(end - done));
  };
  for (const std::int32_t key : keys_of(row.batch, row.head, row.row_begin, row.key_begin, row.key_end)) {
    forbid(key);
    done = key + std::int64_t{1};
  }
  forbid(row.key_end);
}

std::size_t KeyLists::bytes() const {
  return first_.capacity() * sizeof(std::int64_t) + keys_.capacity() * sizeof(std::int32_t) + sizeof *this;
}

}  // namespace detail

SparseMask SparseMask::key_lists(const TensorView& indices, std::int64_t key_length,
                                 const std::optional<TensorView>& counts, Gather gather) {
  detail::check_listed("gather", gather, Gather::always);
  return SparseMask(detail::KeyListReader(indices, key_length, counts).read(gather));
}

}  // namespace heed
