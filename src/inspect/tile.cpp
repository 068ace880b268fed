// attention_tile(): a piece of the weights, from query, key and the lse of each row.
#include "inspect/tile.hpp"

#include "attention/check/checks.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/parallel.hpp"
#include "inspect/single_weights.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kTileRowsAtOnce = 16;

Dims lse_shape(const Problem& p, int rank) {
  if (rank == 2) return {p.query_length};
  if (rank == 3) return {p.heads, p.query_length};
  return {p.batch, p.heads, p.query_length};
}

void check_range(const char* name, std::int64_t begin, std::int64_t end, std::int64_t length,
                 const char* of) {
  if (begin < 0 || end < begin || end > length)
    refuse("range has ", name, " ", begin, " to ", end, "; a range within 0 to ", length, ", the length of ",
           of, ", is expected");
}

void check_choice(const char* name, std::int64_t index, std::int64_t count) {
  if (index < -1 || index >= count)
    refuse("range has ", name, " ", index, "; -1 (all) or 0 to ", count - 1, " is expected");
}

}  // namespace

Operand lse_operand(const Problem& p, const TensorView& lse, int rank) {
  const Dims shape = lse_shape(p, rank);
  if (lse.shape() != shape) refuse("lse has shape ", lse.shape(), "; ", shape, " is expected");
  if (lse.dtype() != DType::f32 && lse.dtype() != DType::f64)
    refuse("lse has dtype ", lse.dtype(), "; f32 or f64 is expected");
  check_memory("lse", lse);
  Operand operand{lse.data(), lse.dtype(), {}};
  for (int axis = 0; axis < lse.rank(); ++axis) operand.stride[axis + 4 - rank] = lse.strides()[axis];
  return operand;
}

void check_tile(const Problem& p, const TileRange& range) {
  check_range("rows", range.row_begin, range.row_end, p.query_length, "query");
  check_range("keys", range.key_begin, range.key_end, p.key_length, "key");
  check_choice("batch", range.batch, p.batch);
  check_choice("head", range.head, p.heads);
}

WeightTile make_tile(const Problem& p, const Operand& lse, const TileRange& range) {
  const std::int64_t batch = range.batch < 0 ? 0 : range.batch;
  const std::int64_t head = range.head < 0 ? 0 : range.head;
  const std::int64_t head_end = range.head < 0 ? p.heads : head + 1;
  const Dims shape{range.batch < 0 ? p.batch : 1, head_end - head, range.row_end - range.row_begin,
                   range.key_end - range.key_begin};
  WeightTile tile{range, Tensor(shape, p.dtype == DType::f64 ? DType::f64 : DType::f32),
                  Tensor(shape, DType::boolean)};
  if (tile.weights.count() == 0) return tile;
  const MutableTensorView weights = tile.weights.mutable_view();
  const Output target{
      weights.data(), weights.dtype(), {weights.strides()[0], weights.strides()[1], weights.strides()[2], 1}};
  auto* allowed = tile.allowed.mutable_view().data_as<bool>();

  const auto blocks = row_blocks(p, range.row_begin, range.row_end, head, head_end, kTileRowsAtOnce);
  parallel_for(std::ssize(blocks), p.threads, [&](std::int64_t index, int) {
    const RowBlock& block = blocks[static_cast<std::size_t>(index)];
    const Segment& segment = p.segments[block.segment];
    if (range.batch >= 0 && segment.batch != range.batch) return;
    RowWeights row_weights(p);
    for (std::int64_t i = block.begin; i < block.end; ++i) {
      const Row row = row_at(p, block, i);
      row_weights.set_row(segment, row, read(lse, row.batch, row.head, i));
      const KeyRange keys = keys_of(p, segment, row.position);
      for (std::int64_t j = std::max(keys.begin, range.key_begin); j < std::min(keys.end, range.key_end);
           ++j) {
        if (!row_weights.allows(j)) continue;
        const std::int64_t b = row.batch - batch;
        const std::int64_t h = row.head - head;
        allowed[((b * shape[1] + h) * shape[2] + i - range.row_begin) * shape[3] + j - range.key_begin] =
            true;
        write(target, row_weights.weight_of_allowed(j), b, h, i - range.row_begin, j - range.key_begin);
      }
    }
  });
  return tile;
}

Tensor allowed_of(const Problem& p) {
  Tensor allowed({p.batch, p.heads, p.query_length, p.key_length}, DType::boolean);
  const MutableTensorView view = allowed.mutable_view();
  const auto blocks = row_blocks(p, 0, p.query_length, 0, p.heads, kTileRowsAtOnce);
  parallel_for(std::ssize(blocks), p.threads, [&](std::int64_t index, int) {
    const RowBlock& block = blocks[static_cast<std::size_t>(index)];
    const Segment& segment = p.segments[block.segment];
    for (std::int64_t i = block.begin; i < block.end; ++i) {
      const Row row = row_at(p, block, i);
      bool* cells = &view.at<bool>(row.batch, row.head, i, 0);
      const KeyRange keys = keys_of(p, segment, row.position);
      for (std::int64_t j = keys.begin; j < keys.end; ++j) cells[j] = is_allowed(p, segment, row, j);
    }
  });
  return allowed;
}

}  // namespace heed::detail

namespace heed {

WeightTile attention_tile(const TensorView& query, const TensorView& key, const AttentionOptions& options,
                          const TensorView& lse, const TileRange& range) {
  // Weights do not depend on values; the keys serve as them.
  const detail::Problem problem = detail::check_call(query, key, key, options);
  const detail::Operand operand = detail::lse_operand(problem, lse, query.rank());
  detail::check_tile(problem, range);
  return detail::make_tile(problem, operand, range);
}

}  // namespace heed
