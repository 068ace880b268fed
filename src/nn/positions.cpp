#include "heed/transformer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

constexpr double kPositionDeviation = 0.02;

void check_places(const TensorView& x, const char* name, const Tensor& weight) {
  detail::require_dtype(x, name, weight.dtype(), "weight");
  const bool ranked = x.rank() == 2 || x.rank() == 3;
  if (!ranked || x.shape().back() != weight.size(1) || x.size(-2) > weight.size(0))
    detail::refuse(std::string(name) + " has shape " + to_string(x.shape()) + "; [L, " +
                   std::to_string(weight.size(1)) + "] or [B, L, " + std::to_string(weight.size(1)) +
                   "] is expected, L at most " + std::to_string(weight.size(0)));
}

}  // namespace

LearnedPositions::LearnedPositions(std::int64_t context, std::int64_t dim, Generator& generator,
                                   DType dtype) {
  detail::require_size(context, "context");
  detail::require_size(dim, "dim");
  weight = Tensor({context, dim}, dtype);
  normal_(generator, weight, 0, kPositionDeviation);
}

Tensor LearnedPositions::forward(const TensorView& x) const {
  check_places(x, "x", weight);
  return detail::sum(x, weight.view().narrow(0, 0, x.size(-2)).expand(x.shape()));
}

void LearnedPositions::backward(const TensorView& grad_output, LearnedPositions& grads) const {
  check_places(grad_output, "grad_output", weight);
  detail::require_like(grads.weight, "grads.weight", weight.shape(), weight.dtype());
  Tensor storage;
  const TensorView grad = detail::contiguous(grad_output, storage);
  const std::int64_t places = grad.size(-2) * weight.size(1);
  detail::with_real(weight.dtype(), [&]<class T>(T) {
    const T* from = grad.data_as<T>();
    T* to = grads.weight.values<T>().data();
    for (std::int64_t i = 0; i < grad.count(); ++i) to[i % places] += from[i];
  });
}

std::vector<NamedParameter> LearnedPositions::parameters() { return {{"weight", &weight}}; }

}  // namespace heed::nn
