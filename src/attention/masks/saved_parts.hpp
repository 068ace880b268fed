// Parts of masks as plain data and back: as they keep what they know, so that no matrix is walked.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "attention/masks/mask_part.hpp"
#include "heed/masks.hpp"

namespace heed::detail {

/// A mask of one part. Throws Error (invalid_argument) for what MaskPart::saved() does not give.
[[nodiscard]] SparseMask restored_part(std::string_view form, std::string_view text,
                                       std::span<const std::pair<std::string, TensorView>> tensors);

}  // namespace heed::detail
