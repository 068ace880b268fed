#include "attention/masks/expression_rows.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "attention/masks/expression_nodes.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kLongestChunk = 256;

std::array<int, 3> operands_of(const ExpressionNode& node) { return {node.a, node.b, node.c}; }

// result[k] = f(a[k]) or f(a[k], b[k]); at most one of a and b is uniform
template <class F>
void each(F f, ChunkValues a, ChunkValues b, double* __restrict result, std::size_t count) {
  const double* __restrict x = a.at;
  const double* __restrict y = b.at;
  if constexpr (std::is_invocable_v<F, double>) {
    for (std::size_t k = 0; k < count; ++k) result[k] = f(x[k]);
  } else if (a.uniform) {
    const double one = *x;
    for (std::size_t k = 0; k < count; ++k) result[k] = f(one, y[k]);
  } else if (b.uniform) {
    const double one = *y;
    for (std::size_t k = 0; k < count; ++k) result[k] = f(x[k], one);
  } else {
    for (std::size_t k = 0; k < count; ++k) result[k] = f(x[k], y[k]);
  }
}

void copy_values(ChunkValues from, double* result, std::size_t count) {
  if (from.uniform)
    std::fill_n(result, count, *from.at);
  else
    std::copy_n(from.at, count, result);
}

void choose(ChunkValues condition, ChunkValues yes, ChunkValues no, double* __restrict result,
            std::size_t count) {
  if (condition.uniform) return copy_values(*condition.at != 0 ? yes : no, result, count);
  copy_values(no, result, count);
  const double* __restrict chosen = condition.at;
  const double* __restrict y = yes.at;
  if (yes.uniform) {
    const double one = *y;
    for (std::size_t k = 0; k < count; ++k) result[k] = chosen[k] != 0 ? one : result[k];
  } else {
    for (std::size_t k = 0; k < count; ++k) result[k] = chosen[k] != 0 ? y[k] : result[k];
  }
}

// Whether all values of a chunk are `value`.
bool all_are(double value, ChunkValues values, std::size_t count) {
  if (values.uniform) return *values.at == value;
  for (std::size_t k = 0; k < count; ++k)
    if (values.at[k] != value) return false;
  return true;
}

}  // namespace

RowProgram::RowProgram(Expression expression) : expression_(std::move(expression)) {
  find_used();
  order_steps();
  assign_registers();
  const auto most = static_cast<std::int64_t>(kRegisterMemory) / std::max(registers_, 1);
  chunk_ = std::min(kLongestChunk, most / 8 * 8);
}

// Whether the node is a read whose index rises by one from key to key.
bool RowProgram::reads_on(const ExpressionNode& of) const {
  if (of.op != Op::read) return false;
  const ExpressionNode& index = node(of.a);
  return index.is_affine && index.affine.factors[static_cast<std::size_t>(Variable::j)] == 1;
}

// Whether the node compares two affine values by < or <=. Over the keys, the result changes at most once.
bool RowProgram::turns_once(const ExpressionNode& of) const {
  return (of.op == Op::less || of.op == Op::less_equal) && node(of.a).is_affine && node(of.b).is_affine;
}

void RowProgram::find_used() {
  used_.assign(expression_.nodes.size(), false);
  used_.back() = true;
  for (std::size_t n = used_.size(); n-- > 0;) {
    const ExpressionNode& of = expression_.nodes[n];
    if (!used_[n] || reads_on(of) || (varies(static_cast<int>(n)) && turns_once(of))) continue;
    for (const int operand : operands_of(of))
      if (operand >= 0) used_[static_cast<std::size_t>(operand)] = true;
  }
}

void RowProgram::order_steps() {
  // The right side of && and || follows its left side.
  std::vector<int> decides(used_.size(), -1);
  for (std::size_t n = 0; n < used_.size(); ++n) {
    const ExpressionNode& of = expression_.nodes[n];
    if (!used_[n]) continue;
    const int index = static_cast<int>(n);
    if (!varies(index))
      row_nodes_.push_back(index);
    else if (reads_on(of))
      reads_on_.push_back(index);
    else if (of.op == Op::variable)
      (of.variable == Variable::j ? keys_ : scores_).push_back(index);
    else
      steps_.push_back({index, -1, -1});
    if ((of.op == Op::both || of.op == Op::either) && varies(of.b))
      decides[static_cast<std::size_t>(of.a)] = index;
  }
  std::vector<Step> ordered;
  auto add_decisions = [&, next = std::size_t{0}](std::size_t end) mutable {
    for (; next < end; ++next)
      if (decides[next] >= 0) ordered.push_back({decides[next], -1, 0});
  };
  for (const Step& step : steps_) {
    add_decisions(static_cast<std::size_t>(step.node));
    ordered.push_back(step);
  }
  steps_ = std::move(ordered);
}

void RowProgram::assign_registers() {
  std::vector<int> free, of_node(used_.size(), -1);
  const auto take = [&] {
    if (free.empty()) return registers_++;
    const int last = free.back();
    free.pop_back();
    return last;
  };
  if (!keys_.empty()) keys_register_ = take();
  std::vector<int> step_of(used_.size(), -1);
  for (std::size_t n = 0; n < steps_.size(); ++n) {
    Step& step = steps_[n];
    if (step.decided >= 0) continue;
    step.result = of_node[static_cast<std::size_t>(step.node)] = take();
    step_of[static_cast<std::size_t>(step.node)] = static_cast<int>(n);
    for (const int operand : operands_of(node(step.node)))
      if (operand >= 0 && of_node[static_cast<std::size_t>(operand)] >= 0)
        free.push_back(of_node[static_cast<std::size_t>(operand)]);
  }
  for (Step& step : steps_) {
    if (step.decided < 0) continue;
    step.result = of_node[static_cast<std::size_t>(step.node)];
    step.decided = step_of[static_cast<std::size_t>(step.node)] + 1;
  }
}

std::size_t RowProgram::bytes() const {
  return sizeof *this + expression_.bytes() + steps_.capacity() * sizeof(Step) +
         (row_nodes_.capacity() + reads_on_.capacity() + keys_.capacity() + scores_.capacity()) * sizeof(int);
}

RowEvaluation::RowEvaluation(const RowProgram& program, std::int64_t batch, std::int64_t head,
                             std::int64_t row)
    : program_(program),
      place_{static_cast<double>(batch), static_cast<double>(head), static_cast<double>(row), 0} {
  for (const int n : program.row_nodes_) {
    const auto at = static_cast<std::size_t>(n);
    row_values_[at] = value_in_row(program.node(n));
    operands_[at] = {&row_values_[at], true};
  }
  for (const int n : program.keys_)
    operands_[static_cast<std::size_t>(n)] = {register_at(program.keys_register_), false};
  for (const auto& step : program.steps_)
    operands_[static_cast<std::size_t>(step.node)] = {register_at(step.result), false};
}

double RowEvaluation::value_in_row(const ExpressionNode& node) const {
  const auto value = [&](int operand) {
    return operand < 0 ? 0 : row_values_[static_cast<std::size_t>(operand)];
  };
  if (node.op == Op::number) return node.value;
  if (node.op == Op::variable) return place_[static_cast<std::size_t>(node.variable)];
  if (node.op == Op::read)
    return program_.expression_.arrays[static_cast<std::size_t>(node.array)]
        .data()[static_cast<std::int64_t>(value(node.a))];
  return value_of(node.op, value(node.a), value(node.b), value(node.c));
}

void RowEvaluation::start_chunk(std::int64_t begin, const double* scores) {
  place_[static_cast<std::size_t>(Variable::j)] = static_cast<double>(begin);
  for (const int n : program_.scores_) operands_[static_cast<std::size_t>(n)] = {scores, false};
  for (const int n : program_.reads_on_) {
    const ExpressionNode& read = program_.node(n);
    const Affine& index = program_.node(read.a).affine;
    double first = index.constant;
    for (std::size_t v = 0; v < place_.size(); ++v) first += index.factors[v] * place_[v];
    const double* data = program_.expression_.arrays[static_cast<std::size_t>(read.array)].data();
    operands_[static_cast<std::size_t>(n)] = {data + static_cast<std::int64_t>(first), false};
  }
}

void RowEvaluation::fill_keys(std::int64_t begin, std::size_t count) {
  if (program_.keys_.empty()) return;
  double* __restrict keys = register_at(program_.keys_register_);
  const auto first = static_cast<double>(begin);
  for (std::size_t k = 0; k < count; ++k) keys[k] = first + static_cast<double>(static_cast<std::int32_t>(k));
}

ChunkValues RowEvaluation::values(std::int64_t begin, std::int64_t count, const double* scores) {
  return values_with(begin, count, scores, [](const Step&) {});
}

bool RowEvaluation::decide(const Step& step, std::size_t count) {
  const ExpressionNode& node = program_.node(step.node);
  const double value = node.op == Op::both ? 0 : 1;
  if (!all_are(value, operand(node.a), count)) return false;
  std::fill_n(register_at(step.result), count, value);
  return true;
}

// a < b means a - b < 0, and a - b is first + step * k at key k of the chunk.
void RowEvaluation::turn(const ExpressionNode& node, double* result, std::size_t count) const {
  const Affine &a = program_.node(node.a).affine, &b = program_.node(node.b).affine;
  double first = a.constant - b.constant;
  for (std::size_t v = 0; v < place_.size(); ++v) first += (a.factors[v] - b.factors[v]) * place_[v];
  const std::size_t keys = static_cast<std::size_t>(Variable::j);
  const double step = a.factors[keys] - b.factors[keys];
  const double limit = node.op == Op::less ? -1 : 0;  // upper limit of first + step * k
  const bool before = step > 0 || (step == 0 && first <= limit);
  // If a - b rises, the result is true up to the last k within the limit. If it falls, it is true from the
  // first k within the limit.
  double turn = static_cast<double>(count);
  if (step > 0) turn = floor_divide(limit - first, step) + 1;
  if (step < 0) turn = -floor_divide(first - limit, step);
  const auto at = static_cast<std::size_t>(std::clamp(turn, 0.0, static_cast<double>(count)));
  std::fill_n(result, at, before ? 1.0 : 0.0);
  std::fill_n(result + at, count - at, before ? 0.0 : 1.0);
}

void RowEvaluation::gather(const ExpressionNode& node, double* result, std::size_t count) const {
  const double* data = program_.expression_.arrays[static_cast<std::size_t>(node.array)].data();
  const double* index = operand(node.a).at;
  for (std::size_t k = 0; k < count; ++k) result[k] = data[static_cast<std::int64_t>(index[k])];
}

void RowEvaluation::operate(const Step& step, std::size_t count) {
  const ExpressionNode& node = program_.node(step.node);
  double* result = register_at(step.result);
  if (program_.turns_once(node)) return turn(node, result, count);
  const ChunkValues a = operand(node.a);
  const ChunkValues b = node.b < 0 ? a : operand(node.b);
  if (node.op == Op::select) return choose(a, b, operand(node.c), result, count);
  if (node.op == Op::read) return gather(node, result, count);
  with_function(node.op, [&](auto f) { each(f, a, b, result, count); });
}

}  // namespace heed::detail
