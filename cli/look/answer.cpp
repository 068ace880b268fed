#include "look/answer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "command.hpp"
#include "machine.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr double kBytesOfCell = 9;  // its f64 and its bool

void check_index(const char* option, const std::optional<std::int64_t>& index, std::int64_t count,
                 const char* of) {
  if (index && *index >= count)
    throw UsageError(std::string(option) + " is " + std::to_string(*index) + "; there are " +
                     std::to_string(count) + " " + of + ", counted from 0");
}

// Heads and batch entries that a question is about.
std::int64_t planes(const Subject& subject, const LookArguments& arguments) {
  const TensorView query = lifted(subject.call.query);
  return (arguments.batch ? 1 : query.size(0)) * (arguments.head ? 1 : query.size(1));
}

void check_tile(const Subject& subject, const LookArguments& arguments) {
  const TileRange& tile = *arguments.tile;
  const std::int64_t rows = subject.call.query.size(-2);
  const std::int64_t keys = subject.call.key.size(-2);
  if (tile.row_begin >= rows || tile.key_begin >= keys)
    throw UsageError("--tile begins at row " + std::to_string(tile.row_begin) + ", key " +
                     std::to_string(tile.key_begin) + "; there are " + std::to_string(rows) +
                     " queries and " + std::to_string(keys) + " keys, counted from 0");
  const double cells =
      static_cast<double>(tile.row_end - tile.row_begin) * static_cast<double>(tile.key_end - tile.key_begin);
  const double bytes = cells * static_cast<double>(planes(subject, arguments)) * kBytesOfCell;
  if (bytes > memory_of_machine() / 2)
    throw UsageError(
        "--tile asks for " + size_text(4 * cells) + " a head in f32, and " + size_text(bytes) +
        " to compute it, more than half of this machine's memory (" + size_text(memory_of_machine()) +
        "); --head N, a smaller tile, --map 1024x1024 (exact sums) or --row N --top-k K answer more cheaply");
}

TileRange with_plane(TileRange range, const LookArguments& arguments) {
  range.batch = arguments.batch.value_or(-1);
  range.head = arguments.head.value_or(-1);
  return range;
}

// visit(batch, head) for those asked for.
template <class Visit>
void for_each_plane(const Subject& subject, const LookArguments& arguments, Visit visit) {
  for (std::int64_t b = 0; b < subject.report.batch; ++b)
    for (std::int64_t h = 0; h < subject.report.heads; ++h)
      if (b == arguments.batch.value_or(b) && h == arguments.head.value_or(h)) visit(b, h);
}

RowOfHead row_head(const Subject& subject, std::int64_t b, std::int64_t h, std::int64_t row) {
  return {b,
          h,
          row,
          number_at(subject.report.entropy, {b, h, row}),
          number_at(subject.report.distance, {b, h, row}),
          {},
          {}};
}

// The row itself, and its heaviest keys, equal ones by the lower index. NaN cannot be ranked.
RowOfHead row_from_tile(const Subject& subject, std::int64_t b, std::int64_t h, std::int64_t row,
                        std::int64_t top_k) {
  const AttentionReport& report = subject.report;
  const WeightTile tile = attention_tile(subject.call.query, subject.call.key, subject.call.options,
                                         report.lse, {row, row + 1, 0, report.keys, b, h});
  RowOfHead answer = row_head(subject, b, h, row);
  std::vector<std::int64_t> order;
  for (std::int64_t j = 0; j < report.keys; ++j) {
    answer.weights.push_back(number_at(tile.weights, {0, 0, 0, j}));
    if (tile.allowed.at<bool>(0, 0, 0, j) && !std::isnan(answer.weights.back())) order.push_back(j);
  }
  const auto weight = [&](std::int64_t j) { return answer.weights[static_cast<std::size_t>(j)]; };
  const auto count = std::min(top_k, static_cast<std::int64_t>(order.size()));
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::int64_t a, std::int64_t c) {
    return weight(a) > weight(c) || (weight(a) == weight(c) && a < c);
  });
  order.resize(static_cast<std::size_t>(count));
  for (std::int64_t j : order) answer.top.push_back({j, weight(j)});
  return answer;
}

// From the top-k of the report where that holds as many.
RowOfHead row_from_top_k(const Subject& subject, std::int64_t b, std::int64_t h, std::int64_t row,
                         std::int64_t top_k) {
  const AttentionReport& report = subject.report;
  const bool holds =
      report.top_k_index.rank() == 4 && report.top_k_index.size(3) >= std::min(top_k, report.keys);
  if (!holds) {
    RowOfHead answer = row_from_tile(subject, b, h, row, top_k);
    answer.weights.clear();
    return answer;
  }
  RowOfHead answer = row_head(subject, b, h, row);
  for (std::int64_t k = 0; k < std::min(top_k, report.top_k_index.size(3)); ++k) {
    const std::int64_t j = report.top_k_index.at<std::int64_t>(b, h, row, k);
    if (j >= 0) answer.top.push_back({j, number_at(report.top_k_weight, {b, h, row, k})});
  }
  return answer;
}

double order_of(const HeadSummary& head, HeadOrder order) {
  double value = 0;
  if (order == HeadOrder::sink) value = head.first;
  if (order == HeadOrder::entropy) value = head.entropy;
  if (order == HeadOrder::distance) value = head.distance;
  if (order == HeadOrder::received && !head.most_received_weight.empty())
    value = head.most_received_weight.front();
  return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
}

}  // namespace

double number_at(const Tensor& tensor, std::initializer_list<std::int64_t> index) {
  std::int64_t at = 0;
  int axis = 0;
  for (std::int64_t i : index) at = at * tensor.size(axis++) + i;
  return tensor.dtype() == DType::f64
             ? tensor.values<double>()[static_cast<std::size_t>(at)]
             : static_cast<double>(tensor.values<float>()[static_cast<std::size_t>(at)]);
}

std::vector<HeadSummary> heads_of(const Subject& subject, const LookArguments& arguments) {
  std::vector<HeadSummary> heads;
  for (const HeadSummary& head : subject.report.summaries)
    if (head.batch == arguments.batch.value_or(head.batch) && head.head == arguments.head.value_or(head.head))
      heads.push_back(head);
  if (arguments.order != HeadOrder::given)
    std::stable_sort(heads.begin(), heads.end(), [&](const HeadSummary& a, const HeadSummary& b) {
      return order_of(a, arguments.order) > order_of(b, arguments.order);
    });
  return heads;
}

std::vector<RowOfHead> answer_row(const Subject& subject, const LookArguments& arguments) {
  std::vector<RowOfHead> rows;
  for_each_plane(subject, arguments, [&](std::int64_t b, std::int64_t h) {
    rows.push_back(row_from_tile(subject, b, h, *arguments.row, arguments.top_k));
  });
  return rows;
}

std::vector<RowOfHead> answer_token(const Subject& subject, const LookArguments& arguments) {
  std::vector<RowOfHead> rows;
  for (std::size_t i = 0; i < subject.query_tokens.size(); ++i) {
    if (subject.query_tokens[i] != *arguments.word) continue;
    for_each_plane(subject, arguments, [&](std::int64_t b, std::int64_t h) {
      rows.push_back(row_from_top_k(subject, b, h, static_cast<std::int64_t>(i), arguments.top_k));
    });
  }
  return rows;
}

WeightTile answer_tile(const Subject& subject, const LookArguments& arguments) {
  return attention_tile(subject.call.query, subject.call.key, subject.call.options, subject.report.lse,
                        with_plane(*arguments.tile, arguments));
}

Tensor answer_map(const Subject& subject, const LookArguments& arguments) {
  const AttentionReport& report = subject.report;
  const MapSize size = {std::min(arguments.map.rows, report.queries),
                        std::min(arguments.map.columns, report.keys)};
  if (!report.map.empty() && report.map[0].size(2) % size.rows == 0 &&
      report.map[0].size(3) % size.columns == 0)
    return map_in_bins(report.map[0], size);
  AttentionOptions options = subject.call.options;
  options.map = size;
  // The map needs no values: one column of the keys stands in.
  const TensorView value = subject.call.key.narrow(3, 0, 1);
  return Tensor::copy_of(attention(subject.call.query, subject.call.key, value, options).map, DType::f64);
}

bool cut_tile(const Subject& subject, LookArguments& arguments) {
  if (!arguments.tile) return false;
  TileRange& tile = *arguments.tile;
  const std::int64_t rows = subject.call.query.size(-2);
  const std::int64_t keys = subject.call.key.size(-2);
  const bool longer = tile.row_end > rows || tile.key_end > keys;
  tile.row_end = std::min(tile.row_end, rows);
  tile.key_end = std::min(tile.key_end, keys);
  return longer;
}

void check_question(const Subject& subject, const LookArguments& arguments) {
  const TensorView query = lifted(subject.call.query);
  check_index("--batch", arguments.batch, query.size(0), "batch entries");
  check_index("--head", arguments.head, query.size(1), "heads");
  check_index("--row", arguments.row, query.size(2), "queries");
  if (arguments.tile) check_tile(subject, arguments);
  if (arguments.map.rows > 0 && (query.size(2) == 0 || subject.call.key.size(-2) == 0))
    throw UsageError("--map is given for a call without queries or keys");
  if (!arguments.html.empty() && (query.size(2) == 0 || subject.call.key.size(-2) == 0))
    throw UsageError("--html is given for a call without queries or keys");
  for (const Place& place : arguments.windows) {
    check_index("--window-at", place.row, query.size(2), "queries");
    check_index("--window-at", place.key, subject.call.key.size(-2), "keys");
  }
  if (arguments.order == HeadOrder::received && subject.has_report && subject.report.received.rank() != 3)
    throw UsageError("--sort is 'received', which DOC does not hold: it was saved with --no-received");
  if (!arguments.word) return;
  const std::vector<std::string>& tokens = subject.query_tokens;
  if (tokens.empty())
    throw UsageError("--token is given, but no tokens are known; --tokens FILE (a line a token) is expected");
  if (std::find(tokens.begin(), tokens.end(), *arguments.word) != tokens.end()) return;
  const std::optional<std::string> meant =
      tokens.size() <= 10000 ? nearest(*arguments.word, tokens) : std::nullopt;
  throw UsageError("--token is '" + *arguments.word + "', which is none of the tokens" +
                   (meant ? "; did you mean " + *meant + "?" : ""));
}

}  // namespace heed::cli
