// Chooses the keys of each query by a cheap score (DeepSeek-V3.2-Exp, 2025), for SparseMask::key_lists().
#pragma once

#include <cstdint>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Options of lightning_indexer().
struct IndexerOptions {
  std::int64_t top_k = 2048;      ///< n: the most keys of a list, 1 or more
  bool causal = true;             ///< query i chooses among keys j <= i + query_offset
  std::int64_t query_offset = 0;  ///< -2^60 to 2^60
  int threads = 0;                ///< upper limit; 0 uses all processors
};

/// The top_k keys of each query by
///
///   I_ij = sum_h weights_ih * max(0, <q_ih, k_j>)
///
/// query [B, H, Lq, D], key [B, 1, Lk, D] and weights [B, H, Lq] are f32, f16 or bf16. Products and sums are
/// f32. Returns i32 [B, 1, Lq, min(top_k, Lk)]: the chosen keys of a row in ascending order, then -1 for
/// entries without a key. If scores are equal, the earlier key is chosen. A NaN counts as -inf. Needs memory
/// for the lists, for a copy of the keys and for 5 Lk numbers a thread. The same bits for every number of
/// threads. Throws Error (invalid_argument) before anything is computed.
[[nodiscard]] HEED_API Tensor lightning_indexer(const TensorView& query, const TensorView& key,
                                                const TensorView& weights,
                                                const IndexerOptions& options = {});

/// Writes the lists into caller memory of that shape, with any strides, apart from the inputs.
HEED_API void lightning_indexer_into(const TensorView& query, const TensorView& key,
                                     const TensorView& weights, const IndexerOptions& options,
                                     const MutableTensorView& indices);

}  // namespace heed
