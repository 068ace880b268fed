// A share of the gradients of a call: those of some of its keys, for all rows, with the bits that they have
// in the whole. So few heads with many keys can be cut over machines, too.
//
// The keys of a key head are cut into splits, by the shapes of the whole call alone. A task is one split. It
// owns dK and dV of its keys, and has a part of dQ of the rows that may see them: dQ is the scaled sum over
// the splits, in their order. Each rank computes some tasks; the owner of a row gets its parts and adds them.
// Bits are those of one target: all ranks take the same (heed/targets.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "heed/attention.hpp"
#include "heed/backward.hpp"
#include "heed/dtype.hpp"
#include "heed/export.hpp"
#include "heed/part.hpp"
#include "heed/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Indices are those of the part's tensors.
struct GradientTask {
  std::int64_t batch = 0;
  std::int64_t kv_head = 0;
  PositionRange keys{};     ///< of key and value
  PositionRange rows{};     ///< of query: those of the batch entry, or of the packed sequence
  std::int64_t split = 0;   ///< which one
  std::int64_t splits = 1;  ///< of how many that these rows see
  std::int64_t work = 0;    ///< cells (query head, row, key) that causal, window and lengths allow
};

/// The tasks of a call whose tensors have these shapes, of rank 2 to 4, and this dtype; ordered by batch
/// entry, packed sequence, key head and split. Keys of no task (beyond kv_lengths) have the gradient 0, which
/// nobody writes. Empty where gradients cannot be shared by keys (f64, Kernel::reference, nothing to
/// compute): whole heads can (heed/part.hpp). Throws as attention_backward_part_into() does.
[[nodiscard]] HEED_API std::vector<GradientTask> gradient_tasks(const Dims& query, const Dims& key,
                                                                const Dims& value, DType dtype,
                                                                const AttentionOptions& options,
                                                                const CallPart& part);

/// Where a share goes. A default view, or an empty span, is not computed. The gradients of a bias and of
/// sinks are not shared by keys.
struct GradientShareViews {
  MutableTensorView key{};    ///< [B, Hkv, Lk, D]; rows of keys of other tasks stay as they are
  MutableTensorView value{};  ///< [B, Hkv, Lk, Dv]; the same
  /// Of each task, one after the other: its part of dQ, [rows, query heads of the key head, D], unscaled.
  std::span<float> query_parts{};
};

struct GradientShareRun {
  std::string_view isa;
  int threads = 1;
  /// f32 does not hold some row, and what was written means nothing. All ranks must then take another way:
  /// attention_backward_part_into() for whole heads.
  bool out_of_range = false;
};

/// As attention_backward_part_into(), for the tasks at these places of gradient_tasks(), which rise. Of key
/// and value only the keys of these tasks are read, but where share_needs_all_keys(). Throws Error
/// (invalid_argument) besides for calls without tasks, wrong places, a size of query_parts that is not
/// theirs, and grad_weights.
HEED_API GradientShareRun attention_backward_share_into(const AttentionBackwardInputs& inputs,
                                                        const AttentionOptions& options, const CallPart& part,
                                                        std::span<const std::int64_t> tasks,
                                                        const GradientShareViews& gradients);

/// Whether these tasks read the keys of other splits of their rows, too: f32 does not hold the lse of some
/// row exactly enough (few keys, or beyond 16), so it is computed anew. Of the inputs' data the lse alone is
/// read.
[[nodiscard]] HEED_API bool share_needs_all_keys(const AttentionBackwardInputs& inputs,
                                                 const AttentionOptions& options, const CallPart& part,
                                                 std::span<const std::int64_t> tasks);

/// grad_query [heads, rows, D] = scale * the sum of parts [splits, rows, heads, D] over the splits, in their
/// order: the bits of the whole call. Rows and heads are any of one task's; of `parts`, f32, the last stride
/// is 1. grad_query has the dtype of query, `grad_output` is that of the gradient of the output. Of the
/// options scale and threads are read, of the part query_length. Throws Error (invalid_argument) for wrong
/// shapes and dtypes.
HEED_API void add_gradient_parts(const TensorView& parts, DType grad_output, const AttentionOptions& options,
                                 const CallPart& part, const MutableTensorView& grad_query);

}  // namespace heed
