// How far the value of a key moves the residual stream: what a weight is worth (Kobayashi et al. 2020).
#pragma once

#include <optional>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// n_ij = |(g_i * v_j) W_O| with the head's slice of the output projection: row i adds a vector of size p_ij
/// n_ij for key j. value [B, Hkv, Lk, Dv]; projection [H, Dv, M]; gate g [B, H, Lq, Dv] or [B, H, Lq, 1], as
/// for gated() (heed/attention/gate.hpp). All are floating. Returns f32 [B, H, Lq, Lk], or [B, H, 1, Lk]
/// without a gate. With the bias log n_ij, the weights of a call are the shares of each row's moves.
/// Some Dv^2 / 2 multiplications for each n_ij, in f64; for gates of rows, Lq times fewer. A norm errs by
/// some 1e-8 sqrt(Dv) |g_i * v_j| |W_O|, so a value that W_O takes to nearly 0 has a norm of no exact digit.
/// `threads`: upper limit; 0 uses all processors. The same bits for every number of threads. Throws Error
/// (invalid_argument) for another dtype or shape.
[[nodiscard]] HEED_API Tensor moved_norms(const TensorView& value, const TensorView& projection,
                                          const std::optional<TensorView>& gate = {}, int threads = 0);

}  // namespace heed
