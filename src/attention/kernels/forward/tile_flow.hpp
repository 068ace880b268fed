// The forward pass of a chunk of KV blocks by matrix tiles, for all groups of a task's rows. Tiles and
// vectors are units of their own in the processor, so a panel's softmax runs between the tile products of
// others:
//
//   for each group of rows, for each KV block, for each panel of keys that the group may see:
//     scores of the next panel = q k               } tile products, in this order; between them,
//     output += w v, of the KV block before        } the panel's scores become weights row by row
//
// The products with values are spread evenly over the panels. Rows that a mask cuts, or whose scores outgrow
// their shift, follow after the products (softmax_general). A group's output stays in the first-level cache
// from one KV block to the next, while packed keys and values come from the second.
#pragma once

#include "attention/kernels/softmax/matrix_tiles.hpp"
#include "attention/kernels/softmax/value_block.hpp"

namespace heed::detail::HEED_ISA {

template <class Format>
class TileFlow {
 public:
  /// `kv_blocks` [count] follow each other from key `key` on. `ends_groups`: candidates are inserted and the
  /// output is added to; otherwise only weights are computed, of one KV block.
  TileFlow(TaskState& state, std::int64_t key, const KvBlock* kv_blocks, std::int64_t count, bool ends_groups)
      : state_(state),
        key_(key),
        kv_blocks_(kv_blocks),
        count_(count),
        ends_groups_(ends_groups),
        streams_(state.call.key_length * (state.w.key_lanes + state.w.value_lanes) * 4 > kBytesInCache),
        deferred_(result_rows(unused_, 2 * kLanes)) {}

  void run() {
    Unit next = {-kGroupRows, count_ - 1, 0, 0, 0};
    bool more = advance(next);
    if (!more) return;
    NoWork none;
    multiply(&next, 0, none);
    while (more) {
      const Unit unit = next;
      more = advance(next);
      attend(unit, more ? &next : nullptr);
    }
    complete_values();
  }

 private:
  /// A group of rows, a KV block, and the panels that are left for both: [panel, end). `scores`: which buffer
  /// its scores have.
  struct Unit {
    std::int64_t row, kv_block, panel, end, scores;
  };
  /// A sequence whose packed keys and values have at most so many bytes is read from the first-level cache.
  static constexpr std::int64_t kBytesInCache = 32 << 10;
  using Elements = typename Format::Elements;
  using WeightsByElements = typename Format::WeightsByElements;

  [[nodiscard]] std::int64_t rows_of(const Unit& unit) const {
    return smaller(kGroupRows, state_.padded_rows - unit.row);
  }
  [[nodiscard]] std::int64_t key_of(const Unit& unit) const { return key_ + unit.kv_block * kKvBlock; }
  [[nodiscard]] PanelKeys panel_of(const Unit& unit) const {
    const KvBlock& kv_block = kv_blocks_[unit.kv_block];
    const std::int64_t done = unit.panel * kPanel;
    return {kv_block.keys + done * Format::kParts * lanes_of<Format>(state_.w.depth), key_of(unit) + done,
            smaller(kPanel, kv_block.count - done), done};
  }

  /// Goes on to the next panel that a group may see. Returns false if there is none.
  bool advance(Unit& unit) const {
    unit.scores ^= 1;
    if (++unit.panel < unit.end) return true;
    for (;;) {
      if (++unit.kv_block == count_) {
        unit.kv_block = 0;
        if ((unit.row += kGroupRows) >= state_.padded_rows) return false;
      }
      const KeyRange keys =
          written_keys(state_.w.group[unit.row / kGroupRows], key_of(unit), kv_blocks_[unit.kv_block].count);
      unit.panel = keys.begin / kPanel;
      unit.end = (keys.end + kPanel - 1) / kPanel;
      if (unit.panel < unit.end) return true;
    }
  }

  /// Stores results that are still in tile registers.
  void store_deferred() {
    if constexpr (MatrixTiles::kHasRegisters) store_tiles<MatrixTiles>(deferred_);
    deferred_ = result_rows(unused_, 2 * kLanes);
  }

  /// Multiplies the panel of a unit with its queries.
  template <class Work>
  void multiply_scores(const Unit& unit, Work& work) {
    static_assert(!kHasMatrixTiles || (kPanelVectors % 2 == 0 && kLanes == 16));
    const std::int64_t lanes = lanes_of<Format>(state_.w.depth);
    const TileMatrix a = {query_vector(state_.w, unit.row, 0), kLanes, kMatrixRows * state_.w.query_lanes,
                          kMatrixRows * kLanes, kMatrixRows * lanes};
    TileMatrix b = {const_cast<float*>(panel_of(unit).data), 16, Format::kParts * lanes * 16, 16 * 16,
                    lanes * 16};
    TileMatrix c = result_rows(scores_[unit.scores][0], kPanel);
    if (rows_of(unit) <= kMatrixRows) {
      store_deferred();
      return multiply_group<Elements, false>({kMatrixRows, a, b, c, lanes / 16, kPanelVectors});
    }
    Interleaved<Work> way = {deferred_, work, streams_};
    for (int column = 0; column < kPanelVectors; column += 2, b.data += 2 * b.next, c.data += 2 * c.next)
      multiply_tiles_once<Elements, 2, 2, false>(a, b, lanes / 16, c, way);
  }

  /// Computes the next `columns` columns of the waiting product.
  template <class Work>
  void multiply_values(std::int64_t columns, Work& work) {
    ValueProduct& p = values_;
    const std::int64_t end = smaller(p.columns, p.done + columns);
    if (p.done == end) return;
    constexpr bool kAdds = WeightsByElements::kCount == 1;  // see add_product()
    TileMatrix b = p.b, c = p.c;
    if (!kAdds) c.data = state_.w.product;
    const auto at = [&](const TileMatrix& m) {
      return TileMatrix{m.data + p.done * m.next, m.stride, m.next, m.step, m.part};
    };
    Interleaved<Work> way = {deferred_, work, streams_};
    for (; p.rows > kMatrixRows && p.done + 2 <= end; p.done += 2)
      multiply_tiles_once<WeightsByElements, 2, 2, kAdds>(p.a, at(b), p.steps, at(c), way);
    if (p.done < end) {
      store_deferred();
      multiply_group<WeightsByElements, kAdds>({p.rows, p.a, at(b), at(c), p.steps, end - p.done});
      p.done = end;
    }
    if (kAdds || p.done < p.columns) return;
    store_deferred();
    add_scaled(p.rows, c, p.c, p.columns, p.factor);
  }

  /// Multiplies the scores of the next unit, if there is one, and `columns` columns of the waiting product.
  template <class Work>
  void multiply(const Unit* next, std::int64_t columns, Work& work) {
    if (next != nullptr) multiply_scores(*next, work);
    const std::int64_t done = values_.done;
    multiply_values(columns, work);
    if (next != nullptr && values_.done == done) store_deferred();  // a softmax reads the scores next
  }

  /// How many columns of the waiting product run beside a unit: whole pairs, in equal shares over its group.
  [[nodiscard]] std::int64_t columns_due(const Unit& unit) const {
    const std::int64_t units = unit.end - unit.panel, pairs = (values_.columns - values_.done + 1) / 2;
    return 2 * ((pairs + units - 1) / units);
  }

  /// How often these products call `work` at most. A product of one row of tiles does not.
  [[nodiscard]] std::int64_t calls_of_work(const Unit* next, std::int64_t columns) const {
    const std::int64_t score_steps = lanes_of<Format>(state_.w.depth) / 16;
    return larger(1, (next != nullptr ? kPanelVectors / 2 * calls_between<Elements>(score_steps) : 0) +
                         columns / 2 * calls_between<WeightsByElements>(values_.steps));
  }

  /// Turns the scores of a unit into weights, while the products that come next are under way.
  void attend(const Unit& unit, const Unit* next) {
    const PanelKeys panel = panel_of(unit);
    const std::int64_t rows = rows_of(unit), columns = columns_due(unit);
    RowGroup& group = state_.w.group[unit.row / kGroupRows];
    MatrixScores& scores = scores_[unit.scores];
    std::uint32_t rest = kAllRows;
    if (panel.keys != kPanel) count_path(state_.call.paths, Path::tail);
    if (is_plain(state_, group, panel)) {
      with_softmax_rows<Format>(state_, [&]<class Rows>(Rows*) {
        Rows work(state_, scores, unit.row, rows, panel.done, calls_of_work(next, columns));
        multiply(next, columns, work);
        rest = work.finish();
      });
      count_path(state_.call.paths, Path::outgrown, __builtin_popcount(rest));
    } else {
      NoWork none;
      multiply(next, columns, none);
      count_path(state_.call.paths, Path::masked);
    }
    if (rest != 0 && row_of_values_ == unit.row) complete_values();  // before a shift scales the output
    softmax_by_memory<Format>(state_, unit.row, rows, rest, panel, scores, false);
    group.started = true;
    add_panel_statistics(state_, unit.row, rows, panel.key, state_.weights + panel.done, panel.keys);
    if (ends_groups_ && unit.panel + 1 == unit.end) end_kv_block(unit, rows);
  }

  void complete_values() {
    NoWork none;
    multiply_values(values_.columns, none);
    store_deferred();
  }

  /// Called when a group's weights of a KV block are complete. Their product with values waits for what is
  /// next.
  void end_kv_block(const Unit& unit, std::int64_t rows) {
    const KvBlock& kv_block = kv_blocks_[unit.kv_block];
    insert_candidates(state_, unit.row, rows, state_.weights, key_of(unit));
    values_ = {};
    if (!state_.call.output.data) return;
    drop_block(state_, unit.row, rows, key_of(unit), kv_block.count);
    values_ = value_product<Format>(state_, unit.row, rows, key_of(unit), kv_block);
    row_of_values_ = unit.row;
    float* first = state_.w.weight_parts;
    state_.weight_parts = state_.weight_parts == first ? first + Format::kWeightParts * kWeightPart : first;
  }

  TaskState& state_;
  const std::int64_t key_;
  const KvBlock* const kv_blocks_;
  const std::int64_t count_;
  const bool ends_groups_;
  const bool streams_;
  ValueProduct values_;              // the waiting product, of the KV block or the group before
  std::int64_t row_of_values_ = -1;  // its first row
  alignas(64) MatrixScores scores_[2];
  alignas(64) float unused_[4 * kLanes * kLanes];  // takes stores when nothing is deferred
  TileMatrix deferred_;
};

}  // namespace heed::detail::HEED_ISA
