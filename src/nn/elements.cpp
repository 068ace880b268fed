#include "nn/elements.hpp"

namespace heed::nn::detail {

void add(const TensorView& x, Tensor& to) {
  Tensor storage;
  const TensorView from = contiguous(x, storage);
  with_real(to.dtype(), [&]<class T>(T) {
    const T* term = from.data_as<T>();
    for (T& value : to.values<T>()) value += *term++;
  });
}

Tensor sum(const TensorView& a, const TensorView& b) {
  Tensor result = Tensor::copy_of(a);
  add(b, result);
  return result;
}

}  // namespace heed::nn::detail
