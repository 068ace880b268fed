// Tensors of PyTorch. Its dispatcher knows of them what their memory does not show.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "heed/tensor.hpp"

namespace heed::python {

/// Returns the tensor whose memory holds the numbers: the given one, or a copy where PyTorch negates them on
/// the way out. Throws where heed may not take the numbers from memory. `is_usual`: the type is torch.Tensor
/// itself. `in_place`: throws where a copy is needed.
nanobind::object readable_tensor(std::string_view name, nanobind::handle tensor, bool is_usual,
                                 bool in_place);

/// Throws where the view, of that tensor, reaches beyond its storage, which somebody may have cut.
void check_storage(std::string_view name, nanobind::handle tensor, const TensorView& view);

/// The number in a tensor. Throws where a gradient or a graph would lose sight of it.
nanobind::object number_of_tensor(std::string_view name, nanobind::handle tensor);

}  // namespace heed::python
