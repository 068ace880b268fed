#include "nn/checks.hpp"

#include "heed/error.hpp"

namespace heed::nn::detail {

void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void require_real(const TensorView& tensor, const char* name) {
  if (tensor.dtype() != DType::f32 && tensor.dtype() != DType::f64)
    refuse(std::string(name) + " is " + std::string(name_of(tensor.dtype())) + "; f32 or f64 is expected");
}

void require_rank(const TensorView& tensor, const char* name, int rank, const char* axes) {
  if (tensor.rank() != rank)
    refuse(std::string(name) + " has shape " + to_string(tensor.shape()) + "; " + axes + " is expected");
}

void require_dtype(const TensorView& tensor, const char* name, DType dtype, const char* of) {
  if (tensor.dtype() != dtype)
    refuse(std::string(name) + " is " + std::string(name_of(tensor.dtype())) + "; " +
           std::string(name_of(dtype)) + ", the dtype of " + of + ", is expected");
}

void require_like(const TensorView& tensor, const char* name, const Dims& shape, DType dtype) {
  if (tensor.shape() != shape || tensor.dtype() != dtype)
    refuse(std::string(name) + " is " + std::string(name_of(tensor.dtype())) + " " +
           to_string(tensor.shape()) + "; " + std::string(name_of(dtype)) + " " + to_string(shape) +
           " is expected");
}

void require_size(std::int64_t size, const char* name) {
  if (size < 1) refuse(std::string(name) + " is " + std::to_string(size) + "; at least 1 is expected");
}

}  // namespace heed::nn::detail
