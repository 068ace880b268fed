#include <numeric>
#include <vector>

#include "heed/nn/transformer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

constexpr double kPositionDeviation = 0.02;

void check_places(const TensorView& x, const char* name, const Tensor& weight) {
  detail::require_dtype(x, name, weight.dtype(), "weight");
  const bool ranked = x.rank() == 2 || x.rank() == 3;
  if (!ranked || x.shape().back() != weight.size(1) || x.size(-2) > weight.size(0))
    detail::refuse(name, " has shape ", x.shape(), "; [L, ", weight.size(1), "] or [B, L, ", weight.size(1),
                   "] is expected, L at most ", weight.size(0));
}

// For each row of x, its offset in the table, in elements.
std::vector<std::int64_t> row_offsets(const TensorView& x, const Tensor& weight,
                                      std::span<const std::int64_t> places) {
  std::vector<std::int64_t> offsets(places.begin(), places.end());
  if (places.empty()) {
    offsets.resize(static_cast<std::size_t>(x.size(-2)));
    std::iota(offsets.begin(), offsets.end(), 0);
  }
  if (std::ssize(offsets) != x.size(-2))
    detail::refuse("places has ", heed::detail::counted(offsets.size(), "number"), "; one for each of the ",
                   heed::detail::counted(x.size(-2), "row"), " is expected");
  for (std::int64_t& place : offsets) {
    if (place < 0 || place >= weight.size(0))
      detail::refuse("places holds ", place, "; numbers from 0 to ", weight.size(0) - 1, " are expected");
    place *= weight.size(1);
  }
  return offsets;
}

// Calls body(element of the table, element of x) for all of x.
template <class Body>
void for_each_element(std::int64_t count, std::int64_t columns, const std::vector<std::int64_t>& offsets,
                      Body body) {
  for (std::int64_t i = 0; i < count; i += columns) {
    const std::int64_t offset = offsets[static_cast<std::size_t>(i / columns) % offsets.size()];
    for (std::int64_t c = 0; c < columns; ++c) body(offset + c, i + c);
  }
}

}  // namespace

LearnedPositions::LearnedPositions(std::int64_t context, std::int64_t dim, Generator& generator,
                                   DType dtype) {
  detail::require_size(context, "context");
  detail::require_size(dim, "dim");
  weight = Tensor({context, dim}, dtype);
  normal_(generator, weight, 0, kPositionDeviation);
}

Tensor LearnedPositions::forward(const TensorView& x, std::span<const std::int64_t> places) const {
  check_places(x, "x", weight);
  const std::vector<std::int64_t> offsets = row_offsets(x, weight, places);
  Tensor result = Tensor::copy_of(x);
  detail::with_real(weight.dtype(), [&]<class T>(T) {
    const T* table = weight.values<T>().data();
    T* to = result.values<T>().data();
    for_each_element(x.count(), weight.size(1), offsets,
                     [&](std::int64_t at, std::int64_t i) { to[i] += table[at]; });
  });
  return result;
}

void LearnedPositions::backward(const TensorView& grad_output, LearnedPositions& grads,
                                std::span<const std::int64_t> places) const {
  check_places(grad_output, "grad_output", weight);
  detail::require_like(grads.weight, "grads.weight", weight.shape(), weight.dtype());
  Tensor storage;
  const TensorView grad = detail::contiguous(grad_output, storage);
  const std::vector<std::int64_t> offsets = row_offsets(grad, weight, places);
  detail::with_real(weight.dtype(), [&]<class T>(T) {
    const T* from = grad.data_as<T>();
    T* to = grads.weight.values<T>().data();
    for_each_element(grad.count(), weight.size(1), offsets,
                     [&](std::int64_t at, std::int64_t i) { to[at] += from[i]; });
  });
}

std::vector<NamedParameter> LearnedPositions::parameters() { return {{"weight", &weight}}; }

}  // namespace heed::nn
