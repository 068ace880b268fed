#include "report/rows.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <unordered_map>

#include "heed/parallel.hpp"
#include "report/tile.hpp"
#include "report/weigher.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Target target_rows(Tensor& tensor) {
  const MutableTensorView view = tensor.mutable_view();
  return {view.data(), view.dtype(), {view.strides()[0], view.strides()[1], view.strides()[2], 0}};
}

Tensor row_tensor(const Problem& p) {
  return Tensor({p.batch, p.heads, p.query_length}, p.dtype == DType::f64 ? DType::f64 : DType::f32);
}

// visit(segment, row, weigher) for every row of every head, the weigher set to it.
template <class Visit>
void for_each_row(const Problem& p, const char* what, const TensorView& lse, Visit visit) {
  std::atomic<std::int64_t> done{0};
  const Operand normaliser = lse_operand(p, lse, 4);
  const auto blocks = row_blocks(p, 0, p.query_length, 0, p.heads, kRowsAtOnce);
  parallel_for(static_cast<std::int64_t>(blocks.size()), p.threads, [&](std::int64_t index, int) {
    const RowBlock& block = blocks[static_cast<std::size_t>(index)];
    const Segment& segment = p.segments[block.segment];
    Weigher weigher(p);
    for (std::int64_t i = block.begin; i < block.end; ++i) {
      const Row row = row_at(p, block, i);
      weigher.set_row(segment, row, read(normaliser, row.batch, row.head, i));
      visit(segment, row, weigher);
    }
    if (p.progress) p.progress(what, static_cast<double>(++done) / static_cast<double>(blocks.size()));
  });
}

// For each token the keys that hold it, in order; and the number of each row's token, -1 where no key has it.
struct TokenPlaces {
  std::vector<std::vector<std::int64_t>> keys;
  std::vector<std::int64_t> of_row;
};

TokenPlaces places_of(const std::vector<std::string>& query_tokens,
                      const std::vector<std::string>& key_tokens) {
  TokenPlaces places;
  std::unordered_map<std::string, std::int64_t> numbers;
  for (std::size_t j = 0; j < key_tokens.size(); ++j) {
    const auto number =
        numbers.try_emplace(key_tokens[j], static_cast<std::int64_t>(numbers.size())).first->second;
    if (number == static_cast<std::int64_t>(places.keys.size())) places.keys.emplace_back();
    places.keys[static_cast<std::size_t>(number)].push_back(static_cast<std::int64_t>(j));
  }
  for (const std::string& token : query_tokens) {
    const auto found = numbers.find(token);
    places.of_row.push_back(found == numbers.end() ? -1 : found->second);
  }
  return places;
}

// sum of |p - x| over whole numbers x in [begin, end).
double sum_of_distances(std::int64_t p, std::int64_t begin, std::int64_t end) {
  const auto triangle = [](std::int64_t n) {  // 1 + … + n
    return n <= 0 ? 0.0 : static_cast<double>(n) * (static_cast<double>(n) + 1) / 2;
  };
  if (begin >= end) return 0;
  if (p < begin) return triangle(end - 1 - p) - triangle(begin - 1 - p);
  if (p >= end) return triangle(p - begin) - triangle(p - end);
  return triangle(p - begin) + triangle(end - 1 - p);
}

Reach reach_of_row(const Problem& p, const Segment& segment, const Row& row) {
  const KeyRange keys = keys_of(p, segment, row.position);
  Reach reach;
  if (p.mask || p.bias) {
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      if (!is_allowed(p, segment, row, j)) continue;
      reach.keys += 1;
      reach.distance += distance_between(segment, row, j);
    }
  } else {
    reach.keys = static_cast<double>(keys.end - keys.begin);
    reach.distance =
        sum_of_distances(row.position, keys.begin - segment.key_begin, keys.end - segment.key_begin);
  }
  if (reach.keys > 0) reach.distance /= reach.keys;
  return reach;
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
  const Target first = target_rows(report.first);
  const Target self = target_rows(report.self);
  const Target previous = target_rows(report.previous);
  const Target next = target_rows(report.next);
  for_each_row(p, "shares", report.lse, [&](const Segment& segment, const Row& row, Weigher& weigher) {
    const auto put = [&](const Target& to, std::int64_t j) {
      write(to, weigher.weight(j), row.batch, row.head, row.i);
    };
    const std::int64_t here = segment.key_begin + row.position;
    put(first, segment.key_begin);
    put(self, here);
    put(previous, here - 1);
    put(next, here + 1);
  });
}

void fill_induction(const Problem& p, AttentionReport& report) {
  report.induction = row_tensor(p);
  const Target target = target_rows(report.induction);
  const TokenPlaces places = places_of(report.query_tokens, report.key_tokens);
  for_each_row(p, "induction", report.lse, [&](const Segment& segment, const Row& row, Weigher& weigher) {
    const std::int64_t token = places.of_row[static_cast<std::size_t>(row.i)];
    double sum = 0;
    bool any = false;
    if (token >= 0) {
      const auto& copies = places.keys[static_cast<std::size_t>(token)];
      const std::int64_t end = std::min(segment.key_begin + row.position, segment.key_end) - 1;
      for (auto copy = std::lower_bound(copies.begin(), copies.end(), segment.key_begin);
           copy != copies.end() && *copy < end; ++copy) {
        sum += weigher.quick_weight(*copy + 1);
        any = true;
      }
    }
    write(target, any ? sum : kNaN, row.batch, row.head, row.i);
  });
}

std::vector<Reach> reach_of(const Problem& p, std::int64_t batch, std::int64_t head) {
  std::vector<Reach> reach(static_cast<std::size_t>(p.query_length));
  const auto blocks = row_blocks(p, 0, p.query_length, head, head + 1, kRowsAtOnce);
  parallel_for(static_cast<std::int64_t>(blocks.size()), p.threads, [&](std::int64_t index, int) {
    const RowBlock& block = blocks[static_cast<std::size_t>(index)];
    const Segment& segment = p.segments[block.segment];
    if (segment.batch != batch) return;
    for (std::int64_t i = block.begin; i < block.end; ++i)
      reach[static_cast<std::size_t>(i)] = reach_of_row(p, segment, row_at(p, block, i));
  });
  return reach;
}

}  // namespace heed::detail
