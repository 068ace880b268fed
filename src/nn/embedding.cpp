#include <cstring>
#include <utility>

#include "heed/nn/layers.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

using detail::refuse;

void check_weight(const Tensor& weight) {
  detail::require_real(weight, "weight");
  detail::require_rank(weight, "weight", 2, "[count, dim]");
}

// The ids as i64, every one in [0, count).
Tensor checked_ids(const TensorView& ids, std::int64_t count) {
  if (ids.dtype() != DType::i64 && ids.dtype() != DType::i32)
    refuse("ids is ", ids.dtype(), "; i64 or i32 is expected");
  if (ids.rank() >= kMaxRank)
    refuse("ids has shape ", ids.shape(), "; at most ", kMaxRank - 1, " axes are expected");
  Tensor whole = Tensor::copy_of(ids, DType::i64);
  for (std::int64_t id : std::as_const(whole).values<std::int64_t>())
    if (id < 0 || id >= count) refuse("ids holds ", id, "; numbers from 0 to ", count - 1, " are expected");
  return whole;
}

}  // namespace

Embedding::Embedding(std::int64_t count, std::int64_t dim, Generator& generator, DType dtype) {
  detail::require_size(count, "count");
  detail::require_size(dim, "dim");
  weight = randn(generator, {count, dim}, dtype);
}

Embedding::Embedding(Tensor table) : weight(std::move(table)) { check_weight(weight); }

Tensor Embedding::forward(const TensorView& ids) const {
  check_weight(weight);
  const Tensor whole = checked_ids(ids, weight.size(0));
  Dims shape = ids.shape();
  shape.push_back(weight.size(1));
  Tensor vectors = Tensor::uninitialized(shape, weight.dtype());
  const std::size_t row_bytes = static_cast<std::size_t>(weight.size(1)) * size_of(weight.dtype());
  const auto* table = static_cast<const std::byte*>(weight.view().data());
  auto* to = static_cast<std::byte*>(vectors.mutable_view().data());
  for (std::int64_t id : whole.values<std::int64_t>()) {
    std::memcpy(to, table + static_cast<std::size_t>(id) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return vectors;
}

void Embedding::backward(const TensorView& grad_output, const TensorView& ids, Embedding& grads) const {
  check_weight(weight);
  const Tensor whole = checked_ids(ids, weight.size(0));
  Dims shape = ids.shape();
  shape.push_back(weight.size(1));
  detail::require_like(grad_output, "grad_output", shape, weight.dtype());
  detail::require_like(grads.weight, "grads.weight", weight.shape(), weight.dtype());
  Tensor storage;
  const TensorView grad = detail::contiguous(grad_output, storage);
  const std::int64_t dim = weight.size(1);
  detail::with_real(weight.dtype(), [&]<class T>(T) {
    const T* from = grad.data_as<T>();
    for (const std::int64_t id : whole.values<std::int64_t>()) {
      T* row = grads.weight.values<T>().data() + id * dim;
      for (std::int64_t i = 0; i < dim; ++i) row[i] += from[i];
      from += dim;
    }
  });
}

std::vector<NamedParameter> Embedding::parameters() { return {{"weight", &weight}}; }

}  // namespace heed::nn
