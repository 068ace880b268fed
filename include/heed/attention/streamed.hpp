// Attention over keys and values that arrive range by range, in a buffer of one range. The results have the
// same bits as attention() over all keys at once. Keys can thus come from other machines or from a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/part.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Shapes of the keys and values that arrive later: key [B, Hkv, Lk, D], value [B, Hkv, Lk, Dv].
struct KeyShape {
  std::int64_t kv_heads = 1;   ///< Hkv of the part
  std::int64_t length = 0;     ///< Lk
  std::int64_t value_dim = 0;  ///< Dv
};

/// A row of a part's query; batch and head are 0 if query lacks that axis.
struct PartRow {
  std::int64_t batch = 0, head = 0, row = 0;
  friend bool operator==(const PartRow&, const PartRow&) = default;
};

/// The running softmax of query rows between ranges of keys (Milakov and Gimelshein 2018). The results have
/// the same bits as attention() on keys and values that lie row after row in each head.
///
/// Keys are processed in spans of 3072, counted from the start of their sequence. A range must begin and end
/// at span boundaries. Ranges come in ascending order, each once, through attend() or merge(). Ranges for
/// which needs() is false may be skipped.
///
/// Memory per row: Dv floats, at most about 350 bytes, and 8 bytes for each of top_k (bytes()). All keys and
/// values are kept until finish() if the fused kernel does not support the call (f64, Kernel::reference, head
/// dimensions above 1024).
///
/// All functions throw Error (invalid_argument) for a wrong argument. Not for concurrent use.
class HEED_API StreamedAttention {
 public:
  /// Takes the arguments of attention_part_into(), but keys come later. `outputs` may have the results of
  /// takes_one_pass(): output, lse, top-k, …. query, outputs and the tensors of `options` must live until
  /// finish(). mask and bias have columns for all keys.
  StreamedAttention(const TensorView& query, const KeyShape& keys, const AttentionOptions& options,
                    const CallPart& part, const AttentionOutputs& outputs);
  StreamedAttention(StreamedAttention&&) noexcept;
  StreamedAttention& operator=(StreamedAttention&&) noexcept;
  ~StreamedAttention();

  /// All keys as ascending ranges of at most `keys` >= 1 keys, but at least one span each. They depend only
  /// on the whole call, so all parts get the same ranges.
  [[nodiscard]] std::vector<PositionRange> ranges(std::int64_t keys) const;
  /// Whether some row may see a key of the range, judged by causality, window, lengths, segments and the
  /// sparse mask. The range need not lie on span boundaries.
  [[nodiscard]] bool needs(const PositionRange& range) const;

  /// Adds the next range: key [B, Hkv, n, D] and value [B, Hkv, n, Dv]. Neither is read after the call.
  void attend(const PositionRange& range, const TensorView& key, const TensorView& value);

  /// Computes the partial result that attend() would add, as bytes for merge(). The receiver must be an
  /// object of the same call and part, in a process of the same build and instruction set. Takes any range,
  /// in any order; bytes.size() must be state_bytes(range).
  void states(const PositionRange& range, const TensorView& key, const TensorView& value,
              std::span<std::byte> bytes);
  /// Merges a partial result of states(), as attend() would do with the range itself.
  void merge(const PositionRange& range, std::span<const std::byte> bytes);
  [[nodiscard]] std::size_t state_bytes(const PositionRange& range) const;

  /// Writes the results of all rows except left_out(). Call once, after the last range. recomputed_rows is 0.
  AttentionRun finish();
  /// The rows without a valid result, known after finish(): f32 cannot represent their numbers, or they need
  /// their keys again (top_k with a score_mod). Compute them with attention_part_into(); their outputs are
  /// undefined.
  [[nodiscard]] std::span<const PartRow> left_out() const;

  /// Memory in bytes of the state kept between ranges.
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heed
