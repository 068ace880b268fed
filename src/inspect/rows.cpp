#include "inspect/rows.hpp"

#include "inspect/each_row.hpp"

namespace heed::detail {
namespace {

// Sum of |p - x| over integers x in [begin, end).
double sum_of_distances(std::int64_t p, std::int64_t begin, std::int64_t end) {
  const auto triangle = [](std::int64_t n) {  // 1 + … + n
    return n <= 0 ? 0.0 : static_cast<double>(n) * (static_cast<double>(n) + 1) / 2;
  };
  if (begin >= end) return 0;
  if (p < begin) return triangle(end - 1 - p) - triangle(begin - 1 - p);
  if (p >= end) return triangle(p - begin) - triangle(p - end);
  return triangle(p - begin) + triangle(end - 1 - p);
}

AllowedKeys allowed_keys_of_row(const Problem& p, const Segment& segment, const Row& row) {
  const KeyRange keys = keys_of(p, segment, row.position);
  AllowedKeys allowed;
  if (p.mask || p.bias || !p.sparse_masks.empty()) {
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      if (!is_allowed(p, segment, row, j)) continue;
      allowed.keys += 1;
      allowed.distance += distance_between(segment, row, j);
    }
  } else {
    allowed.keys = static_cast<double>(keys.end - keys.begin);
    allowed.distance =
        sum_of_distances(row.position, keys.begin - segment.key_begin, keys.end - segment.key_begin);
  }
  if (allowed.keys > 0) allowed.distance /= allowed.keys;
  return allowed;
}

}  // namespace

void fill_places(const Problem& p, AttentionReport& report) {
  for (Tensor* tensor : {&report.position, &report.key_begin, &report.key_end})
    *tensor = Tensor({p.batch, p.query_length}, DType::i64);
  for (const Segment& segment : p.segments)
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) {
      const std::int64_t position = i - segment.query_begin + segment.offset;
      const KeyRange keys = keys_of(p, segment, position);
      report.position.at<std::int64_t>(segment.batch, i) = position;
      report.key_begin.at<std::int64_t>(segment.batch, i) = keys.begin;
      report.key_end.at<std::int64_t>(segment.batch, i) = keys.end;
    }
}

void fill_shares(const Problem& p, AttentionReport& report) {
  for (Tensor* tensor : {&report.first, &report.self, &report.previous, &report.next})
    *tensor = row_tensor(p);
  const Output first = target_rows(report.first);
  const Output self = target_rows(report.self);
  const Output previous = target_rows(report.previous);
  const Output next = target_rows(report.next);
  const auto every_row = [](std::int64_t, std::int64_t) { return true; };
  for_each_row(p, "shares", report.lse, every_row,
               [&](const Segment& segment, const Row& row, RowWeights& row_weights) {
                 const auto put = [&](const Output& to, std::int64_t j) {
                   write(to, row_weights.weight(j), row.batch, row.head, row.i);
                 };
                 const std::int64_t here = segment.key_begin + row.position;
                 if (here + kRowsAhead < segment.key_end) row_weights.expect_key(here + kRowsAhead);
                 put(first, segment.key_begin);
                 put(self, here);
                 put(previous, here - 1);
                 put(next, here + 1);
               });
}

std::vector<AllowedKeys> allowed_keys_of(const Problem& p, std::int64_t batch, std::int64_t head) {
  std::vector<AllowedKeys> allowed(static_cast<std::size_t>(p.query_length));
  const auto blocks = row_blocks(p, 0, p.query_length, head, head + 1, kRowsAtOnce);
  parallel_for(std::ssize(blocks), p.threads, [&](std::int64_t index, int) {
    const RowBlock& block = blocks[static_cast<std::size_t>(index)];
    const Segment& segment = p.segments[block.segment];
    if (segment.batch != batch) return;
    for (std::int64_t i = block.begin; i < block.end; ++i)
      allowed[static_cast<std::size_t>(i)] = allowed_keys_of_row(p, segment, row_at(p, block, i));
  });
  return allowed;
}

}  // namespace heed::detail
