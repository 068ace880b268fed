// The keys and values of a task: rows of one key head, by their index within the segment. Only this file
// knows how rows lie in memory: evenly spaced, or by a cache's table.
#pragma once

#include "attention/kernels/shared/arguments.hpp"
#include "attention/kernels/shared/tiling.hpp"

namespace heed::detail::HEED_ISA {

HEED_INLINE std::int64_t offset_of(const std::int64_t (&stride)[4], std::int64_t b, std::int64_t h,
                                   std::int64_t l) {
  return b * stride[0] + h * stride[1] + l * stride[2];
}

/// The rows of one head.
struct HeadRows {
  Operand tensor;
  std::int64_t first;                     ///< element index of row number 0
  std::int64_t row_bytes;                 ///< distance between row numbers
  const char* start;                      ///< address of row number 0
  std::int64_t bits;                      ///< of an element; 4 for some codes of a cache
  const std::int32_t* numbers = nullptr;  ///< row j is row number numbers[j]; nullptr: row number j
  std::int64_t count = INT64_MAX;         ///< number of rows, if there are numbers

  /// at() is the element index of row j; element_stride() is the distance between its elements.
  [[nodiscard]] std::int64_t at(std::int64_t j) const {
    return first + (numbers != nullptr ? numbers[j] : j) * tensor.stride[2];
  }
  [[nodiscard]] std::int64_t element_stride() const { return tensor.stride[3]; }

  /// How many of the rows [j, j + rows) are evenly spaced in memory, counted from the first.
  [[nodiscard]] std::int64_t even_rows_from(std::int64_t j, std::int64_t rows) const {
    std::int64_t even = 1;
    while (numbers != nullptr && even < rows && numbers[j + even] == numbers[j] + even) ++even;
    return numbers != nullptr ? even : rows;
  }
  [[nodiscard]] bool is_even(std::int64_t j, std::int64_t rows) const {
    return even_rows_from(j, rows) == rows;
  }
  /// f32 rows from j on that are evenly spaced, so that tiles can read them in place. row_stride() is their
  /// distance.
  [[nodiscard]] const float* floats(std::int64_t j) const {
    return static_cast<const float*>(tensor.data) + at(j);
  }
  [[nodiscard]] std::int64_t row_stride() const { return tensor.stride[2]; }
  [[nodiscard]] bool has_floats() const { return tensor.dtype == DType::f32 && tensor.stride[3] == 1; }
  /// Whether rows are whole vectors without gaps between their elements.
  [[nodiscard]] bool has_whole_vectors(std::int64_t width) const {
    return tensor.stride[3] == 1 && width % kLanes == 0;
  }
  /// Whether such rows are f32 and close together, so that a tile that goes from row to row reads little
  /// else.
  [[nodiscard]] bool is_dense(std::int64_t width) const {
    return numbers == nullptr && has_floats() && width % kLanes == 0 && tensor.stride[2] < 2 * width &&
           tensor.stride[2] > 0;
  }
  [[nodiscard]] std::int64_t bytes_of(std::int64_t elements) const { return elements * bits / 8; }
  [[nodiscard]] const char* address(std::int64_t j) const {
    return start + (numbers != nullptr ? numbers[j] : j) * row_bytes;
  }
  /// The address of a row that may lie beyond the last one, for prefetching.
  [[nodiscard]] const char* address_ahead(std::int64_t j) const { return address(smaller(j, count - 1)); }
};

/// Rows [first, first + count) of a head; `width` elements of each.
struct RowBlock {
  HeadRows rows;
  std::int64_t first, count, width;
};

/// Rows whose number 0 begins at element `first`. This may lie before the memory (Task::first_key), so its
/// address is computed with integers.
inline HeadRows head_rows(const Operand& tensor, std::int64_t first, std::int64_t bits) {
  const auto start =
      reinterpret_cast<std::uintptr_t>(tensor.data) + static_cast<std::uintptr_t>(first * bits / 8);
  return {tensor, first, tensor.stride[2] * bits / 8, reinterpret_cast<const char*>(start), bits};
}

inline HeadRows head_rows(const Operand& tensor, std::int64_t first) {
  return head_rows(tensor, first, cpu::bits_of(tensor.dtype));
}

/// The rows of a head, where row 0 is row `first` of the tensor.
inline HeadRows rows_of(const Operand& tensor, std::int64_t batch, std::int64_t head, std::int64_t first) {
  return head_rows(tensor, offset_of(tensor.stride, batch, head, first));
}

/// The keys and values of a task, counted within its segment. If a cache keeps codes, rows are codes, which
/// coded_rows.hpp reads.
struct KvSource {
  HeadRows keys, values;
  const CacheRows* codes = nullptr;
};

inline HeadRows cached_rows_of(const Operand& tensor, const CacheRows& cache, const cpu::Task& task,
                               std::int64_t kv_head) {
  const CachedSequence& sequence = cache.sequences[task.sequence];
  const std::int64_t base = sequence.rows != nullptr ? 0 : sequence.first_row;
  HeadRows rows = head_rows(tensor, offset_of(tensor.stride, 0, kv_head, base),
                            cache.codes.format == RowFormat::int4 ? 4 : cpu::bits_of(tensor.dtype));
  rows.numbers = sequence.rows;
  rows.count = task.key_end - task.key_begin;
  return rows;
}

inline KvSource kv_source_of(const cpu::Arguments& call, const cpu::Task& task) {
  const std::int64_t kv_head = task.head_begin / call.group;
  const std::int64_t first = task.key_begin - task.first_key;
  if (call.cache == nullptr)
    return {rows_of(call.key, task.batch, kv_head, first), rows_of(call.value, task.batch, kv_head, first)};
  return {cached_rows_of(call.key, *call.cache, task, kv_head),
          cached_rows_of(call.value, *call.cache, task, kv_head),
          call.cache->codes.format == RowFormat::floats ? nullptr : call.cache};
}

}  // namespace heed::detail::HEED_ISA
