// The gradients of bias and sinks. What a unit alone has of a bias comes from its rank; what units share is
// summed in f64, and then over ranks.
#pragma once

#include <vector>

#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/by_units.hpp"

namespace heed::distributed {

class SharedGradients {
 public:
  SharedGradients(const Communicator& comm, const BackwardCall& call);

  /// Whether sums over units are among them, which ranks round in another order than one process.
  [[nodiscard]] bool has_sums() const { return bias_is_sum_ || sinks_is_sum_; }
  /// Those of units alone follow the other results.
  void add_results(std::vector<UnitResult>& results) const;
  /// Where a unit's gradients go: the results from number `first` on, or memory of their own.
  struct OfUnit {
    Tensor bias, sinks;  ///< shares of a sum, f64
    MutableTensorView bias_view, sinks_view;
  };
  [[nodiscard]] OfUnit of_unit(std::vector<Tensor>& results, std::size_t first) const;
  void add(const Unit& unit, const OfUnit& shares);
  /// The sums over all ranks go to the caller's views.
  void finish();

 private:
  const Communicator& comm_;
  const BackwardCall& call_;
  bool bias_is_sum_ = false, sinks_is_sum_ = false;
  Tensor bias_sum_, sinks_sum_;  // f64, of the whole call: [b, h, Lq or 1, Lk or 1], [H or 1]
};

}  // namespace heed::distributed
