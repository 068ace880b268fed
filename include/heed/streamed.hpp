// Attention over keys and values that arrive range by range, in a buffer that holds one range: the rows have
// the bits that attention() gives them over all keys at once. So keys can come from other machines, or from a
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heed/attention.hpp"
#include "heed/export.hpp"
#include "heed/part.hpp"
#include "heed/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// The sizes of keys and values that come later: key [B, Hkv, Lk, D], value [B, Hkv, Lk, Dv].
struct KeyShape {
  std::int64_t kv_heads = 1;   ///< Hkv; of the part
  std::int64_t length = 0;     ///< Lk
  std::int64_t value_dim = 0;  ///< Dv
};

/// A row of a part's query; batch and head are 0 where query has no such axis.
struct PartRow {
  std::int64_t batch = 0, head = 0, row = 0;
  friend bool operator==(const PartRow&, const PartRow&) = default;
};

/// The running softmax of query rows (Milakov and Gimelshein 2018) between ranges of keys. Bits are those of
/// attention() where each head's keys, and values, lie row after row.
///
/// Keys are cut at spans of 3072, counted within their sequence. A range begins and ends at such cuts. Ranges
/// come in rising order, each once, by attend() or by fold(). One that needs() does not ask for may be left
/// out.
///
/// Memory: of a row Dv floats, at most some 350 bytes, and 8 bytes for each of top_k (bytes()). Where the
/// fused kernel does not take the call (f64, Kernel::reference, head dimensions above 1024) all keys and
/// values are kept until finish().
///
/// All functions throw Error (invalid_argument) where an argument is wrong. Not from two threads at once.
class HEED_API StreamedAttention {
 public:
  /// As attention_part_into(), but that keys come later; `outputs` may have what needs no weights once more:
  /// output, lse, max_score, entropy, distance and top_k. query, outputs and the tensors of `options` must
  /// last until finish(); mask and bias have columns for all keys.
  StreamedAttention(const TensorView& query, const KeyShape& keys, const AttentionOptions& options,
                    const CallPart& part, const AttentionOutputs& outputs);
  StreamedAttention(StreamedAttention&&) noexcept;
  StreamedAttention& operator=(StreamedAttention&&) noexcept;
  ~StreamedAttention();

  /// All keys in rising ranges of at most `keys` >= 1 keys, or of one span where that is more. They depend on
  /// the whole call alone: all parts have the same.
  [[nodiscard]] std::vector<PositionRange> ranges(std::int64_t keys) const;
  /// Whether some row may see a key of the range, as far as causality, window, lengths, segments and the
  /// sparse mask tell. The range may begin and end anywhere.
  [[nodiscard]] bool needs(const PositionRange& range) const;

  /// The next range: key [B, Hkv, n, D] and value [B, Hkv, n, Dv], which are not read later.
  void attend(const PositionRange& range, const TensorView& key, const TensorView& value);

  /// What attend() would add, as bytes for fold() in another object of the same call and part, in a process
  /// of the same build and instruction set. Any range, in any order; bytes.size() is state_bytes(range).
  void states(const PositionRange& range, const TensorView& key, const TensorView& value,
              std::span<std::byte> bytes);
  /// As attend(), from the bytes of states().
  void fold(const PositionRange& range, std::span<const std::byte> bytes);
  [[nodiscard]] std::size_t state_bytes(const PositionRange& range) const;

  /// After the last range, once: writes the results of all rows but those of left_out(). recomputed_rows is
  /// 0.
  AttentionRun finish();
  /// After finish(): rows whose numbers f32 cannot hold, or that need their keys once more (top_k beside a
  /// score_mod). What was written of them means nothing: attention_part_into() computes them.
  [[nodiscard]] std::span<const PartRow> left_out() const;

  /// Memory for what is kept between ranges.
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heed
