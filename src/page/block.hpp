// A tensor in the page: base64 of little-endian numbers, with the data needed to read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// RFC 4648, with padding.
[[nodiscard]] std::string base64(std::span<const std::byte> bytes);

struct PageBlock {
  std::string name;        ///< its name in the page: "step-scores"
  std::string_view dtype;  ///< "f32", "i32", "u24", "log16"
  Dims shape;
  std::string data;  ///< base64
  double low = 0;    ///< log16: the logarithm of the least number, and the step between numbers
  double step = 0;
};

/// Floats as f32, integers as i32.
[[nodiscard]] HEED_API PageBlock page_block(const std::string& name, const TensorView& tensor);

/// Integers from -1 to 2^24 - 2 in three bytes; -1 is 2^24 - 1.
[[nodiscard]] PageBlock page_block_u24(const std::string& name, const TensorView& tensor);

/// log16 codes for values that are not numbers greater than 0.
constexpr std::uint16_t kLog16Zero = 0;
constexpr std::uint16_t kLog16NaN = 65534;
/// A masked cell; the next code is the number of repetitions. Stands for -inf, which no weight is.
constexpr std::uint16_t kLog16Masked = 65535;
/// Numbers smaller than this times the largest become zero.
constexpr double kLog16Least = 1e-10;

/// Numbers of 0 or more in 16 bits each, evenly spaced in the logarithm: code 1 is exp(low), 2 is exp(low +
/// step), … The relative error is at most step / 2, at most 1.8e-4.
[[nodiscard]] PageBlock page_block_log16(const std::string& name, const TensorView& tensor);

}  // namespace heed::detail
