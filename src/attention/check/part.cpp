#include "attention/check/part.hpp"

#include <algorithm>
#include <utility>

#include "core/message.hpp"

namespace heed::detail {
namespace {

void check_axis(const char* axis, const char* begin_name, std::int64_t begin, std::int64_t count,
                std::int64_t whole) {
  if (begin < 0 || begin + count > whole)
    refuse("part.", begin_name, " is ", begin, "; 0 to ", whole - count, " is expected for query's ", count,
           " of ", whole, " ", axis);
}

std::int64_t check_rows(const CallPart& part) {
  std::int64_t rows = 0, end = 0;
  for (std::size_t n = 0; n < part.rows.size(); ++n) {
    const PositionRange& range = part.rows[n];
    if (range.begin < end || range.end < range.begin || range.end > part.query_length)
      refuse("part.rows[", n, "] is ", range.begin, " to ", range.end, "; ascending rows from ", end, " to ",
             part.query_length, " are expected");
    rows += range.end - range.begin;
    end = range.end;
  }
  return rows;
}

// A range of the part's rows: its row `first` is row `begin` of the whole.
struct Run {
  std::int64_t first, begin, end;
};

std::vector<Run> runs_of(const CallPart& part) {
  std::vector<Run> runs;
  std::int64_t first = 0;
  for (const PositionRange& range : part.rows) {
    if (range.begin == range.end) continue;
    if (!runs.empty() && runs.back().end == range.begin)
      runs.back().end = range.end;
    else
      runs.push_back({first, range.begin, range.end});
    first += range.end - range.begin;
  }
  return runs;
}

}  // namespace

void read_part(const CallPart& part, Problem& p) {
  if (part.query_length < 0) refuse("part.query_length is ", part.query_length, "; 0 or more is expected");
  const std::int64_t group = p.kv_heads > 0 ? p.heads / p.kv_heads : 1;
  if (part.heads < 0 || part.heads % group != 0 || part.head_begin % group != 0)
    refuse("part.heads is ", part.heads, " from ", part.head_begin, "; multiples of ", group,
           ", the query heads that share a key head, are expected");
  check_axis("heads", "head_begin", part.head_begin, p.heads, part.heads);
  check_axis("batch entries", "batch_begin", part.batch_begin, p.batch, part.batch);
  const std::int64_t rows = check_rows(part);
  if (rows != p.query_length)
    refuse("part.rows are ", rows, " rows; ", p.query_length, " as in query are expected");
  p.whole = {part.batch, part.heads, part.heads / group, part.query_length, part.batch, 0};
}

void cut_to_part(const CallPart& part, Problem& p) {
  const std::vector<Run> runs = runs_of(part);
  PartPlace place{nullptr, 0, part.batch_begin, part.head_begin};
  if (runs.size() == 1) place.row_begin = runs[0].begin;
  if (runs.size() > 1) {
    for (const Run& run : runs)
      for (std::int64_t row = run.begin; row < run.end; ++row) p.rows_of_part.push_back(row);
    place.rows = p.rows_of_part.data();
  }
  for (MaskSource& mask : p.sparse_masks) mask.place = place;
  p.score_mod.place = place;
  p.dropout.place = place;

  if (runs.size() <= 1 && p.query_length == part.query_length) return;
  std::vector<Segment> cut;
  for (const Segment& s : p.segments)
    for (const Run& run : runs) {
      const std::int64_t begin = std::max(s.query_begin, run.begin), end = std::min(s.query_end, run.end);
      if (begin >= end) continue;
      Segment one = s;
      one.query_begin = run.first + begin - run.begin;
      one.query_end = one.query_begin + end - begin;
      one.offset = s.offset + begin - s.query_begin;
      one.whole_rows = s.query_end - s.query_begin;
      cut.push_back(one);
    }
  p.segments = std::move(cut);
}

}  // namespace heed::detail
