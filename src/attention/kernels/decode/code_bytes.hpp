// How the codes of a cache become the bytes that digits.hpp multiplies.
#pragma once

#include "attention/kernels/shared/coded_rows.hpp"

namespace heed::detail::HEED_ISA {

/// The product of a key and digits is that of its bytes, less kMiddle times the sum of the digits. Its unit
/// is 1 / kKeyFactor, and 1 / kValueFactor for values.
template <RowFormat kFormat>
struct CodeBytes;

/// Codes c from 0 to 15, which count from 7.5: keys are 2 c, and values 16 (c - 7.5). Even channels of 32
/// come before odd ones.
template <>
struct CodeBytes<RowFormat::int4> {
  static constexpr int kParts = 2;  // vectors of bytes that a vector of codes makes
  static constexpr bool kHasOffset = true;
  static constexpr int kMiddle = 15, kLargest = 15;  // of keys
  static constexpr float kKeyFactor = 2, kValueFactor = 16;
  HEED_INLINE static Quads key(Quads codes, int part) {
    return part == 0 ? doubled_low_halves(codes) : doubled_high_halves(codes);
  }
  HEED_INLINE static void order(Vf& even, Vf& odd) { split_pairs(Vf(even), Vf(odd), even, odd); }
  HEED_BYTE_DOTS HEED_INLINE static void values(const std::uint8_t* const* rows, std::int64_t channel,
                                                Quads (&numbers)[2]) {
    const Quads halves = columns_of_four_rows(rows, channel / 2);
    numbers[0] = centred_low_halves(halves);
    numbers[1] = centred_high_halves(halves);
  }
  HEED_INLINE static void restore_order(Vf& a, Vf& b) { join_pairs(Vf(a), Vf(b), a, b); }
};

/// Codes c from -128 to 127: keys are c + 128, and values c.
template <>
struct CodeBytes<RowFormat::int8> {
  static constexpr int kParts = 1;
  static constexpr bool kHasOffset = false;
  static constexpr int kMiddle = 128, kLargest = 128;
  static constexpr float kKeyFactor = 1, kValueFactor = 1;
  HEED_INLINE static Quads key(Quads codes, int /*part*/) { return flip_signs(codes); }
  HEED_INLINE static void order(Vf& /*first*/, Vf& /*second*/) {}
  HEED_BYTE_DOTS HEED_INLINE static void values(const std::uint8_t* const* rows, std::int64_t channel,
                                                Quads (&numbers)[2]) {
    numbers[0] = columns_of_four_rows(rows, channel);
    numbers[1] = columns_of_four_rows(rows, channel + kLanes);
  }
  HEED_INLINE static void restore_order(Vf& /*a*/, Vf& /*b*/) {}
};

}  // namespace heed::detail::HEED_ISA
