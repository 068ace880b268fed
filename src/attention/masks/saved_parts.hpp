// Restores mask parts from plain data. A part is saved in its own form (intervals, blocks, an expression), so
// saving does not expand the mask to a matrix.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "attention/masks/mask_part.hpp"
#include "heed/attention/masks.hpp"
#include "heed/export.hpp"

namespace heed::detail {

/// Makes a mask of one part. Throws Error (invalid_argument) if the data is not from MaskPart::saved().
[[nodiscard]] HEED_API SparseMask restored_part(std::string_view form, std::string_view text,
                                                std::span<const std::pair<std::string, TensorView>> tensors);

}  // namespace heed::detail
