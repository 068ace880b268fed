// A checked call over ranks: every tensor with all its axes, and the pieces on which schemes work.
//
// A unit is one key head of one batch entry with its query heads. A rank can compute it without other units.
// Units are numbered batch entry by batch entry.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor/lifted.hpp"
#include "distributed/mpi/agreement.hpp"
#include "distributed/mpi/communicator.hpp"
#include "heed/attention/part.hpp"
#include "heed/distributed/attention.hpp"

namespace heed::distributed {

struct Unit {
  std::int64_t batch, kv_head;
};

struct Call {
  const Layout& layout;
  AttentionOptions options;      ///< mask and bias have four axes
  TensorView query, key, value;  ///< [B, H | Hkv, rows, D | Dv]
  AttentionOutputs outputs;      ///< [B, H, …]
  bool mask_has_rows = false;    ///< it does not broadcast along them; the same on all ranks
  bool bias_has_rows = false;
  AttentionRun target{};  ///< the kernel and instruction set of this rank

  [[nodiscard]] std::int64_t batch() const { return query.size(0); }
  [[nodiscard]] std::int64_t heads() const { return query.size(1); }
  [[nodiscard]] std::int64_t kv_heads() const { return key.size(1); }
  [[nodiscard]] std::int64_t group() const { return kv_heads() > 0 ? heads() / kv_heads() : 1; }
  [[nodiscard]] std::int64_t units() const { return batch() * kv_heads(); }
  [[nodiscard]] Unit unit(std::int64_t index) const { return {index / kv_heads(), index % kv_heads()}; }

  /// Some rows of all units as a part of the whole call.
  [[nodiscard]] CallPart whole_part(std::span<const PositionRange> rows) const;
  /// Some rows of a unit as a part of the whole call.
  [[nodiscard]] CallPart part_of(const Unit& unit, std::span<const PositionRange> rows) const;
  /// The options of a unit; mask and bias have all of the rank's rows, or `count` rows from `row` on.
  [[nodiscard]] AttentionOptions options_of(const Unit& unit) const;
  [[nodiscard]] AttentionOptions options_of(const Unit& unit, std::int64_t row, std::int64_t count) const;
};

/// A rank's unchecked arguments, and the destinations of the results.
struct Given {
  const TensorView &query, &key, &value;
  const Layout& layout;
  const AttentionOptions& options;
};

/// The first check of every call: the tensors fit the layout.
void check_shards(const Communicator& comm, const Given& given);
/// Stands for the keys or values of all ranks in checks, which only read its shape.
[[nodiscard]] TensorView of_all_ranks(const TensorView& view, std::int64_t length);
/// This rank's rows as a part of the whole call.
[[nodiscard]] CallPart rank_part(const Communicator& comm, const Given& given);
/// Checks that ranks agree about `asked`, which identifies the requested results, and about shapes and
/// options. Returns the call with all axes.
[[nodiscard]] Call agreed_call(const Communicator& comm, const Given& given, std::vector<Common> asked);
/// Whether a view has rows of its own. On a rank with a single row this is invisible, so ranks compare.
[[nodiscard]] bool has_rows_somewhere(const Communicator& comm, const std::optional<TensorView>& view,
                                      std::int64_t rows);

/// Throws on all ranks if a rank's tensors, options or outputs are wrong, or the ranks disagree.
[[nodiscard]] Call checked_call(const Communicator& comm, const Given& given,
                                const AttentionOutputs& outputs);

/// If `one_target` is set, throws on all ranks unless they have the same instruction set.
void check_targets(const Communicator& comm, const Call& call, bool one_target);

/// Throws on all ranks if a call is to have the bits of one process and may not have them. `splits_lists`:
/// ranks do not gather the keys of lists, which `expected_instead` would avoid.
void check_bits(const Call& call, bool splits_lists, const std::string& expected_instead);

using heed::detail::lifted;

/// The heads of a unit, [each, rows, columns], of a view [B, each * Hkv, rows, columns]; axes of size 1
/// broadcast.
template <class View>
[[nodiscard]] View heads_of(const View& view, const Unit& unit, std::int64_t each) {
  const View entry = view.select(0, view.size(0) == 1 ? 0 : unit.batch);
  return entry.size(0) == 1 ? entry : entry.narrow(0, unit.kv_head * each, each);
}

/// The number of axes after [B, H] of a result; rows or keys come first.
[[nodiscard]] int axes_of(ResultShape shape);
/// A result's view [B, H, first axis, columns].
[[nodiscard]] MutableTensorView result_rows(const MutableTensorView& view, ResultShape shape);

/// A unit's share of all outputs, [1, group, …].
[[nodiscard]] AttentionOutputs outputs_of(const Call& call, const AttentionOutputs& outputs,
                                          const Unit& unit);

/// Some rows of outputs that are row results.
[[nodiscard]] AttentionOutputs rows_of(const AttentionOutputs& outputs, std::int64_t row, std::int64_t count);

/// The outputs that are row results, and the other ones, sums over rows.
[[nodiscard]] AttentionOutputs row_results(const AttentionOutputs& outputs);
[[nodiscard]] AttentionOutputs sum_results(const AttentionOutputs& outputs);
[[nodiscard]] bool is_any_given(const AttentionOutputs& outputs);

}  // namespace heed::distributed
