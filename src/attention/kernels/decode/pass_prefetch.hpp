// Prefetches of the rows that the decode kernel reads next.
#pragma once

#include "attention/kernels/softmax/workspace.hpp"

namespace heed::detail::HEED_ISA {

/// The rows to be read next, in reading order: a block of this tensor, then rows of the other. Reading a row
/// prefetches one further on, so that memory is never idle.
struct StreamPrefetch {
  RowBlock block;
  RowPrefetch next;                // of the other tensor
  std::int64_t bytes, next_bytes;  // per row
  std::int64_t ahead;
  bool to_first_cache;
  bool by_phases = false;  // prefetches lie a phase ahead (decode_products.hpp)

  template <int kLocality>
  HEED_INLINE void fetch_row(std::int64_t at) const {
    const char* from = at < block.count ? block.rows.address_ahead(block.first + at)
                                        : next.rows.address_ahead(next.first + at - block.count);
    const std::int64_t size = at < block.count ? bytes : next_bytes;
    for (std::int64_t byte = 0; byte < size; byte += 64) __builtin_prefetch(from + byte, 0, kLocality);
  }
};

/// The prefetches of one of `passes` passes over a panel of `keys` keys, which begins at row `panel` of the
/// stream. One or two passes wait for memory, so the first prefetches the row `ahead` rows further on. With
/// more passes, or by phases, each prefetches its share of the next panel, or of the panel a phase ahead,
/// which is then read from the second-level cache. So memory works during all passes.
class PassPrefetch {
 public:
  PassPrefetch(const StreamPrefetch& stream, std::int64_t panel, std::int64_t keys, std::int64_t pass,
               std::int64_t passes)
      : stream_(stream) {
    if (passes <= 2 && !stream.by_phases) {
      interval_ = pass == 0 ? 1 : INT64_MAX;
      row_ = panel + stream.ahead;
    } else {
      shares_ = true;
      interval_ = passes;
      row_ = panel + (stream.by_phases ? stream.ahead : keys) + (pass * keys + passes - 1) / passes;
    }
    wait_ = interval_;
  }

  /// Call once per key.
  HEED_INLINE void fetch() {
    if (--wait_ > 0) return;
    wait_ = interval_;
    if (stream_.to_first_cache && !shares_)
      stream_.fetch_row<3>(row_++);
    else
      stream_.fetch_row<2>(row_++);
  }

 private:
  const StreamPrefetch& stream_;
  std::int64_t row_, interval_, wait_;
  bool shares_ = false;
};

inline std::int64_t rows_ahead(const cpu::ReadAhead& ahead, DType type, std::int64_t bytes) {
  return larger(1, smaller(kPanel, (type == DType::f32 ? ahead.bytes : ahead.bytes16) / bytes));
}

inline StreamPrefetch stream_prefetch(const cpu::ReadAhead& ahead, const RowBlock& block,
                                      const RowPrefetch& next) {
  const std::int64_t bytes = block.rows.bytes_of(block.width);
  return {block,
          next,
          bytes,
          next.rows.bytes_of(next.width),
          rows_ahead(ahead, block.rows.tensor.dtype, bytes),
          ahead.to_first_cache};
}

/// The same for rows that are read in the next phase, `ahead` rows further on.
inline StreamPrefetch phase_prefetch(const RowBlock& block, const RowPrefetch& next, std::int64_t ahead) {
  const std::int64_t bytes = block.rows.bytes_of(block.width);
  return {block, next, bytes, bytes, ahead, false, true};
}

}  // namespace heed::detail::HEED_ISA
