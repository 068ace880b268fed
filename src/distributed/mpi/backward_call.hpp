// A checked call of the backward pass over ranks.
#pragma once

#include <optional>

#include "distributed/mpi/call.hpp"

namespace heed::distributed {

struct BackwardCall {
  Call forward;                                      ///< without outputs
  TensorView output, lse, grad_output;               ///< [B, H, rows, Dv], [B, H, rows, 1], [B, H, rows, Dv]
  std::optional<TensorView> grad_lse, grad_weights;  ///< [B, H, rows, 1], [B, H, rows, Lk]
  MutableTensorView grad_query, grad_key, grad_value;  ///< [B, H | Hkv, rows, …], or not requested
  /// Each has four axes, or is not requested: [B, H, rows, Lk], [1, H, 1, 1], [B, H, positions, 1]. Axes that
  /// the option lacks have size 1.
  MutableTensorView grad_bias, grad_sinks, grad_decay;
  bool grad_bias_has_rows = false;
};

/// Whether a gradient is requested.
inline bool is_given(const MutableTensorView& view) { return view.data() != nullptr; }

struct BackwardGiven {
  const AttentionBackwardInputs& inputs;
  const Layout& layout;
  const AttentionOptions& options;
};

/// Throws on all ranks if a rank's tensors, options or gradients are wrong, or the ranks disagree.
[[nodiscard]] BackwardCall checked_backward(const Communicator& comm, const BackwardGiven& given,
                                            const AttentionGradientViews& gradients);

}  // namespace heed::distributed
