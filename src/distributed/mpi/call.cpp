#include "distributed/mpi/call.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/masks/mask_part.hpp"
#include "core/digest.hpp"
#include "core/message.hpp"
#include "distributed/mpi/agreement.hpp"
#include "heed/attention/results.hpp"

namespace heed::distributed {
namespace {

using heed::detail::counted;
using heed::detail::Digest;
using heed::detail::expected;
using heed::detail::refuse;

// Narrows a view along an axis counted from the end, unless it broadcasts there.
TensorView narrowed(const TensorView& view, int axis_from_end, std::int64_t begin, std::int64_t count) {
  const int axis = view.rank() - axis_from_end;
  return axis < 0 || view.size(axis) == 1 ? view : view.narrow(axis, begin, count);
}

void check_sums(const Communicator& comm, const Given& given, const AttentionOutputs& outputs) {
  const TensorView query = lifted(given.query, 4);
  const DType dtype = query.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const std::int64_t keys = given.layout.key.rows(comm.rank());
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const ResultEntry& entry = result_entry(i);
    const MutableTensorView& view = result(outputs, i);
    if (has_rows(entry.shape) || view.data() == nullptr) continue;
    Dims expected{};
    for (int axis = 4 - given.query.rank(); axis < 2; ++axis) expected.push_back(query.size(axis));
    if (entry.shape == ResultShape::map) {
      if (view.rank() < 2) refuse(entry.path, " has shape ", view.shape(), "; [B, H, R, C] is expected");
      expected.push_back(view.size(-2));
      expected.push_back(view.size(-1));
    } else {
      expected.push_back(keys);
    }
    if (view.shape() != expected || view.dtype() != dtype)
      refuse(entry.path, " has shape ", view.shape(), " and dtype ", view.dtype(), "; ", to_string(expected),
             " and ", dtype, " are expected");
    if (entry.shape == ResultShape::key_last && given.options.received_last <= 0)
      refuse(entry.path, " is given, but options.received_last is 0; 1 or more is expected");
  }
}

// The same for equal numbers of all dtypes and strides.
std::int64_t hash_of(const std::optional<TensorView>& view) {
  Digest digest;
  if (view) digest.add(Tensor::copy_of(*view, DType::f64));
  return digest.value();
}

std::int64_t hash_of(const Sharding& sharding) {
  Digest digest;
  for (int rank = 0; rank < sharding.ranks(); ++rank)
    for (const PositionRange& range : sharding.ranges(rank))
      for (const std::int64_t number : {std::int64_t{rank}, range.begin, range.end}) digest.add(number);
  return digest.value();
}

void add_arrays(Digest& digest, const std::vector<std::pair<std::string, Tensor>>& arrays) {
  for (const auto& [name, array] : arrays) {
    digest.add(name);
    digest.add(array);
  }
}

// Covers only the sizes of a compiled function.
std::int64_t hash_of(const SparseMask& mask) {
  Digest digest;
  for (const auto& part : mask.parts()) {
    const heed::detail::MaskShape& shape = part->shape();
    for (const std::int64_t size : {shape.batch, shape.heads, shape.query_length, shape.key_length})
      digest.add(size);
    const heed::detail::SavedPart saved = part->saved();
    digest.add(saved.form);
    digest.add(saved.text);
    add_arrays(digest, saved.tensors);
  }
  return digest.value();
}

// A compiled function has no text and no arrays.
std::int64_t hash_of(const ScoreMod& mod) {
  if (mod.is_empty()) return 0;
  Digest digest(mod.part()->text());
  add_arrays(digest, mod.part()->arrays());
  return digest.value();
}

std::int64_t bits_of_results(const AttentionOutputs& outputs) {
  std::int64_t given = 0;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (result(outputs, i).data() != nullptr) given |= std::int64_t{1} << i;
  return given;
}

// The requested results, and the sizes that the caller chooses.
std::vector<Common> results_given(const AttentionOutputs& outputs) {
  const auto size_of = [](const MutableTensorView& view, int axis) {
    return view.data() == nullptr ? 0 : view.size(axis);
  };
  return {{"the requested results, as bits,", bits_of_results(outputs)},
          {"the dtype's number of the output", static_cast<std::int64_t>(outputs.output.dtype())},
          {"the number of top keys", size_of(outputs.top_k_index, -1)},
          {"the map's row count", size_of(outputs.map, -2)},
          {"the map's column count", size_of(outputs.map, -1)}};
}

// Compares what must be the same on all ranks. The code of compiled functions is not compared; the caller
// must pass the same ones.
void agree_on_call(const Communicator& comm, const Given& given, std::vector<Common> numbers) {
  const TensorView query = lifted(given.query, 4), key = lifted(given.key, 4), value = lifted(given.value, 4);
  const AttentionOptions& o = given.options;
  const std::vector<Common> own = {
      {"the number of axes", given.query.rank()},
      {"the batch size", query.size(0)},
      {"query's head count", query.size(1)},
      {"key's head count", key.size(1)},
      {"the head dimension", query.size(3)},
      {"value's head dimension", value.size(3)},
      {"the dtype's number", static_cast<std::int64_t>(query.dtype())},
      {"layout.query's length", given.layout.query.length()},
      {"layout.query's hash", hash_of(given.layout.query)},
      {"layout.key's length", given.layout.key.length()},
      {"layout.key's hash", hash_of(given.layout.key)},
      {"layout.batch", given.layout.batch},
      {"layout.heads", given.layout.heads},
      {"layout.batch_begin", given.layout.batch_begin},
      {"layout.head_begin", given.layout.head_begin},
      {"options.kernel", static_cast<std::int64_t>(o.kernel)},
      {"options.causal", o.causal},
      {"options.align", static_cast<std::int64_t>(o.align)},
      {"options.query_offset", o.query_offset.value_or(INT64_MIN)},
      {"options.window.left", o.window.left},
      {"options.window.right", o.window.right},
      {"whether there is a mask", o.mask.has_value()},
      {"whether there is a sparse mask", !o.sparse_mask.is_empty()},
      {"the hash of sparse_mask", hash_of(o.sparse_mask)},
      {"whether there is a bias", o.bias.has_value()},
      {"whether there is a score_mod", !o.score_mod.is_empty()},
      {"the hash of score_mod's text and arrays", hash_of(o.score_mod)},
      {"the hash of alibi_slopes", hash_of(o.alibi_slopes)},
      {"the number of positions of options.decay, or 0,", o.decay ? o.decay->size(-1) : 0},
      {"the hash of decay", hash_of(o.decay)},
      {"the hash of sinks", hash_of(o.sinks)},
      {"the hash of kv_lengths", hash_of(o.kv_lengths)},
      {"the hash of query_segments", hash_of(o.query_segments)},
      {"the hash of key_segments", hash_of(o.key_segments)},
      {"the bits of options.scale", bits_of(o.scale.value_or(NAN))},
      {"the bits of options.softcap", bits_of(o.softcap)},
      {"the bits of options.dropout.probability", bits_of(o.dropout.probability)},
      {"options.dropout.seed", static_cast<std::int64_t>(o.dropout.seed)},
      {"options.dropout.offset", static_cast<std::int64_t>(o.dropout.offset)},
      {"options.received_last", o.received_last},
      {"options.scores_stage", static_cast<std::int64_t>(o.scores_stage)}};
  numbers.insert(numbers.end(), own.begin(), own.end());
  agree_on(comm, numbers);
}

// Keeps one element of each axis along which a view repeats, except rows, so that only this travels. (The key
// splits of gradients depend on whether a bias repeats along keys.) All ranks must keep the same axes.
void collapse(const Communicator& comm, std::string_view name, std::optional<TensorView>& view) {
  if (!view) return;
  TensorView kept = lifted(*view, 4);
  auto bits = static_cast<std::int64_t>(kept.dtype());
  for (const int axis : {0, 1, 3}) {
    if (kept.strides()[axis] == 0 && kept.size(axis) > 1) kept = kept.narrow(axis, 0, 1);
    bits = 2 * bits + (kept.size(axis) > 1 ? 1 : 0);
  }
  agree_on(comm, {{name, bits}});
  view = kept;
}

AttentionOutputs lifted_outputs(const AttentionOutputs& outputs) {
  AttentionOutputs all = outputs;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (MutableTensorView& view = result(all, i); view.data() != nullptr)
      view = lifted(view, 2 + axes_of(result_entry(i).shape));
  return all;
}

AttentionOutputs some_results(const AttentionOutputs& outputs, bool of_rows) {
  AttentionOutputs some = outputs;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (has_rows(result_entry(i).shape) != of_rows) result(some, i) = {};
  return some;
}

// These rows of the query [B, H, Lq, D], as a part of the whole call.
CallPart part_within(const Layout& layout, const TensorView& query, std::span<const PositionRange> rows) {
  return {layout.batch > 0 ? layout.batch : query.size(0),
          layout.heads > 0 ? layout.heads : query.size(1),
          layout.query.length(),
          layout.batch_begin,
          layout.head_begin,
          rows};
}

}  // namespace

CallPart Call::whole_part(std::span<const PositionRange> rows) const {
  return part_within(layout, query, rows);
}

CallPart Call::part_of(const Unit& unit, std::span<const PositionRange> rows) const {
  CallPart part = whole_part(rows);
  part.batch_begin += unit.batch;
  part.head_begin += unit.kv_head * group();
  return part;
}

AttentionOptions Call::options_of(const Unit& unit) const {
  AttentionOptions own = options;
  const std::int64_t head = unit.kv_head * group();
  const auto narrow = [&](std::optional<TensorView>& view, int batch_axis, int head_axis) {
    if (!view) return;
    if (batch_axis > 0) view = narrowed(*view, batch_axis, unit.batch, 1);
    if (head_axis > 0) view = narrowed(*view, head_axis, head, group());
  };
  narrow(own.mask, 4, 3);
  narrow(own.bias, 4, 3);
  narrow(own.alibi_slopes, 2, 1);
  narrow(own.decay, 3, 2);
  narrow(own.sinks, 0, 1);
  narrow(own.kv_lengths, 1, 0);
  return own;
}

void check_shards(const Communicator& comm, const Given& given) {
  const auto check_one = [&](const char* of, const Sharding& sharding, const char* tensor,
                             const TensorView& view) {
    if (sharding.ranks() != comm.size())
      refuse("layout.", of, " has ", counted(sharding.ranks(), "rank"), "; the communicator's ", comm.size(),
             expected(comm.size()));
    if (view.rank() < 2 || view.rank() > 4)
      refuse(tensor, " has shape ", view.shape(), "; 2 to 4 axes are expected");
    if (view.size(-2) != sharding.rows(comm.rank()))
      refuse(tensor, " has length ", view.size(-2), " (shape ", view.shape(), "); ",
             counted(sharding.rows(comm.rank()), "row"), " as layout.", of, " gives rank ", comm.rank(),
             expected(sharding.rows(comm.rank())));
  };
  if (given.layout.batch < 0 || given.layout.heads < 0)
    refuse("layout.batch is ", given.layout.batch, " and layout.heads ", given.layout.heads,
           "; 0 (those of query) or more is expected for both");
  check_one("query", given.layout.query, "query", given.query);
  check_one("key", given.layout.key, "key", given.key);
  check_one("key", given.layout.key, "value", given.value);
}

TensorView of_all_ranks(const TensorView& view, std::int64_t length) {
  static const double anywhere[1] = {};
  const int rows = view.rank() - 2;
  Dims shape = view.shape(), strides = view.strides();
  const bool is_empty = shape[rows] == 0;
  shape[rows] = length;
  for (int axis = is_empty ? 0 : rows; axis < (is_empty ? view.rank() : rows + 1); ++axis) strides[axis] = 0;
  return {is_empty ? anywhere : view.data(), view.dtype(), shape, strides};
}

CallPart rank_part(const Communicator& comm, const Given& given) {
  return part_within(given.layout, lifted(given.query, 4), given.layout.query.ranges(comm.rank()));
}

bool has_rows_somewhere(const Communicator& comm, const std::optional<TensorView>& view, std::int64_t rows) {
  const bool broadcasts = !view || view->rank() < 2 || (view->size(-2) == 1 && rows != 1);
  std::int64_t found[2] = {broadcasts ? 1 : 0, !broadcasts && rows != 1 ? 1 : 0};
  comm.take_largest(found);
  if (found[0] == 1 && found[1] == 1)
    refuse("a mask or bias has the rows of some ranks and broadcasts on others; the same on all is expected");
  return found[0] == 0;
}

AttentionOptions Call::options_of(const Unit& unit, std::int64_t row, std::int64_t count) const {
  AttentionOptions own = options_of(unit);
  for (std::optional<TensorView>* view : {&own.mask, &own.bias})
    if (*view && (*view)->size(2) == query.size(2)) *view = (*view)->narrow(2, row, count);
  return own;
}

Call agreed_call(const Communicator& comm, const Given& given, std::vector<Common> asked) {
  agree_on_call(comm, given, std::move(asked));
  Call call{given.layout,         given.options,          lifted(given.query, 4),
            lifted(given.key, 4), lifted(given.value, 4), {}};
  const std::int64_t rows = call.query.size(2);
  call.mask_has_rows = has_rows_somewhere(comm, given.options.mask, rows);
  call.bias_has_rows = has_rows_somewhere(comm, given.options.bias, rows);
  collapse(comm, "the dtype and axes of mask, as bits,", call.options.mask);
  collapse(comm, "the dtype and axes of bias, as bits,", call.options.bias);
  const auto shared = [](const std::optional<TensorView>& view, bool has_rows) {
    return has_rows ? 0 : hash_of(view);
  };
  agree_on(comm, {{"the hash of mask", shared(call.options.mask, call.mask_has_rows)},
                  {"the hash of bias", shared(call.options.bias, call.bias_has_rows)}});
  return call;
}

Call checked_call(const Communicator& comm, const Given& given, const AttentionOutputs& outputs) {
  AttentionRun target;
  agree(comm, [&] {
    check_shards(comm, given);
    target = check_attention_part(given.query, of_all_ranks(given.key, given.layout.key.length()),
                                  of_all_ranks(given.value, given.layout.key.length()), given.options,
                                  rank_part(comm, given), row_results(outputs));
    check_sums(comm, given, outputs);
  });
  Call call = agreed_call(comm, given, results_given(outputs));
  call.outputs = lifted_outputs(outputs);
  call.target = target;
  return call;
}

void check_targets(const Communicator& comm, const Call& call, bool one_target) {
  if (!one_target) return;
  const std::int64_t hash = heed::detail::Digest(call.target.isa).value();
  std::int64_t ends[2] = {hash, ~hash};
  comm.take_largest(ends);
  if (ends[0] != ~ends[1])
    refuse("rank ", comm.rank(), " uses ", call.target.isa,
           " and other ranks another instruction set; the same one on all ranks is expected (HEED_ISA "
           "selects it)");
}

void check_bits(const Call& call, bool splits_lists, const std::string& expected_instead) {
  if (call.options.decay)
    refuse(
        "deterministic is true, but there is a decay; one process skips keys that it leaves without weight, "
        "and ranks compute them");
  if (splits_lists && call.options.sparse_mask.may_be_gathered())
    refuse(
        "deterministic is true, but sparse_mask has lists or a neighbourhood, whose keys one process may "
        "gather and these ranks do not; ",
        expected_instead, " is expected");
}

int axes_of(ResultShape shape) {
  switch (shape) {
    case ResultShape::row:
    case ResultShape::key:
    case ResultShape::key_last:
      return 1;
    default:
      return 2;
  }
}

MutableTensorView result_rows(const MutableTensorView& view, ResultShape shape) {
  return axes_of(shape) == 1 ? view.unsqueeze(3) : view;
}

AttentionOutputs outputs_of(const Call& call, const AttentionOutputs& outputs, const Unit& unit) {
  AttentionOutputs own = outputs;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (MutableTensorView& view = result(own, i); view.data() != nullptr)
      view = view.narrow(0, unit.batch, 1).narrow(1, unit.kv_head * call.group(), call.group());
  return own;
}

AttentionOutputs rows_of(const AttentionOutputs& outputs, std::int64_t row, std::int64_t count) {
  AttentionOutputs some = outputs;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (MutableTensorView& view = result(some, i); view.data() != nullptr) view = view.narrow(2, row, count);
  return some;
}

AttentionOutputs row_results(const AttentionOutputs& outputs) { return some_results(outputs, true); }
AttentionOutputs sum_results(const AttentionOutputs& outputs) { return some_results(outputs, false); }
bool is_any_given(const AttentionOutputs& outputs) { return bits_of_results(outputs) != 0; }

}  // namespace heed::distributed
