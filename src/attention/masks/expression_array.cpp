#include "attention/masks/expression_array.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "attention/masks/expression_tree.hpp"
#include "core/message.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kBlock = 64;
constexpr std::int64_t kMaxExact = std::int64_t{1} << 53;

void check_exact(const std::string& name, const TensorView& values) {
  if (values.dtype() != DType::i64) return;
  const Tensor integers = Tensor::copy_of(values);
  for (const std::int64_t value : integers.values<std::int64_t>())
    if (value > kMaxExact || value < -kMaxExact)
      refuse("array '", name, "' of an expression holds ", value, ", but whole numbers must be within 2^53");
}

}  // namespace

void ExpressionArray::Extremes::join(const Extremes& other) {
  least = std::min(least, other.least);
  greatest = std::max(greatest, other.greatest);
}

ExpressionArray::ExpressionArray(std::string name, const TensorView& values)
    : name_(std::move(name)),
      values_(Tensor::copy_of(values, DType::f64)),
      data_(values_.values<double>().data()),
      size_(values_.count()),
      is_boolean_(values.dtype() == DType::boolean) {
  check_exact(name_, values);
  for (const double value : values_.values<double>()) {
    is_whole_ = is_whole_ && std::isfinite(value) && std::floor(value) == value;
    has_nan_ = has_nan_ || std::isnan(value);
  }
  build_levels();
}

void ExpressionArray::build_levels() {
  const std::int64_t count = size() / kBlock;
  std::vector<Extremes> blocks;
  for (std::int64_t block = 0; block < count; ++block)
    blocks.push_back(extremes(block * kBlock, (block + 1) * kBlock));
  levels_.push_back(std::move(blocks));
  for (std::size_t half = 1; 2 * half <= static_cast<std::size_t>(count); half *= 2) {
    std::vector<Extremes> next(levels_.back().begin(),
                               levels_.back().end() - static_cast<std::ptrdiff_t>(half));
    for (std::size_t n = 0; n < next.size(); ++n) next[n].join(levels_.back()[n + half]);
    levels_.push_back(std::move(next));
  }
}

// Compares element by element; NaN is skipped.
ExpressionArray::Extremes ExpressionArray::extremes(std::int64_t begin, std::int64_t end) const {
  Extremes found{kInfinity, -kInfinity};
  for (const double* at = data() + begin; at != data() + end; ++at) {
    found.least = *at < found.least ? *at : found.least;
    found.greatest = *at > found.greatest ? *at : found.greatest;
  }
  return found;
}

Interval ExpressionArray::range(std::int64_t begin, std::int64_t end) const {
  const std::int64_t first = (begin + kBlock - 1) / kBlock, last = end / kBlock;
  Extremes found{kInfinity, -kInfinity};
  if (first >= last) {
    found = extremes(begin, end);
  } else {
    const auto level = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(last - first)) - 1);
    const std::vector<Extremes>& runs = levels_[level];
    found.join(runs[static_cast<std::size_t>(first)]);
    found.join(runs[static_cast<std::size_t>(last) - (std::size_t{1} << level)]);
    found.join(extremes(begin, first * kBlock));
    found.join(extremes(last * kBlock, end));
  }
  if (found.least > found.greatest) return kAnything;  // all NaN
  return {found.least, found.greatest, has_nan_};
}

std::size_t ExpressionArray::bytes() const {
  std::size_t bytes = sizeof *this + name_.capacity() + static_cast<std::size_t>(size()) * sizeof(double);
  for (const auto& level : levels_) bytes += level.capacity() * sizeof(Extremes);
  return bytes;
}

std::vector<std::pair<std::string, Tensor>> arrays_of(const Expression& expression) {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const ExpressionArray& array : expression.arrays)
    all.emplace_back(array.name(), Tensor::copy_of(TensorView(array.data(), Dims{array.size()}),
                                                   array.is_boolean() ? DType::boolean : DType::f64));
  return all;
}

}  // namespace heed::detail
