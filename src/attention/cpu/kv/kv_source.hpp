// Where a kernel gets the keys and values of a task: rows of one key head, by their number. How rows lie in
// memory is known here alone.
#pragma once

#include "attention/cpu/kernel/arguments.hpp"
#include "attention/cpu/kernel/tiling.hpp"

namespace heed::detail::HEED_ISA {

using cpu::Input;

HEED_INLINE std::int64_t offset_of(const std::int64_t (&stride)[4], std::int64_t b, std::int64_t h,
                                   std::int64_t l) {
  return b * stride[0] + h * stride[1] + l * stride[2];
}

/// The rows of one head of a tensor.
struct HeadRows {
  Input tensor;
  std::int64_t first;  ///< element at which row 0 begins

  /// The element at which row j begins, and how many elements lie between those of a row.
  [[nodiscard]] std::int64_t at(std::int64_t j) const { return first + j * tensor.stride[2]; }
  [[nodiscard]] std::int64_t element_stride() const { return tensor.stride[3]; }

  /// f32 rows [j, j + count) that lie whole and evenly in memory, so that tiles can read them there.
  /// row_stride() tells their distance.
  [[nodiscard]] const float* floats(std::int64_t j) const {
    return static_cast<const float*>(tensor.data) + at(j);
  }
  [[nodiscard]] std::int64_t row_stride() const { return tensor.stride[2]; }
  [[nodiscard]] bool has_floats() const { return tensor.type == cpu::Type::f32 && tensor.stride[3] == 1; }
  /// Rows of whole vectors without gaps between their elements.
  [[nodiscard]] bool has_whole_vectors(std::int64_t width) const {
    return tensor.stride[3] == 1 && width % kLanes == 0;
  }
  /// Such rows in f32, close together: a tile that goes from row to row reads little else.
  [[nodiscard]] bool is_dense(std::int64_t width) const {
    return has_floats() && width % kLanes == 0 && tensor.stride[2] < 2 * width && tensor.stride[2] > 0;
  }
  [[nodiscard]] std::int64_t element_bytes() const { return tensor.type == cpu::Type::f32 ? 4 : 2; }
  [[nodiscard]] const char* address(std::int64_t j) const {
    return static_cast<const char*>(tensor.data) + at(j) * element_bytes();
  }
};

/// Row 0 is row `first` of a head of the tensor.
inline HeadRows rows_of(const Input& tensor, std::int64_t batch, std::int64_t head, std::int64_t first) {
  return {tensor, offset_of(tensor.stride, batch, head, first)};
}

/// The keys and values of a task, counted within its segment.
struct KvSource {
  HeadRows keys, values;
};

inline KvSource kv_source_of(const cpu::Arguments& call, const cpu::Task& task) {
  const std::int64_t kv_head = task.head_begin / call.group;
  return {rows_of(call.key, task.batch, kv_head, task.key_begin),
          rows_of(call.value, task.batch, kv_head, task.key_begin)};
}

}  // namespace heed::detail::HEED_ISA
