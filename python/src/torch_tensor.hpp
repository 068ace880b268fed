// PyTorch tensors. Their dispatcher knows properties that their memory does not show.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "heed/tensor.hpp"

namespace heed::python {

/// Returns the tensor whose memory contains the numbers: the given one, or a copy if PyTorch negates it when
/// reading. Throws if heed may not read the numbers from memory. `is_usual`: the type is torch.Tensor itself.
/// `in_place`: throws if a copy would be needed.
nanobind::object readable_tensor(std::string_view name, nanobind::handle tensor, bool is_usual,
                                 bool in_place);

/// Throws if the tensor's view extends beyond its storage, which may have been shrunk.
void check_storage(std::string_view name, nanobind::handle tensor, const TensorView& view);

/// Raises the version of a tensor whose numbers change.
void count_change_of(nanobind::handle tensor);

/// The number in a tensor. Throws if a gradient or a graph would lose track of it.
nanobind::object number_of_tensor(std::string_view name, nanobind::handle tensor);

}  // namespace heed::python
