// Optimisation: AdamW, a learning rate schedule, and gradient clipping.
//
// Sums run in the order of the parameters, on the calling thread, and give the same bits on every run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/export.hpp"
#include "heed/nn/layers.hpp"
#include "heed/tensor.hpp"

namespace heed::nn {

/// The settings of AdamW.
struct AdamWOptions {
  double beta1 = 0.9;          ///< in [0, 1)
  double beta2 = 0.99;         ///< in [0, 1)
  double epsilon = 1e-8;       ///< > 0
  double weight_decay = 0.01;  ///< >= 0; for matrices only, not for biases and norms (rank below 2)
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019) and the bias correction of Kingma and Ba
/// (2015). At step t, for each number w with gradient g:
///   w -= rate * weight_decay * w
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///   w -= rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
class HEED_API AdamW {
 public:
  /// Starts with zero moments for f32 or f64 parameters. Throws invalid_argument for options out of range.
  AdamW(const std::vector<NamedParameter>& parameters, const AdamWOptions& options = {});
  /// Takes one step at learning rate `rate` (>= 0, finite). Both lists must have the constructor's names,
  /// shapes and order; otherwise throws invalid_argument and changes nothing.
  void step(const std::vector<NamedParameter>& parameters, const std::vector<NamedParameter>& gradients,
            double rate);
  /// The moments of each parameter, "NAME.m" and "NAME.v". A checkpoint stores them and `steps`.
  [[nodiscard]] std::vector<NamedParameter> state();

  AdamWOptions options;
  std::int64_t steps = 0;  ///< number of steps done

 private:
  std::vector<std::string> names_;
  std::vector<Tensor> first_, second_;
};

/// A learning rate that rises linearly over `warmup` steps to `peak`, then falls along half a cosine to
/// `last` at step `steps` (Loshchilov and Hutter 2017).
struct HEED_API Schedule {
  double peak = 1e-3;
  double last = 0;
  std::int64_t warmup = 0;
  std::int64_t steps = 1;
  /// The rate of step `step`, counted from 0; `last` after the final step.
  [[nodiscard]] double rate(std::int64_t step) const;
};

/// Returns the norm of all gradients as one vector (summed in f64). If it exceeds `most` > 0, scales all
/// gradients by most / norm. A norm that is not finite leaves the gradients unchanged.
HEED_API double clip_gradients(const std::vector<NamedParameter>& gradients, double most);

}  // namespace heed::nn
