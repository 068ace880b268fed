#include "draw/table.hpp"

#include <algorithm>
#include <cmath>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMaxTableRows = 12;
constexpr int kLongestTableLabel = 17;
constexpr const char* kGap = "  …";

// The shown ones of `count` items. If `room` is too small, only the first and last ones are shown.
struct Shown {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> last;  ///< empty if nothing is left out
};

Shown choose(std::int64_t count, std::int64_t room) {
  Shown shown;
  const bool all = count <= room;
  const std::int64_t last = all ? 0 : std::max<std::int64_t>(1, room / 4);
  const std::int64_t first = all ? count : std::max<std::int64_t>(1, room - last);
  for (std::int64_t i = 0; i < first; ++i) shown.first.push_back(i);
  for (std::int64_t i = count - last; i < count; ++i) shown.last.push_back(i);
  return shown;
}

// The columns that fit `width`. If some are left out, there is room for the gap.
Shown choose_columns(std::int64_t count, int width) {
  const std::int64_t room = width / NumberFormat::kWidth;
  if (count <= room) return choose(count, room);
  return choose(count, (width - display_width(kGap)) / NumberFormat::kWidth);
}

template <class Cell>
std::string line_of(const Shown& columns, Cell cell) {
  std::string line;
  for (const std::int64_t column : columns.first) line += cell(column);
  if (columns.last.empty()) return line;
  line += kGap;
  for (const std::int64_t column : columns.last) line += cell(column);
  return line;
}

}  // namespace

NumberFormat::NumberFormat(const TensorView& values) {
  if (!is_floating(values.dtype())) return;
  const Tensor wide = Tensor::copy_of(values, DType::f64);
  double largest = 0;
  for (const double value : wide.values<double>())
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  // "-999.99" and a space fill the column. Numbers from 9999.95 on, or all below 0.001, use exponents.
  decimals_ = largest < 9.99995 ? 4 : largest < 99.9995 ? 3 : largest < 999.995 ? 2 : 1;
  exponent_ = largest >= 9999.95 || (largest > 0 && largest < 0.001);
}

std::string NumberFormat::operator()(double value) const {
  if (exponent_ && value != 0 && std::isfinite(value))  // the sign costs one decimal
    return right_aligned(formatted(value < 0 ? "%.0e" : "%.1e", value), kWidth);
  return right_aligned(formatted(("%." + std::to_string(decimals_) + "f").c_str(), value), kWidth);
}

std::vector<std::string> draw_table(const Table& table, int indent, int width, Color color) {
  const Tensor values = Tensor::copy_of(table.values, DType::f64);
  const NumberFormat format(table.values);
  const int label_width = std::min(widest(table.rows), kLongestTableLabel);
  const Shown columns = choose_columns(values.size(1), width - indent - label_width);
  const Shown rows = choose(values.size(0), kMaxTableRows);
  const std::string margin = spaces(indent);
  std::vector<std::string> lines;
  if (!table.columns.empty())
    lines.push_back(margin + spaces(label_width) +
                    faint(line_of(columns,
                                  [&](std::int64_t column) {
                                    const std::string& word = table.columns[static_cast<std::size_t>(column)];
                                    return " " + right_aligned(word, NumberFormat::kWidth - 1);
                                  }),
                          color));
  const auto add = [&](const std::vector<std::int64_t>& some) {
    for (const std::int64_t row : some)
      lines.push_back(
          margin + faint(left_aligned(table.rows[static_cast<std::size_t>(row)], label_width), color) +
          line_of(columns, [&](std::int64_t column) { return format(values.at<double>(row, column)); }));
  };
  add(rows.first);
  if (!rows.last.empty()) {
    const auto left_out = values.size(0) - static_cast<std::int64_t>(rows.first.size() + rows.last.size());
    lines.push_back(margin + "… " + std::to_string(left_out) + " more");
  }
  add(rows.last);
  return lines;
}

}  // namespace heed::cli
