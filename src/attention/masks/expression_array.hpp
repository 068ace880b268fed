// An array that an expression reads, with fast minima and maxima over any range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/masks/expression_value.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

class ExpressionArray {
 public:
  /// `values` must have one axis. Throws Error (invalid_argument) for an integer that double cannot
  /// represent.
  ExpressionArray(std::string name, const TensorView& values);

  ExpressionArray(ExpressionArray&&) = default;
  ExpressionArray& operator=(ExpressionArray&&) = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] const double* data() const { return data_; }
  [[nodiscard]] bool is_boolean() const { return is_boolean_; }
  /// Whether all elements are whole numbers.
  [[nodiscard]] bool is_whole() const { return is_whole_; }
  /// Returns an interval that contains elements [begin, end); 0 <= begin < end <= size().
  [[nodiscard]] Interval range(std::int64_t begin, std::int64_t end) const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Extremes {
    double least, greatest;
    void join(const Extremes& other);
  };
  [[nodiscard]] Extremes extremes(std::int64_t begin, std::int64_t end) const;
  void build_levels();

  std::string name_;
  Tensor values_;  // f64
  const double* data_;
  std::int64_t size_;
  /// levels_[l][n] covers the 2^l blocks from block n on.
  std::vector<std::vector<Extremes>> levels_;
  bool is_boolean_ = false;
  bool is_whole_ = true;
  bool has_nan_ = false;
};

}  // namespace heed::detail
