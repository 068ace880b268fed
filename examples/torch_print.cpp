#include "torch_print.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>
#include <vector>

namespace lesson {
namespace {

using heed::DType;
using heed::TensorView;

// The defaults of torch.set_printoptions.
constexpr std::int64_t kThreshold = 1000;
constexpr std::int64_t kEdge = 3;
constexpr std::size_t kLineWidth = 80;

constexpr std::string_view kOpening = "tensor(";

// The indices of an axis to print: all, or the first and last three around a gap (-1).
std::vector<std::int64_t> shown(std::int64_t size, bool edges_only) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < size; ++i) {
    if (!edges_only || size <= 2 * kEdge || i < kEdge || i >= size - kEdge)
      indices.push_back(i);
    else if (i == kEdge)
      indices.push_back(-1);
  }
  return indices;
}

template <class Visit>
void for_each_shown(const TensorView& tensor, bool edges_only, const Visit& visit) {
  if (tensor.rank() == 0) return visit(tensor);
  for (const std::int64_t i : shown(tensor.size(0), edges_only))
    if (i >= 0) for_each_shown(tensor.select(0, i), edges_only, visit);
}

std::string printed(const char* format, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

// The number format of a tensor: one for all its elements, chosen from those that are printed.
class Style {
 public:
  Style(const TensorView& tensor, bool edges_only) : dtype_(tensor.dtype()) {
    if (heed::is_floating(dtype_)) choose_notation(tensor, edges_only);
    for_each_shown(tensor, edges_only, [&](const TensorView& element) {
      // Zeros and infinities are skipped, as in PyTorch: they are never wider than the notation allows.
      if (heed::is_floating(dtype_) && !counts(number(element))) return;
      width_ = std::max(width_, bare(element).size());
    });
  }

  [[nodiscard]] std::size_t width() const { return width_; }

  [[nodiscard]] std::string text(const TensorView& element) const {
    const std::string digits = bare(element);
    return std::string(width_ - std::min(width_, digits.size()), ' ') + digits;
  }

 private:
  static bool counts(double value) { return std::isfinite(value) && value != 0; }
  static double number(const TensorView& element) {
    return heed::Tensor::copy_of(element, DType::f64).at<double>();
  }

  void choose_notation(const TensorView& tensor, bool edges_only) {
    double low = std::numeric_limits<double>::infinity();
    double high = 0;
    whole_ = true;
    for_each_shown(tensor, edges_only, [&](const TensorView& element) {
      const double value = number(element);
      if (!counts(value)) return;
      low = std::min(low, std::abs(value));
      high = std::max(high, std::abs(value));
      whole_ = whole_ && value == std::ceil(value);
    });
    if (high == 0) return;
    exponent_ = high / low > 1000 || high > 1e8 || (!whole_ && low < 1e-4);
  }

  [[nodiscard]] std::string bare(const TensorView& element) const {
    if (dtype_ == DType::boolean) return element.at<bool>() ? "True" : "False";
    if (!heed::is_floating(dtype_))
      return std::to_string(heed::Tensor::copy_of(element, DType::i64).at<std::int64_t>());
    const double value = number(element);
    if (exponent_) return printed("%.4e", value);
    if (whole_) return printed("%.0f", value) + (std::isfinite(value) ? "." : "");
    return printed("%.4f", value);
  }

  DType dtype_;
  bool whole_ = false;
  bool exponent_ = false;
  std::size_t width_ = 1;
};

// Returns a comma, `lines` line breaks and `indent` spaces.
std::string separator(std::size_t lines, std::size_t indent) {
  std::string text(",");
  return text.append(lines, '\n').append(indent, ' ');
}

// Returns a row as text, broken into lines of 80 characters. `indent` is the column of its opening bracket.
std::string row_text(const TensorView& row, const Style& style, bool edges_only, std::size_t indent) {
  const std::size_t room = kLineWidth > indent ? kLineWidth - indent : 0;
  const std::size_t a_line = std::max<std::size_t>(1, room / (style.width() + 2));
  const std::string new_line = separator(1, indent + 1);
  std::string text = "[";
  std::size_t count = 0;
  for (const std::int64_t i : shown(row.size(0), edges_only)) {
    if (count > 0) text += count % a_line == 0 ? new_line : ", ";
    text += i < 0 ? " ..." : style.text(row.select(0, i));
    ++count;
  }
  return text + "]";
}

std::string nested_text(const TensorView& tensor, const Style& style, bool edges_only, std::size_t indent) {
  if (tensor.rank() == 0) return style.text(tensor);
  if (tensor.rank() == 1) return row_text(tensor, style, edges_only, indent);
  const std::string between = separator(static_cast<std::size_t>(tensor.rank() - 1), indent + 1);
  std::string text = "[";
  bool first = true;
  for (const std::int64_t i : shown(tensor.size(0), edges_only)) {
    if (!first) text += between;
    text += i < 0 ? "..." : nested_text(tensor.select(0, i), style, edges_only, indent + 1);
    first = false;
  }
  return text + "]";
}

}  // namespace

std::string torch_text(const heed::TensorView& tensor) {
  if (tensor.count() == 0) return std::string(kOpening) + "[])";
  const bool edges_only = tensor.count() > kThreshold;
  return std::string(kOpening) + nested_text(tensor, Style(tensor, edges_only), edges_only, kOpening.size()) +
         ")";
}

}  // namespace lesson
