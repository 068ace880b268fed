// ggml's block formats of weights. A block holds a scale and codes of 32 or 256 numbers.
#pragma once

#include "model/files/weight_format.hpp"

namespace heed::detail {

/// Blocks of 32 numbers: x = d q, or x = d q + m with a least value m (Q4_1, Q5_1). IQ4_NL and MXFP4 look
/// 4-bit codes up in a table; MXFP4's scale is a power of two (Open Compute Project, Microscaling
/// Formats 1.0, 2023).
extern const WeightFormat kStoredQ4_0, kStoredQ4_1, kStoredQ5_0, kStoredQ5_1, kStoredQ8_0, kStoredIq4Nl,
    kStoredMxfp4;
/// Blocks of 256 numbers, in runs of 16 or 32 with small scales s of their own: x = d s q - m l with least
/// values l (Q2_K, Q4_K, Q5_K), or x = d s q (Q3_K, Q6_K, IQ4_XS).
extern const WeightFormat kStoredQ2K, kStoredQ3K, kStoredQ4K, kStoredQ5K, kStoredQ6K, kStoredIq4Xs;

}  // namespace heed::detail
