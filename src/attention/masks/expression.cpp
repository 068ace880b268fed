#include "attention/masks/expression.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "attention/masks/expression_intervals.hpp"
#include "core/message.hpp"
#include "heed/attention/masks.hpp"

namespace heed::detail {
namespace {

struct Axis {
  Variable variable;
  std::string_view name, what;
};
constexpr Axis kBatch{Variable::b, "b", "batch entries"};
constexpr Axis kHeads{Variable::h, "h", "heads"};

// The size of the array indexed by `variable` alone; 1 if the expression does not use the variable.
std::int64_t size_of(const Expression& expression, const Axis& axis) {
  const ExpressionArray* sized = nullptr;
  for (const ExpressionNode& node : expression.nodes) {
    if (node.op != Op::read) continue;
    const ExpressionNode& index = expression.nodes[static_cast<std::size_t>(node.a)];
    if (index.op != Op::variable || index.variable != axis.variable) continue;
    const ExpressionArray& array = expression.arrays[static_cast<std::size_t>(node.array)];
    if (sized != nullptr && sized->size() != array.size())
      refuse(quote_of(expression.kind, expression.text, node.begin), sized->name(), " and ", array.name(),
             " are both indexed by ", axis.name, ", but have ", sized->size(), " and ", array.size(),
             " elements");
    sized = &array;
  }
  if (sized != nullptr) return sized->size();
  for (const ExpressionNode& node : expression.nodes)
    if (node.op == Op::variable && node.variable == axis.variable)
      refuse(quote_of(expression.kind, expression.text, node.begin), axis.name, " is used at column ",
             node.begin + 1, ", but no array indexed by ", axis.name, " says how many ", axis.what,
             " there are");
  return 1;
}

void check_length(std::string_view name, std::int64_t length) {
  if (length < 0 || length > kMaxExpressionSize)
    refuse(name, " of a mask expression is ", length, ", but must be from 0 to 2^32");
}

MaskShape shape_of(const Expression& expression, std::int64_t query_length, std::int64_t key_length) {
  check_length("query_length", query_length);
  check_length("key_length", key_length);
  return {size_of(expression, kBatch), size_of(expression, kHeads), query_length, key_length};
}

ExpressionBox box_of(const MaskTile& tile) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  return {{number(tile.batch), number(tile.head), number(tile.row_begin), number(tile.key_begin)},
          {number(tile.batch), number(tile.head), number(tile.row_end - 1), number(tile.key_end - 1)}};
}

ExpressionBox box_of(const MaskShape& shape) {
  const auto last = [](std::int64_t size) { return static_cast<double>(size - 1); };
  return {{}, {last(shape.batch), last(shape.heads), last(shape.query_length), last(shape.key_length)}};
}

}  // namespace

ExpressionMask::ExpressionMask(Expression expression, std::int64_t query_length, std::int64_t key_length)
    : MaskPart(shape_of(expression, query_length, key_length)), program_(std::move(expression)) {
  const bool has_pairs = shape().planes() > 0 && query_length > 0 && key_length > 0;
  if (has_pairs) check_indices(program_.expression(), box_of(shape()));
}

Coverage ExpressionMask::coverage(const MaskTile& tile) const {
  const Interval all = interval_of(program_.expression(), box_of(tile));
  return all.lo == 1 ? Coverage::full : all.hi == 0 ? Coverage::empty : Coverage::cut;
}

void ExpressionMask::restrict_row(const MaskTile& row, std::uint8_t* visible) const {
  RowEvaluation evaluation(program_, row.batch, row.head, row.row_begin);
  for (std::int64_t begin = row.key_begin; begin < row.key_end; begin += program_.chunk()) {
    const std::int64_t count = std::min(program_.chunk(), row.key_end - begin);
    const ChunkValues values = evaluation.values(begin, count, nullptr);
    std::uint8_t* __restrict target = visible + (begin - row.key_begin);
    if (values.uniform) {
      if (*values.at == 0) std::memset(target, 0, static_cast<std::size_t>(count));
      continue;
    }
    // In 32-bit integers, which compilers vectorise; a comparison took four times as long.
    for (std::int64_t k = 0; k < count; ++k)
      target[k] = static_cast<std::uint8_t>(target[k] & -static_cast<std::int32_t>(values.at[k]));
  }
}

}  // namespace heed::detail

namespace heed {

SparseMask SparseMask::expression(std::string_view text, std::int64_t query_length, std::int64_t key_length,
                                  std::span<const std::pair<std::string, TensorView>> arrays) {
  detail::Expression parsed = detail::parse_expression(detail::ExpressionKind::mask, text, arrays);
  return SparseMask(
      std::make_shared<const detail::ExpressionMask>(std::move(parsed), query_length, key_length));
}

}  // namespace heed
