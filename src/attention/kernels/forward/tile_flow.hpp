// The forward pass of a chunk of KV blocks by matrix tiles, for all groups of a task's rows. Tiles and
// vectors are units of their own in the processor, so a panel's softmax runs between the tile products of
// others:
//
//   for each group of rows, for each KV block, for each panel of keys that the group may see:
//     scores of the next panel = q k               } tile products, in this order; between them,
//     output += w v, of the KV block before        } the panel's scores become weights row by row
//
// The products with values are spread evenly over the panels. Rows whose keys are a part of the panel, whose
// scores have modifiers or outgrow their shift, follow after the products: in registers if the keys are a
// range (OfRanges), otherwise by way of memory (softmax_general). A group's output stays in the first-level
// cache from one KV block to the next, while packed keys and values come from the second.
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
        deferred_(result_rows(unused_, 2 * kLanes)) {}

  void run() {
    Block first = {-kGroupRows, count_ - 1, 0, 0};
    if (!advance(first)) return;
    with_softmax_rows<Format>(state_, [&]<class Rows>(Rows*) { run<Rows>(first); });
  }

 private:
  /// A group of rows, a KV block, and the panels of the KV block that the group may see: [begin, end).
  struct Block {
    std::int64_t row, kv_block, begin, end;
  };
  /// The scores of a group and a panel, whose operands are `query` and `keys`.
  struct ScoreProduct {
    std::int64_t rows = 0;  // 0: no product
    float* query = nullptr;
    const float* keys = nullptr;
  };
  using Elements = typename Format::Elements;
  using WeightsByElements = typename Format::WeightsByElements;

  [[nodiscard]] std::int64_t rows_of(const Block& block) const {
    return smaller(kGroupRows, state_.padded_rows - block.row);
  }
  [[nodiscard]] std::int64_t key_of(const Block& block) const { return key_ + block.kv_block * kKvBlock; }
  [[nodiscard]] std::int64_t panel_lanes() const {
    return kPanel * Format::kParts * lanes_of<Format>(state_.w.depth);
  }
  [[nodiscard]] ScoreProduct product_of(const Block& block, std::int64_t panel) const {
    return {rows_of(block), query_vector(state_.w, block.row, 0),
            kv_blocks_[block.kv_block].keys + panel * panel_lanes()};
  }

  /// Goes on to the next block of which a group may see panels. Returns false if there is none.
  bool advance(Block& block) const {
    for (;;) {
      if (++block.kv_block == count_) {
        block.kv_block = 0;
        if ((block.row += kGroupRows) >= state_.padded_rows) return false;
      }
      const KeyRange keys = written_keys(state_.w.group[block.row / kGroupRows], key_of(block),
                                         kv_blocks_[block.kv_block].count);
      block.begin = keys.begin / kPanel;
      block.end = (keys.end + kPanel - 1) / kPanel;
      if (block.begin < block.end) return true;
    }
  }

  template <class Rows>
  void run(Block next) {
    NoWork none;
    multiply(product_of(next, next.begin), 0, none);
    for (bool more = true; more;) {
      const Block block = next;
      more = advance(next);
      attend<Rows>(block, more ? product_of(next, next.begin) : ScoreProduct{});
    }
    complete_values();
  }

  /// Stores results that are still in tile registers.
  void store_deferred() {
    if constexpr (MatrixTiles::kHasRegisters) store_tiles<MatrixTiles>(deferred_);
    deferred_ = result_rows(unused_, 2 * kLanes);
  }

  /// Multiplies a panel with queries, into the buffer that no softmax reads.
  template <class Work>
  HEED_INLINE void multiply_scores(const ScoreProduct& product, Work& work) {
    static_assert(!kHasMatrixTiles || (kPanelVectors % 2 == 0 && kLanes == 16));
    const std::int64_t lanes = lanes_of<Format>(state_.w.depth);
    const TileMatrix a = {product.query, kLanes, kMatrixRows * state_.w.query_lanes, kMatrixRows * kLanes,
                          kMatrixRows * lanes};
    TileMatrix b = {const_cast<float*>(product.keys), 16, Format::kParts * lanes * 16, 16 * 16, lanes * 16};
    TileMatrix c = {scores_[1 - read_][0][0], kLanes, kGroupRows * kLanes, kMatrixRows * kLanes};
    if (product.rows <= kMatrixRows) {
      store_deferred();
      return multiply_group<Elements, false>({kMatrixRows, a, b, c, lanes / 16, kPanelVectors});
    }
    Interleaved<Work> way = {deferred_, work};
    for (int column = 0; column < kPanelVectors; column += 2, b.data += 2 * b.next, c.data += 2 * c.next)
      multiply_tiles_once<Elements, 2, 2, false>(a, b, lanes / 16, c, way);
    work = way.work;
    deferred_ = way.deferred;
  }

  /// Computes the next `columns` columns of the waiting product.
  template <class Work>
  HEED_INLINE void multiply_values(std::int64_t columns, Work& work) {
    ValueProduct& p = values_;
    const std::int64_t end = smaller(p.columns, p.done + columns);
    if (p.done == end) return;
    constexpr bool kAdds = WeightsByElements::kCount == 1;  // see add_product()
    TileMatrix b = p.b, c = p.c;
    if (!kAdds) c.data = state_.w.product;
    const auto at = [&](const TileMatrix& m) {
      return TileMatrix{m.data + p.done * m.next, m.stride, m.next, m.step, m.part};
    };
    if (p.rows > kMatrixRows && p.done + 2 <= end) {
      Interleaved<Work> way = {deferred_, work};
      for (; p.done + 2 <= end; p.done += 2)
        multiply_tiles_once<WeightsByElements, 2, 2, kAdds>(p.a, at(b), p.steps, at(c), way);
      work = way.work;
      deferred_ = way.deferred;
    }
    if (p.done < end) {
      store_deferred();
      multiply_group<WeightsByElements, kAdds>({p.rows, p.a, at(b), at(c), p.steps, end - p.done});
      p.done = end;
    }
    if (kAdds || p.done < p.columns) return;
    store_deferred();
    add_scaled(p.rows, c, p.c, p.columns, p.factor);
  }

  /// Multiplies the scores of the next panel, if there is one, and `columns` columns of the waiting product.
  template <class Work>
  void multiply(const ScoreProduct& next, std::int64_t columns, Work& work) {
    if (next.rows > 0) multiply_scores(next, work);
    const std::int64_t done = values_.done;
    multiply_values(columns, work);
    if (next.rows > 0 && values_.done == done) store_deferred();  // a softmax reads the scores next
    read_ = 1 - read_;
  }

  /// How many columns of the waiting product run beside one of `units` panels: whole pairs, in equal shares.
  [[nodiscard]] std::int64_t columns_due(std::int64_t units) const {
    const std::int64_t pairs = (values_.columns - values_.done + 1) / 2;
    return 2 * ((pairs + units - 1) / units);
  }

  /// How often these products call `work` at most. A product of one row of tiles does not.
  [[nodiscard]] std::int64_t calls_of_work(const ScoreProduct& next, std::int64_t columns) const {
    const std::int64_t score_steps = lanes_of<Format>(state_.w.depth) / 16;
    return larger(1, (next.rows > 0 ? kPanelVectors / 2 * calls_between<Elements>(score_steps) : 0) +
                         columns / 2 * calls_between<WeightsByElements>(values_.steps));
  }

  /// Turns the scores of a block's panels into weights, while the products that come next are under way:
  /// `next` after the block's own.
  template <class Rows>
  void attend(const Block& block, const ScoreProduct& next) {
    const std::int64_t rows = rows_of(block), count = kv_blocks_[block.kv_block].count;
    RowGroup& group = state_.w.group[block.row / kGroupRows];
    Rows work(state_, block.row, rows);
    ScoreProduct product = product_of(block, block.begin);
    const std::int64_t step = panel_lanes();
    for (std::int64_t p = block.begin; p < block.end; ++p) {
      const std::int64_t done = p * kPanel, columns = columns_due(block.end - p);
      const PanelKeys panel = {product.keys, key_of(block) + done, smaller(kPanel, count - done), done};
      MatrixScores& scores = scores_[read_];
      product.keys += step;
      if (p + 1 == block.end) product = next;
      std::uint32_t rest = kAllRows;
      if (panel.keys != kPanel) count_path(state_.call.paths, Path::tail);
      if (is_plain(state_, group, panel)) {
        work.start(state_, scores, panel, calls_of_work(product, columns));
        multiply(product, columns, work);
        rest = work.finish();
        count_path(state_.call.paths, Path::outgrown, __builtin_popcount(rest));
      } else {
        NoWork none;
        multiply(product, columns, none);
        count_path(state_.call.paths, Path::masked);
        if (is_cut_to_ranges(state_, group)) {
          typename Rows::OfRanges ranges(state_, block.row, rows);
          ranges.start(state_, scores, panel, 1);
          rest = ranges.finish();
        }
      }
      if (state_.call.top_k > 0 && rest != kAllRows) keep_candidates(state_, block.row, rows, panel, scores);
      if (rest != 0) {
        if (row_of_values_ == block.row) complete_values();  // before a shift scales the output
        softmax_by_memory<Format>(state_, block.row, rows, rest, panel, scores, false);
      }
      group.started = true;
      add_panel_statistics(state_, block.row, rows, panel.key, state_.weights + done, panel.keys);
    }
    if (ends_groups_) end_kv_block(block, rows);
  }

  void complete_values() {
    NoWork none;
    multiply_values(values_.columns, none);
    store_deferred();
  }

  /// Called when a group's weights of a KV block are complete. Their product with values waits for what is
  /// next.
  void end_kv_block(const Block& block, std::int64_t rows) {
    const KvBlock& kv_block = kv_blocks_[block.kv_block];
    insert_candidates(state_, block.row, rows, state_.weights, key_of(block));
    values_ = {};
    if (!state_.call.output.data) return;
    drop_block(state_, block.row, rows, key_of(block), kv_block.count);
    values_ = value_product<Format>(state_, block.row, rows, key_of(block), kv_block);
    row_of_values_ = block.row;
    float* first = state_.w.weight_parts;
    state_.weight_parts = state_.weight_parts == first ? first + Format::kWeightParts * kWeightPart : first;
  }

  TaskState& state_;
  const std::int64_t key_;
  const KvBlock* const kv_blocks_;
  const std::int64_t count_;
  const bool ends_groups_;
  ValueProduct values_;              // the waiting product, of the KV block or the group before
  std::int64_t row_of_values_ = -1;  // its first row
  int read_ = 1;                     // the buffer of scores that a softmax reads
  alignas(64) MatrixScores scores_[2];
  alignas(64) float unused_[4 * kLanes * kLanes];  // takes stores when nothing is deferred
  TileMatrix deferred_;
};

}  // namespace heed::detail::HEED_ISA
