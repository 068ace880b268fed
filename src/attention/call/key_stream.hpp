// A call whose keys arrive range by range: what is kept of them, and the results at the end.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "attention/call/kernels.hpp"
#include "attention/call/problem.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// Keys [keys.begin, keys.end) of a call: key [B, Hkv, n, D], value [B, Hkv, n, Dv], whose rows have no gaps
/// between their elements.
struct ArrivedKeys {
  KeyRange keys;
  TensorView key, value;
};

/// Ranges begin and end where spans do (cpu::kSpan), and rise; a Problem's key and value have no data.
class KeyStream {
 public:
  KeyStream() = default;
  virtual ~KeyStream() = default;
  KeyStream(const KeyStream&) = delete;
  KeyStream& operator=(const KeyStream&) = delete;

  virtual void attend(const ArrivedKeys& arrived) = 0;
  /// What attend() would add, to `bytes` [state_bytes()], and adding it.
  virtual void states(const ArrivedKeys& arrived, std::byte* bytes) = 0;
  virtual void fold(const KeyRange& keys, const std::byte* bytes) = 0;
  [[nodiscard]] virtual std::size_t state_bytes(const KeyRange& keys) const = 0;
  /// Writes the results. `status` [B, H, Lq] says which rows are not done; empty where all are.
  virtual KernelRun finish(std::vector<cpu::RowStatus>& status) = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

/// Keeps the states of rows; of a call that fused_supports(). The Problem must outlive it.
std::unique_ptr<KeyStream> fused_stream(const Problem& problem);
/// Keeps all keys for the reference.
std::unique_ptr<KeyStream> reference_stream(const Problem& problem);

/// Whether some row may see one of these keys of the call, as far as positions and sparse masks tell.
bool may_see(const Problem& problem, const KeyRange& keys);

}  // namespace heed::detail
