// The gradients of bias and sinks. The part of a bias that only one unit uses comes from the unit's rank.
// Parts that units share are summed in f64, and then over ranks.
#pragma once

#include <vector>

#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/by_units.hpp"

namespace heed::distributed {

class SharedGradients {
 public:
  SharedGradients(const Communicator& comm, const BackwardCall& call);

  /// Whether some are sums over units, which ranks round in another order than one process.
  [[nodiscard]] bool has_sums() const { return bias_is_sum_ || sinks_is_sum_; }
  /// Appends the gradients of single units to the other results.
  void add_results(std::vector<UnitResult>& results) const;
  /// The destination of a unit's gradients: the results from number `first` on, or separate memory.
  struct OfUnit {
    Tensor bias, sinks;  ///< parts of a sum, f64
    MutableTensorView bias_view, sinks_view;
  };
  [[nodiscard]] OfUnit of_unit(std::vector<Tensor>& results, std::size_t first) const;
  void add(const Unit& unit, const OfUnit& shares);
  /// Writes the sums over all ranks to the caller's views.
  void finish();

 private:
  const Communicator& comm_;
  const BackwardCall& call_;
  bool bias_is_sum_ = false, sinks_is_sum_ = false;
  Tensor bias_sum_, sinks_sum_;  // f64, for the whole call: [b, h, Lq or 1, Lk or 1], [H or 1]
};

}  // namespace heed::distributed
