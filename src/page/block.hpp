// A tensor as the page holds it: base64 of little-endian numbers, with what is needed to read them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "heed/tensor.hpp"

namespace heed::detail {

/// RFC 4648, with padding.
[[nodiscard]] std::string base64(std::span<const std::byte> bytes);

struct PageBlock {
  std::string name;        ///< among the page's tensors: "step-scores"
  std::string_view dtype;  ///< "f32", "i32"
  Dims shape;
  std::string data;  ///< base64
};

/// Floats as f32, integers as i32.
[[nodiscard]] PageBlock page_block(const std::string& name, const TensorView& tensor);

}  // namespace heed::detail
