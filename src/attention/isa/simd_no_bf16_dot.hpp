// For units without a bf16 dot product. kHasBf16Dot is false, and these declarations stand in for the names.
#pragma once

#include <cstdint>

namespace heed::detail::HEED_ISA {

inline constexpr bool kHasBf16Dot = false;

Vf dot_bf16(Vf a, Vf b, Vf c);
Vf low_halves(Vf pairs);
Vf high_halves(Vf pairs);
Vf interleave_bf16(const std::uint16_t* low, const std::uint16_t* high);
Vf round_bf16(Vf a);
Vf store_bf16(std::uint16_t* p, Vf a);
Vf store_bf16(std::uint16_t* p, Vf a, Vf b);
Vf pair_high_halves(Vf low, Vf high);
Vf pair_rounded(Vf low, Vf high);
Vf pairs_of_one();

}  // namespace heed::detail::HEED_ISA
