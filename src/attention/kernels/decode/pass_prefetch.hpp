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
  bool by_lines = false;   // products along rows prefetch a row line by line, not all lines of it at once

  [[nodiscard]] HEED_INLINE const char* row(std::int64_t at) const {
    return at < block.count ? block.rows.address_ahead(block.first + at)
                            : next.rows.address_ahead(next.first + at - block.count);
  }

  template <int kLocality>
  HEED_INLINE void fetch_row(std::int64_t at) const {
    const char* from = row(at);
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
    by_lines_ = stream.by_lines && interval_ == 1;
  }

  /// beside() prefetches the lines of a row at once. For products that read a part of each row.
  void rows_at_once() { by_lines_ = false; }

  /// For products that go along rows by vectors of a line. Call once per key. Returns the row whose lines are
  /// to be prefetched with the key's lines. If rows are prefetched at once, prefetches one here, if it is
  /// due, and returns `cached`, so that the lines cost nothing.
  [[nodiscard]] HEED_INLINE const char* beside(const float* cached) {
    if (by_lines_) return stream_.row(row_++);
    fetch();
    return reinterpret_cast<const char*>(cached);
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
  bool shares_ = false, by_lines_;
};

/// Goes over the rows of a stream from `row` on.
class StreamRows {
 public:
  /// Evenly spaced rows, of which `bytes` bytes each are read.
  struct Run {
    const char* from;
    std::int64_t rows, row_bytes, bytes;
  };

  StreamRows(const StreamPrefetch& stream, std::int64_t row) : stream_(stream), row_(row) {}

  /// The next rows, `most` or fewer.
  HEED_INLINE Run next(std::int64_t most) {
    if (run_.rows == 0) find_run();
    const Run run = {run_.from, smaller(most, run_.rows), run_.row_bytes, run_.bytes};
    run_.from += run.rows * run.row_bytes;
    run_.rows -= run.rows;
    return run;
  }

 private:
  [[gnu::noinline]] void find_run() {
    constexpr std::int64_t kMostRows = 32;
    const bool here = row_ < stream_.block.count;
    const HeadRows& rows = here ? stream_.block.rows : stream_.next.rows;
    const std::int64_t left = here ? stream_.block.count - row_ : kMostRows;
    const std::int64_t at =
        here ? stream_.block.first + row_ : stream_.next.first + row_ - stream_.block.count;
    const std::int64_t first = smaller(at, rows.count - 1);  // the row may lie beyond the last one
    const std::int64_t count = smaller(smaller(kMostRows, left), rows.count - first);
    run_ = {rows.address(first), rows.even_rows_from(first, count), rows.row_bytes,
            here ? stream_.bytes : stream_.next_bytes};
    row_ += run_.rows;
  }

  const StreamPrefetch& stream_;
  std::int64_t row_;
  Run run_ = {};
};

/// Prefetches of lines of memory into the second-level cache, for loops that issue them evenly. While many
/// prefetches are under way, loads wait. Products by digits read 96 values several times, a part of each, so
/// rows are prefetched that far ahead.
class LinePrefetch {
 public:
  LinePrefetch(const StreamPrefetch& stream, std::int64_t row) : rows_(stream, row) {}

  /// Writes the addresses of the `n` lines of the next `rows` rows. It prefetches at once what does not fit.
  /// If there are fewer, the last is repeated; if there are none, the list itself is prefetched.
  void list(std::int64_t rows, const char** to, std::int64_t n) {
    const char** const end = to + n;
    const auto* last = reinterpret_cast<const char*>(to);
    while (rows > 0) {
      StreamRows::Run run = rows_.next(rows);
      rows -= run.rows;
      if (run.row_bytes == run.bytes) run = {run.from, 1, 0, run.rows * run.bytes};
      const std::int64_t lines = (run.bytes + 63) / 64;
      for (std::int64_t row = 0; row < run.rows; ++row, run.from += run.row_bytes) {
        const std::int64_t fit = smaller(lines, end - to);
        for (std::int64_t i = 0; i < fit; ++i) to[i] = run.from + 64 * i;
        for (std::int64_t i = fit; i < lines; ++i) __builtin_prefetch(run.from + 64 * i, 0, 2);
        to += fit;
        last = run.from + 64 * (lines - 1);
      }
    }
    while (to < end) *to++ = last;
  }

 private:
  StreamRows rows_;
};

inline std::int64_t rows_ahead(const cpu::ReadAhead& ahead, DType type, std::int64_t bytes) {
  return larger(
      1, smaller(smaller(kPanel, ahead.rows), (type == DType::f32 ? ahead.bytes : ahead.bytes16) / bytes));
}

inline StreamPrefetch stream_prefetch(const cpu::ReadAhead& ahead, const RowBlock& block,
                                      const RowPrefetch& next) {
  const std::int64_t bytes = block.rows.bytes_of(block.width);
  return {block,
          next,
          bytes,
          next.rows.bytes_of(next.width),
          rows_ahead(ahead, block.rows.tensor.dtype, bytes),
          ahead.to_first_cache,
          false,
          ahead.by_lines};
}

/// The same for rows that are read in the next phase, `ahead` rows further on.
inline StreamPrefetch phase_prefetch(const RowBlock& block, const RowPrefetch& next, std::int64_t ahead) {
  const std::int64_t bytes = block.rows.bytes_of(block.width);
  return {block, next, bytes, bytes, ahead, false, true};
}

}  // namespace heed::detail::HEED_ISA
