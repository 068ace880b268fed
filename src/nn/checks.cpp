#include "nn/checks.hpp"

namespace heed::nn::detail {

void require_real(const TensorView& tensor, const char* name) {
  if (tensor.dtype() != DType::f32 && tensor.dtype() != DType::f64)
    refuse(name, " is ", tensor.dtype(), "; f32 or f64 is expected");
}

void require_rank(const TensorView& tensor, const char* name, int rank, const char* axes) {
  if (tensor.rank() != rank) refuse(name, " has shape ", tensor.shape(), "; ", axes, " is expected");
}

void require_dtype(const TensorView& tensor, const char* name, DType dtype, const char* of) {
  if (tensor.dtype() != dtype)
    refuse(name, " is ", tensor.dtype(), "; ", dtype, ", the dtype of ", of, ", is expected");
}

void require_like(const TensorView& tensor, const char* name, const Dims& shape, DType dtype) {
  if (tensor.shape() != shape || tensor.dtype() != dtype)
    refuse(name, " is ", tensor.dtype(), " ", tensor.shape(), "; ", dtype, " ", shape, " is expected");
}

const Tensor& given(const NamedParameter& parameter) {
  if (parameter.value == nullptr) refuse("the value of ", parameter.name, " is null; a tensor is expected");
  return *parameter.value;
}

void require_size(std::int64_t size, const char* name) {
  if (size < 1) refuse(name, " is ", size, "; at least 1 is expected");
}

}  // namespace heed::nn::detail
