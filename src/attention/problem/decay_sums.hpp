// The gradient of a decay: dC_p = sum_j dS_pj - sum_i dS_ip, summed in f64.
#pragma once

#include <vector>

#include "attention/problem/elements.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Sums for each position, [B, H, positions]; none if the gradient is not wanted.
class DecaySums {
 public:
  explicit DecaySums(const BackwardProblem& problem) : problem_(problem) {
    const Problem& p = problem.forward;
    if (problem.grad_decay)
      sums_.assign(static_cast<std::size_t>(p.batch * p.heads * p.decay_positions()), 0.0);
  }

  explicit operator bool() const { return !sums_.empty(); }

  /// The row's position, to which its score gradients are added.
  double& of_row(const Segment& segment, std::int64_t head, std::int64_t position) {
    return at(segment, head, decay_index(problem_.forward, segment, position));
  }
  /// The position of key j of the tensor, from which its score gradients are subtracted.
  double& of_key(const Segment& segment, std::int64_t head, std::int64_t j) { return at(segment, head, j); }

  /// Writes the sums to the gradient, or adds them to it. Axes that the gradient lacks are summed over.
  void write(bool adds = false) const {
    if (!problem_.grad_decay) return;  // a call without batch entries has zeros, but no sums
    const Problem& p = problem_.forward;
    const Output& to = problem_.grad_decay;
    const std::int64_t whole[3] = {p.batch, p.heads, p.decay_positions()};
    std::int64_t size[3], inner[3];
    for (int axis = 0; axis < 3; ++axis) {
      size[axis] = to.stride[axis] == 0 ? 1 : whole[axis];
      inner[axis] = to.stride[axis] == 0 ? whole[axis] : 1;
    }
    for (std::int64_t b = 0; b < size[0]; ++b)
      for (std::int64_t h = 0; h < size[1]; ++h)
        for (std::int64_t at = 0; at < size[2]; ++at) {
          double sum = adds ? read(to, b, h, at) : 0;
          for (std::int64_t x = 0; x < inner[0]; ++x)
            for (std::int64_t y = 0; y < inner[1]; ++y)
              for (std::int64_t z = 0; z < inner[2]; ++z) sum += sums_[index(b + x, h + y, at + z)];
          detail::write(to, sum, b, h, at);
        }
  }

 private:
  std::size_t index(std::int64_t b, std::int64_t h, std::int64_t position) const {
    const Problem& p = problem_.forward;
    return static_cast<std::size_t>((b * p.heads + h) * p.decay_positions() + position);
  }
  double& at(const Segment& segment, std::int64_t head, std::int64_t position) {
    return sums_[index(segment.batch, head, position)];
  }

  const BackwardProblem& problem_;
  std::vector<double> sums_;
};

}  // namespace heed::detail
