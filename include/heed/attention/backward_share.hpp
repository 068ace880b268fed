// A share of the gradients of a call: the gradients of some of its keys over all rows, with the same bits as
// in the whole call, unless that gathers the keys of lists (docs/forms.md). So a call with few heads and many
// keys can also be split over machines.
//
// The keys of a key head are cut into splits, which depend only on the shapes of the whole call. A task is
// one split. It computes dK and dV of its keys, and its part of dQ of the rows that may see them. dQ is the
// scaled sum of the parts over the splits, in their order. Each rank computes some tasks; the owner of a row
// receives its parts and adds them. All ranks must use the same target (heed/attention/targets.hpp) to get
// these bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/part.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/dtype.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// One task. Indices refer to the part's tensors.
struct GradientTask {
  std::int64_t batch = 0;
  std::int64_t kv_head = 0;
  PositionRange keys{};     ///< rows of key and value
  PositionRange rows{};     ///< rows of query: all of the batch entry or packed sequence
  std::int64_t split = 0;   ///< number of this split
  std::int64_t splits = 1;  ///< number of splits that these rows see
  std::int64_t work = 0;    ///< number of (query head, row, key) that causal, window and lengths allow
};

/// The tasks of a call with tensors of these shapes, of rank 2 to 4, and this dtype. They are ordered by
/// batch entry, packed sequence, key head and split. Keys in no task (beyond kv_lengths) have gradient 0,
/// which nobody writes. Empty if gradients cannot be split by keys (f64, Kernel::reference, nothing to
/// compute); heads can still be split (heed/attention/part.hpp). Throws as attention_backward_part_into()
/// does.
[[nodiscard]] HEED_API std::vector<GradientTask> gradient_tasks(const Dims& query, const Dims& key,
                                                                const Dims& value, DType dtype,
                                                                const AttentionOptions& options,
                                                                const CallPart& part);

/// Destinations of a share. An empty (default) view or span is skipped. The gradients of a bias and of sinks
/// cannot be split by keys.
struct GradientShareViews {
  MutableTensorView key{};    ///< [B, Hkv, Lk, D]; keys of other tasks are not written
  MutableTensorView value{};  ///< [B, Hkv, Lk, Dv]; likewise
  /// The parts of dQ, one task after the other: [rows, query heads of the key head, D], unscaled.
  std::span<float> query_parts{};
};

/// How attention_backward_share_into() ran.
struct GradientShareRun {
  std::string_view isa;
  int threads = 1;
  /// f32 cannot represent some row; the written numbers are invalid. All ranks must then use
  /// attention_backward_part_into() for whole heads instead.
  bool out_of_range = false;
};

/// Runs attention_backward_part_into() for the tasks with these indices in gradient_tasks(), ascending. Reads
/// key and value only at the keys of these tasks, unless share_needs_all_keys(). Also throws Error
/// (invalid_argument) for calls without tasks, invalid indices, a query_parts of the wrong size, and
/// grad_weights.
HEED_API GradientShareRun attention_backward_share_into(const AttentionBackwardInputs& inputs,
                                                        const AttentionOptions& options, const CallPart& part,
                                                        std::span<const std::int64_t> tasks,
                                                        const GradientShareViews& gradients);

/// Whether these tasks also read the keys of other splits of their rows. They do so to recompute the lse of a
/// row that f32 holds too coarsely (few keys, or an lse beyond 16). Reads only the data of lse.
[[nodiscard]] HEED_API bool share_needs_all_keys(const AttentionBackwardInputs& inputs,
                                                 const AttentionOptions& options, const CallPart& part,
                                                 std::span<const std::int64_t> tasks);

/// Computes grad_query [heads, rows, D] = scale * the sum of parts [splits, rows, heads, D] over the splits,
/// in their order, with the bits of the whole call. Rows and heads are any of one task's. `parts` is f32 with
/// a last stride of 1. grad_query has the dtype of query; `grad_output` is the dtype of the gradient of the
/// output. Only scale and threads of `options` and query_length of `part` are read. Throws Error
/// (invalid_argument) for wrong shapes and dtypes.
HEED_API void add_gradient_parts(const TensorView& parts, DType grad_output, const AttentionOptions& options,
                                 const CallPart& part, const MutableTensorView& grad_query);

}  // namespace heed
