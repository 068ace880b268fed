// Boolean and sparse masks, applied to some rows and a KV block. Masked rows and row groups describe this KV
// block only, in the way that position masks describe a segment. So its full tiles are computed as without a
// mask, and tiles that no row may see are skipped. Only rows whose keys are not a range need a byte per key.
#pragma once

#include "attention/kernels/shared/pack.hpp"
#include "attention/kernels/shared/visible_keys.hpp"

namespace heed::detail::HEED_ISA {

using cpu::count_path;
using cpu::Path;

/// Whether the call has masks that a row's position does not determine.
HEED_INLINE bool has_masks(const Arguments& call) {
  return call.mask.data != nullptr || call.sparse_mask_count > 0;
}

/// Panels of the longest step: the decode kernel's (workspace.hpp), or a KV block of gradients.
inline constexpr std::int64_t kMaxStepPanels = 8 * 192 / kPanel;

/// Bytes per row for a block of `keys` keys. Vectors of the last panel are read whole.
HEED_INLINE std::int64_t visible_bytes(std::int64_t keys) { return round_up(keys, kPanel) + kPanel; }

/// The rows of a task, or of a block of rows, in order of head and index.
struct MaskedRows {
  const Arguments& call;
  const Task& task;
  QueryRow* query_rows;
  RowGroup* groups;
  std::int64_t rows, padded_rows;
  const char* left_out;   ///< [rows], or nullptr: rows that see nothing any more
  std::uint8_t* visible;  ///< [rows][visible_ld]
  std::int64_t visible_ld;
};

/// Keys [key, key + count) of a segment.
struct KeySpan {
  std::int64_t key, count;
};

/// How much of rows [begin, end) of a head and some keys the masks allow.
inline Coverage coverage_of_head(const Arguments& call, const Task& task, std::int64_t head,
                                 std::int64_t begin, std::int64_t end, const KeySpan& keys) {
  Coverage all = call.mask.data != nullptr ? Coverage::cut : Coverage::full;
  const std::int64_t first = task.key_begin + keys.key;
  for (std::int64_t m = 0; m < call.sparse_mask_count; ++m) {
    const MaskSource& mask = call.sparse_masks[m];
    const Coverage one = mask.coverage({task.batch, head, begin, end, first, first + keys.count});
    if (one == Coverage::empty) return one;
    if (one == Coverage::cut) all = one;
  }
  return all;
}

/// The same for rows [row, row + rows) of a task, which run through its heads.
inline Coverage coverage_of_rows(const Arguments& call, const Task& task, std::int64_t row, std::int64_t rows,
                                 const KeySpan& keys) {
  const std::int64_t each = task.row_end - task.row_begin;
  bool any = false, full = true;
  while (rows > 0) {
    const std::int64_t at = row % each, here = smaller(rows, each - at);
    const Coverage one = coverage_of_head(call, task, task.head_begin + row / each, task.row_begin + at,
                                          task.row_begin + at + here, keys);
    any = any || one != Coverage::empty;
    full = full && one == Coverage::full;
    row += here;
    rows -= here;
  }
  return full ? Coverage::full : any ? Coverage::cut : Coverage::empty;
}

/// The range from the first to the last 1 in visible [count], and whether all elements in it are 1.
struct Run {
  KeyRange range;
  bool whole;
};
inline Run run_of(const std::uint8_t* visible, std::int64_t count) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  const auto word_at = [&](std::int64_t k) {
    std::uint64_t word = 0;
    __builtin_memcpy(&word, visible + k, sizeof word);
    return word;
  };
  std::int64_t begin = 0;
  while (begin + 8 <= count && word_at(begin) == 0) begin += 8;
  while (begin < count && visible[begin] == 0) ++begin;
  if (begin == count) return {{0, 0}, true};
  std::int64_t end = count;
  while (end - 8 >= begin && word_at(end - 8) == 0) end -= 8;
  while (visible[end - 1] == 0) --end;
  std::int64_t k = begin;
  while (k + 8 <= end && word_at(k) == kOnes) k += 8;
  while (k < end && visible[k] != 0) ++k;
  return {{begin, end}, k == end};
}

inline void read_mask(const Arguments& call, std::int64_t at, std::int64_t count, std::uint8_t* to) {
  const std::uint8_t* from = static_cast<const std::uint8_t*>(call.mask.data) + at;
  const std::int64_t stride = call.mask.stride[3];
  if (stride == 1)
    for (std::int64_t k = 0; k < count; ++k) to[k] = from[k] != 0;
  else
    for (std::int64_t k = 0; k < count; ++k) to[k] = from[k * stride] != 0;
}

/// Resets the row to the keys that its position allows.
inline void restore_row(const MaskedRows& m, std::int64_t row) {
  QueryRow& query_row = m.query_rows[row];
  query_row = query_row_of(m.call, m.task, query_row.head, query_row.index);
  if (m.left_out != nullptr && m.left_out[row] != 0) query_row.key_begin = query_row.key_end = 0;
}

inline void forbid_row(QueryRow& query_row) {
  query_row.key_begin = query_row.key_end = 0;
  query_row.visible = nullptr;
}

/// How much of a group and each panel of a step the masks allow. Only cut panels are tested row by row.
struct PanelCoverage {
  Coverage of[kMaxStepPanels];
};
inline PanelCoverage panel_coverage(const MaskedRows& m, std::int64_t row, std::int64_t rows,
                                    const KeySpan& keys) {
  PanelCoverage panels;
  for (std::int64_t p = 0; p * kPanel < keys.count; ++p)
    panels.of[p] = coverage_of_rows(m.call, m.task, row, rows,
                                    {keys.key + p * kPanel, smaller(kPanel, keys.count - p * kPanel)});
  return panels;
}

/// Writes to `visible`, for each of keys [key, key + count), whether the row may see it.
inline void find_visible(const MaskedRows& m, const QueryRow& query_row, std::int64_t key, std::int64_t count,
                         std::uint8_t* visible) {
  const std::int64_t first = m.task.key_begin + key;
  const Operand& mask = m.call.mask;
  if (mask.data != nullptr)
    read_mask(m.call,
              offset_of(mask.stride, m.task.batch, query_row.head, query_row.index) + first * mask.stride[3],
              count, visible);
  else
    __builtin_memset(visible, 1, static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < m.call.sparse_mask_count; ++n)
    m.call.sparse_masks[n].restrict_row(m.task.batch, query_row.head, query_row.index, first, first + count,
                                        visible);
}

/// Restricts the row to the keys of a step that masks allow.
inline void mask_row(const MaskedRows& m, std::int64_t row, const KeySpan& keys,
                     const PanelCoverage& panels) {
  restore_row(m, row);
  QueryRow& query_row = m.query_rows[row];
  const std::int64_t begin = larger(query_row.key_begin, keys.key) - keys.key;
  const std::int64_t end = smaller(query_row.key_end, keys.key + keys.count) - keys.key;
  if (begin >= end) return forbid_row(query_row);
  std::uint8_t* visible = m.visible + row * m.visible_ld;
  for (std::int64_t at = begin; at < end;) {
    const Coverage coverage = panels.of[at / kPanel];
    std::int64_t next = at / kPanel + 1;
    while (next * kPanel < end && panels.of[next] == coverage) ++next;
    const std::int64_t count = smaller(next * kPanel, end) - at;
    if (coverage == Coverage::cut)
      find_visible(m, query_row, keys.key + at, count, visible + at);
    else
      __builtin_memset(visible + at, coverage == Coverage::full ? 1 : 0, static_cast<std::size_t>(count));
    at += count;
  }
  const Run run = run_of(visible + begin, end - begin);
  query_row.key_begin = keys.key + begin + run.range.begin;
  query_row.key_end = keys.key + begin + run.range.end;
  query_row.visible = run.whole ? nullptr : visible;
  query_row.visible_key = keys.key;
}

/// Recomputes the groups from their rows; rows beyond the last one repeat it.
inline void find_masked_groups(const MaskedRows& m) {
  for (std::int64_t r = m.rows; r < m.padded_rows; ++r) m.query_rows[r] = m.query_rows[m.rows - 1];
  for (std::int64_t r = 0; r < m.padded_rows; r += kGroupRows)
    m.groups[r / kGroupRows] =
        group_of(m.query_rows + r, smaller(kGroupRows, m.padded_rows - r), m.groups[r / kGroupRows].started);
}

inline void restore_rows(const MaskedRows& m) {
  for (std::int64_t r = 0; r < m.rows; ++r) restore_row(m, r);
  find_masked_groups(m);
}

inline void forbid_rows(const MaskedRows& m) {
  for (std::int64_t r = 0; r < m.rows; ++r) forbid_row(m.query_rows[r]);
  find_masked_groups(m);
}

/// Makes rows and groups describe these keys from here on. Returns false if no row sees any of them; if the
/// masks already exclude all of them, nothing is changed.
inline bool mask_rows(const MaskedRows& m, const KeySpan& keys) {
  const Coverage whole = coverage_of_rows(m.call, m.task, 0, m.rows, keys);
  count_path(m.call.paths, whole == Coverage::empty  ? Path::mask_empty
                           : whole == Coverage::full ? Path::mask_full
                                                     : Path::mask_cut);
  if (whole == Coverage::empty) return false;
  if (whole == Coverage::full) {
    restore_rows(m);
    return true;
  }
  bool any = false;
  for (std::int64_t first = 0; first < m.rows; first += kGroupRows) {
    const std::int64_t end = smaller(first + kGroupRows, m.rows);
    const Coverage group = coverage_of_rows(m.call, m.task, first, end - first, keys);
    PanelCoverage panels;
    if (group == Coverage::cut) panels = panel_coverage(m, first, end - first, keys);
    for (std::int64_t r = first; r < end; ++r) {
      if (group == Coverage::empty)
        forbid_row(m.query_rows[r]);
      else if (group == Coverage::full)
        restore_row(m, r);
      else
        mask_row(m, r, keys, panels);
      any = any || m.query_rows[r].key_begin < m.query_rows[r].key_end;
    }
  }
  find_masked_groups(m);
  return any;
}

}  // namespace heed::detail::HEED_ISA
