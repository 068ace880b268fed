#include <algorithm>
#include <cmath>

#include "heed/nn/transformer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

// The targets as i64; each is a column of the logits or `ignore_index`.
Tensor checked_targets(const TensorView& logits, const TensorView& targets,
                       const std::optional<std::int64_t>& ignore_index) {
  detail::require_real(logits, "logits");
  if (logits.rank() < 1 || logits.shape().back() < 1)
    detail::refuse("logits has shape ", logits.shape(), "; [..., V] is expected, V at least 1");
  Dims expected;
  for (int axis = 0; axis + 1 < logits.rank(); ++axis) expected.push_back(logits.shape()[axis]);
  if (targets.shape() != expected || (targets.dtype() != DType::i64 && targets.dtype() != DType::i32))
    detail::refuse("targets is ", targets.dtype(), " ", targets.shape(), "; i64 or i32 ", to_string(expected),
                   " is expected for logits of shape ", logits.shape());
  Tensor whole = Tensor::copy_of(targets, DType::i64);
  const std::int64_t classes = logits.shape().back();
  for (const std::int64_t target : whole.values<std::int64_t>())
    if (target != ignore_index && (target < 0 || target >= classes))
      detail::refuse("targets holds ", target, "; numbers from 0 to ", classes - 1, " are expected",
                     ignore_index ? ", or " + std::to_string(*ignore_index) + " for ignored targets" : "");
  return whole;
}

// log sum exp is largest + log_sum. The two are kept apart, so that nothing overflows and the loss is as
// exact for a large logit as for a small one.
struct LogSumExp {
  double largest;
  double log_sum;
};

template <class T>
LogSumExp log_sum_exp(const T* row, std::int64_t classes) {
  const T largest = *std::max_element(row, row + classes);
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) sum += static_cast<double>(std::exp(row[c] - largest));
  return {static_cast<double>(largest), std::log(sum)};
}

}  // namespace

CrossEntropyResult cross_entropy(const TensorView& logits, const TensorView& targets,
                                 std::optional<std::int64_t> ignore_index) {
  const Tensor wanted = checked_targets(logits, targets, ignore_index);
  const std::int64_t classes = logits.shape().back();
  Tensor storage;
  const TensorView from = detail::contiguous(logits, storage);
  CrossEntropyResult result;
  double sum = 0;
  detail::with_real(logits.dtype(), [&]<class T>(T) {
    const T* row = from.data_as<T>();
    for (const std::int64_t target : wanted.values<std::int64_t>()) {
      if (target != ignore_index) {
        const LogSumExp lse = log_sum_exp(row, classes);
        sum += lse.log_sum + (lse.largest - static_cast<double>(row[target]));
        ++result.count;
      }
      row += classes;
    }
  });
  if (result.count > 0) result.loss = sum / static_cast<double>(result.count);
  return result;
}

// softmax(logits) - one_hot(target), divided by the number of targets.
Tensor cross_entropy_backward(double grad_loss, const TensorView& logits, const TensorView& targets,
                              const CrossEntropyResult& result, std::optional<std::int64_t> ignore_index) {
  const Tensor wanted = checked_targets(logits, targets, ignore_index);
  const std::int64_t classes = logits.shape().back();
  Tensor gradient = Tensor::copy_of(logits);
  const double share = result.count > 0 ? grad_loss / static_cast<double>(result.count) : 0;
  detail::with_real(logits.dtype(), [&]<class T>(T) {
    T* row = gradient.values<T>().data();
    for (const std::int64_t target : wanted.values<std::int64_t>()) {
      if (target == ignore_index) {
        std::fill_n(row, classes, T{0});
      } else {
        const LogSumExp lse = log_sum_exp(row, classes);
        const T factor = static_cast<T>(share * std::exp(-lse.log_sum));
        for (std::int64_t c = 0; c < classes; ++c)
          row[c] = factor * std::exp(row[c] - static_cast<T>(lse.largest));
        row[target] -= static_cast<T>(share);
      }
      row += classes;
    }
  });
  return gradient;
}

}  // namespace heed::nn
