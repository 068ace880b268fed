// For units that widen bf16 in order. kSplitsPairs is false, and these declarations stand in for the names.
#pragma once

namespace heed::detail::HEED_ISA {

inline constexpr bool kSplitsPairs = false;

void split_pairs(Vf a, Vf b, Vf& even, Vf& odd);
void join_pairs(Vf even, Vf odd, Vf& a, Vf& b);

}  // namespace heed::detail::HEED_ISA
