// How parameters follow their gradients: AdamW, a schedule for its rate, and a limit on the gradients'
// length.
//
// Sums run in the order of the parameters, on the calling thread: the same bits on every run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/export.hpp"
#include "heed/nn.hpp"
#include "heed/tensor.hpp"

namespace heed::nn {

struct AdamWOptions {
  double beta1 = 0.9;          ///< in [0, 1)
  double beta2 = 0.99;         ///< in [0, 1)
  double epsilon = 1e-8;       ///< > 0
  double weight_decay = 0.01;  ///< >= 0; of matrices only: biases, norms (rank below 2) are left alone
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019) and the bias correction of Kingma and Ba
/// (2015). At step t, for each number w with gradient g:
///   w -= rate * weight_decay * w
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///   w -= rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
class HEED_API AdamW {
 public:
  /// Moments of zero for parameters of f32 or f64. Throws invalid_argument for options out of range.
  AdamW(const std::vector<NamedParameter>& parameters, const AdamWOptions& options = {});
  /// One step at `rate` (>= 0, finite). Both lists have the names and shapes of the constructor's, in its
  /// order; else it throws invalid_argument and nothing has changed.
  void step(const std::vector<NamedParameter>& parameters, const std::vector<NamedParameter>& gradients,
            double rate);
  /// The moments, "NAME.m" and "NAME.v" for each parameter: what a checkpoint keeps beside steps.
  [[nodiscard]] std::vector<NamedParameter> state();

  AdamWOptions options;
  std::int64_t steps = 0;  ///< done so far

 private:
  std::vector<std::string> names_;
  std::vector<Tensor> first_, second_;
};

/// A rate that rises linearly over `warmup` steps to `peak` and falls along half a cosine to `last` at step
/// `steps` (Loshchilov and Hutter 2017).
struct HEED_API Schedule {
  double peak = 1e-3;
  double last = 0;
  std::int64_t warmup = 0;
  std::int64_t steps = 1;
  /// Of step `step`, counted from 0. After the last step it stays `last`.
  [[nodiscard]] double rate(std::int64_t step) const;
};

/// The length of all gradients as one vector (summed in f64); where it is over `most`, all are multiplied by
/// most / length. most > 0; a length that is not finite leaves the gradients as they are.
HEED_API double clip_gradients(const std::vector<NamedParameter>& gradients, double most);

}  // namespace heed::nn
