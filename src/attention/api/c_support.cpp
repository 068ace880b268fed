#include "attention/api/c_support.hpp"

#include "core/message.hpp"

namespace heed::detail::c_api {

void require(std::string_view name, const void* pointer) {
  if (pointer == nullptr) refuse(name, " is NULL");
}

DType dtype_of(std::string_view name, std::int32_t dtype) {
  if (dtype < HEED_F64 || dtype > HEED_BOOL)
    refuse(name, ".dtype is ", dtype, "; a heed_dtype, 0 to 7, is expected");
  return static_cast<DType>(dtype);
}

Dims shape_of(std::string_view name, std::int32_t rank, const std::int64_t* shape) {
  if (rank < 1 || rank > HEED_MAX_RANK) refuse(name, ".rank is ", rank, "; 1 to 5 is expected");
  const Dims dims(std::span(shape, static_cast<std::size_t>(rank)));
  for (std::int64_t size : dims)
    if (size < 0) refuse(name, " has shape ", dims, "; sizes of 0 or more are expected");
  return dims;
}

MutableTensorView view_of(std::string_view name, const heed_tensor* tensor) {
  require(name, tensor);
  const DType dtype = dtype_of(name, tensor->dtype);
  const Dims shape = shape_of(name, tensor->rank, tensor->shape);
  if (tensor->data == nullptr && element_count(shape) > 0) refuse(name, ".data is NULL for shape ", shape);
  return {tensor->data, dtype, shape,
          Dims(std::span(tensor->strides, static_cast<std::size_t>(tensor->rank)))};
}

}  // namespace heed::detail::c_api
