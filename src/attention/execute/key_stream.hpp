// A call whose keys arrive in ranges: the state kept between ranges, and the results at the end.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "attention/plan/execution_plan.hpp"
#include "attention/problem/problem.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// Keys [keys.begin, keys.end) of a call: key [B, Hkv, n, D] and value [B, Hkv, n, Dv]. The elements of a row
/// are contiguous.
struct ArrivedKeys {
  KeyRange keys;
  TensorView key, value;
};

/// Ranges arrive in ascending order and begin and end at span borders (cpu::kSpan). The Problem's key and
/// value have no data.
class KeyStream {
 public:
  KeyStream() = default;
  virtual ~KeyStream() = default;
  KeyStream(const KeyStream&) = delete;
  KeyStream& operator=(const KeyStream&) = delete;

  virtual void attend(const ArrivedKeys& arrived) = 0;
  /// states() writes to `bytes` [state_bytes()] what attend() would add; merge() adds it.
  virtual void states(const ArrivedKeys& arrived, std::byte* bytes) = 0;
  virtual void merge(const KeyRange& keys, const std::byte* bytes) = 0;
  [[nodiscard]] virtual std::size_t state_bytes(const KeyRange& keys) const = 0;
  /// Writes the results. `status` [B, H, Lq] marks rows that are not done; it is empty if all are.
  virtual KernelRun finish(std::vector<cpu::RowStatus>& status) = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

/// Keeps the rows' states, for a plan of the fused kernel. Problem and plan must outlive the stream.
std::unique_ptr<KeyStream> fused_stream(const Problem& problem, const ExecutionPlan& plan);
/// Keeps all keys, for the reference kernel.
std::unique_ptr<KeyStream> reference_stream(const Problem& problem);

/// Whether any row may see one of these keys, judged by positions and sparse masks alone.
bool may_see(const Problem& problem, const KeyRange& keys);

}  // namespace heed::detail
