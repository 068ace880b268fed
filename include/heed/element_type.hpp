// The element types of tensors. This header includes nothing but `<cstdint>`, because kernels compiled for
// one instruction set may share no inline function with other code.
#pragma once

#include <cstdint>

namespace heed {

/// The element types of tensors.
enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean };

}  // namespace heed
