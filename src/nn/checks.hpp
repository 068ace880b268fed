// Checks of the layers' tensors. Each throws Error (invalid_argument) that names the tensor, its value, and
// the expected value.
#pragma once

#include "core/message.hpp"
#include "heed/nn/layers.hpp"

namespace heed::nn::detail {

using heed::detail::refuse;

/// f32 or f64, the types of a BLAS.
void require_real(const TensorView& tensor, const char* name);
void require_rank(const TensorView& tensor, const char* name, int rank, const char* axes);
void require_dtype(const TensorView& tensor, const char* name, DType dtype, const char* of);
void require_like(const TensorView& tensor, const char* name, const Dims& shape, DType dtype);
/// The parameter's tensor. Throws Error (invalid_argument) if it is null.
[[nodiscard]] const Tensor& given(const NamedParameter& parameter);
/// At least 1.
void require_size(std::int64_t size, const char* name);

}  // namespace heed::nn::detail
