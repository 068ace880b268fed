// The gradients of rows with lists of keys. Each row becomes a batch entry of a small call, whose keys are
// copies of the listed ones. The kernels run over such calls. Then each key adds up the gradients of its
// copies:
//
//   dK_j = sum over rows i whose list has j at place n of dK'_in,      dV_j alike
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/plan/gathered_keys.hpp"
#include "attention/problem/problem.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {

/// Runs body(range) for ranges of all keys, on the call's threads.
template <class Body>
void for_each_key_range(const Problem& p, Body body) {
  const std::int64_t ranges = p.threads > 1 ? 2 * p.threads : 1;
  parallel_for(ranges, p.threads, [&](std::int64_t n, int) {
    body(KeyRange{n * p.key_length / ranges, (n + 1) * p.key_length / ranges});
  });
}

/// The gradients that pieces add to, as sums in f32 (sinks: f64). They are the call's gradients themselves if
/// those are in f32.
class GatheredSums {
 public:
  explicit GatheredSums(const BackwardProblem& problem);
  GatheredSums(const GatheredSums&) = delete;
  GatheredSums& operator=(const GatheredSums&) = delete;
  /// Writes the sums to the gradients.
  void write(const BackwardProblem& problem) const;

  Output key, value;          ///< [B, Hkv, Lk, D] and [B, Hkv, Lk, Dv]
  std::vector<double> sinks;  ///< [H]

 private:
  Tensor key_memory_, value_memory_;
};

/// The memory of a piece: copies of keys and values, and their gradients. Pieces use it one after the other.
struct GatheredMemory {
  std::vector<std::byte> key, value;
  std::vector<float> grad_key, grad_value;
  [[nodiscard]] std::size_t bytes() const {
    return key.size() + value.size() + (grad_key.size() + grad_value.size()) * sizeof(float);
  }
};

/// Number of pieces that are computed before their gradients are added up. Several threads wait for each
/// other then. One has the terms in its cache if pieces are few.
inline std::size_t pieces_at_once(const GatherPlan& plan) {
  const std::int64_t threads = plan.call.threads;
  return std::min(plan.pieces.size(), static_cast<std::size_t>(threads > 1 ? 4 * threads : 2));
}

/// A piece of a backward call as a call of its own. It points into itself, so it does not move.
class GatheredGradients {
 public:
  /// A plan needs no copies, and so reads no keys and values.
  GatheredGradients(const BackwardProblem& whole, const GatherPlan& plan, const GatheredRows& rows,
                    GatheredMemory& memory, bool copies_keys = true);
  GatheredGradients(const GatheredGradients&) = delete;
  GatheredGradients& operator=(const GatheredGradients&) = delete;

  [[nodiscard]] const BackwardProblem& problem() const { return problem_; }
  /// Adds the gradients of keys in `range`, row by row.
  void add_keys(const KeyRange& range, const GatheredSums& sums) const;
  void add_sinks(GatheredSums& sums) const;

 private:
  [[nodiscard]] Operand place_of(const Operand& rows, std::int64_t width,
                                 std::vector<std::byte>& memory) const;
  void copy_keys(const Operand& rows, std::int64_t width, std::vector<std::byte>& memory) const;

  GatheredRows rows_;
  std::int64_t kv_head_;
  GatheredPiece piece_;
  std::vector<double> grad_sinks_;
  BackwardProblem problem_;
};

}  // namespace heed::detail
