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
  using Elements = typename Format::Elements;
  using WeightsByElements = typename Format::WeightsByElements;
  // Products of parts are summed separately, see add_product().
  static constexpr bool kAdds = WeightsByElements::kCount == 1;
  static constexpr std::int64_t kBlockPanels = kKvBlock / kPanel;

  /// A group of rows, a KV block, and the panels of the KV block that the group may see: [begin, end).
  struct Block {
    std::int64_t row, kv_block, begin, end;
  };
  /// The scores of a group and a panel, whose operands are `query` and `keys`.
  struct ScoreProduct {
    std::int64_t rows = 0;  // 0: no product
    float* query = nullptr;
    float* keys = nullptr;
  };
  /// A product of weights and values that waits. It is computed in pieces: of a pair of columns,
  /// `piece_steps` steps. Only what differs between products is kept, so that it fits into registers.
  struct WaitingProduct {
    float *a = nullptr, *b = nullptr, *c = nullptr;  // where the next piece begins
    std::int64_t left = 0;                           // columns until the next steps begin
    std::int64_t pieces = 0, piece_steps = 0;        // how many are left, and their length
    std::int64_t rows = 0, columns = 0, steps = 0;
    std::int64_t b_next = 0, b_part = 0;  // floats from a tile of columns to the next, and to the next part
    float* result = nullptr;              // the first result
    float factor = 1;

    WaitingProduct() = default;
    explicit WaitingProduct(const ValueProduct& p)
        : a(p.a.data),
          b(p.b.data),
          c(p.c.data),
          left(p.columns),
          piece_steps(p.steps),
          rows(p.rows),
          columns(p.columns),
          steps(p.steps),
          b_next(p.b.next),
          b_part(p.b.part),
          result(p.c.data),
          factor(p.factor) {
      // Halves of the steps, if whole pairs of columns are fewer than panels: each panel needs a piece beside
      // it.
      const std::int64_t pairs = (columns + 1) / 2;
      const bool halves = kAdds && columns % 2 == 0 && pairs < kBlockPanels && steps > 2;
      if (halves) piece_steps = (steps + 1) / 2;
      pieces = rows > 0 ? pairs * (halves ? 2 : 1) : 0;
    }
    [[nodiscard]] HEED_INLINE TileMatrix results_at(float* data) const {
      return {data, columns * kLanes, kLanes, kMatrixRows * columns * kLanes};
    }
    /// The operands of the next piece, and its results. `product` takes results that are summed separately.
    [[nodiscard]] HEED_INLINE TileMatrix weights() const {
      return {a, kLanes, kMatrixRows * kLanes, kWeightStep, kWeightPart};
    }
    [[nodiscard]] HEED_INLINE TileMatrix values() const { return {b, 16, b_next, 16 * 16, b_part}; }
    [[nodiscard]] HEED_INLINE TileMatrix results(float* product) const {
      return results_at(kAdds ? c : product + (c - result));
    }
    HEED_INLINE void end_piece() {
      --pieces;
      b += 2 * b_next;
      c += 2 * kLanes;
      if ((left -= 2) > 0) return;
      a += piece_steps * kWeightStep;
      b += piece_steps * 16 * 16 - columns * b_next;
      c = result;
      piece_steps = steps - piece_steps;
      left = columns;
    }
  };
  /// The state that products change. A copy stays in registers between tile products, which may write any
  /// memory.
  struct Progress {
    WaitingProduct values;  // of the KV block or the group before
    int read = 1;           // the buffer of scores that a softmax reads
  };
  /// The layout of the operands of scores.
  struct ScoreLayout {
    std::int64_t steps, query_stride;
  };

  [[nodiscard]] std::int64_t rows_of(const Block& block) const {
    return smaller(kGroupRows, state_.padded_rows - block.row);
  }
  [[nodiscard]] std::int64_t key_of(const Block& block) const { return key_ + block.kv_block * kKvBlock; }
  [[nodiscard]] ScoreProduct product_of(const Block& block, std::int64_t panel) const {
    return {rows_of(block), query_vector(state_.w, block.row, 0),
            const_cast<float*>(kv_blocks_[block.kv_block].keys) + panel * panel_floats_};
  }
  [[nodiscard]] PanelKeys panel_at(const Block& block, std::int64_t p) const {
    const std::int64_t done = p * kPanel;
    return {nullptr, key_of(block) + done, smaller(kPanel, kv_blocks_[block.kv_block].count - done), done};
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
    multiply_alone(product_of(next, next.begin), 0);
    for (bool more = true; more;) {
      const Block block = next;
      const std::int64_t whole = whole_blocks_after(block);
      next.kv_block += whole;
      more = advance(next);
      attend<Rows>(block, whole, more ? product_of(next, next.begin) : ScoreProduct{});
    }
    complete_values();
  }

  /// How many KV blocks after `block` the group sees wholly, one after the other.
  [[nodiscard]] std::int64_t whole_blocks_after(const Block& block) const {
    const RowGroup& group = state_.w.group[block.row / kGroupRows];
    const std::int64_t key = key_of(block) + kKvBlock;
    if (!kAdds || !ends_groups_ || !state_.splits_weights || state_.modifies_scores ||
        has_panel_statistics(state_.call) || group.full_begin > key)
      return 0;
    const std::int64_t whole = kv_blocks_[count_ - 1].count == kKvBlock ? count_ : count_ - 1;
    return larger(0, smaller(whole - block.kv_block - 1, (group.full_end - key) / kKvBlock));
  }
  [[nodiscard]] static Block whole_block_after(const Block& block) {
    return {block.row, block.kv_block + 1, 0, kBlockPanels};
  }

  /// Stores results that are still in tile registers.
  HEED_INLINE void store_deferred(TileMatrix& deferred) {
    if constexpr (MatrixTiles::kHasRegisters) store_tiles<MatrixTiles>(deferred);
    deferred = result_rows(unused_, 2 * kLanes);
  }

  /// Multiplies a panel with queries, into the buffer that no softmax reads.
  template <class Way>
  HEED_INLINE void multiply_scores(const ScoreProduct& product, const ScoreLayout& layout, int to, Way& way) {
    static_assert(!kHasMatrixTiles || (kPanelVectors % 2 == 0 && kLanes == 16));
    const std::int64_t lanes = 16 * layout.steps;
    const TileMatrix a = {product.query, kLanes, layout.query_stride, kMatrixRows * kLanes,
                          kMatrixRows * lanes};
    TileMatrix b = {product.keys, 16, Format::kParts * lanes * 16, 16 * 16, lanes * 16};
    TileMatrix c = {scores_[to][0][0], kLanes, kGroupRows * kLanes, kMatrixRows * kLanes};
    if (product.rows <= kMatrixRows) {
      store_deferred(way.deferred);
      return multiply_group<Elements, false>({kMatrixRows, a, b, c, layout.steps, kPanelVectors});
    }
    for (int column = 0; column < kPanelVectors; column += 2, b.data += 2 * b.next, c.data += 2 * c.next)
      multiply_tiles_once<Elements, 2, 2, false>(a, b, layout.steps, c, way);
  }

  /// Computes pieces of one row or one column of tiles. Nothing runs between their tile products.
  [[gnu::noinline]] WaitingProduct multiply_rest(std::int64_t pieces, WaitingProduct p, TileMatrix deferred) {
    store_deferred(deferred);
    for (; pieces > 0; --pieces, p.end_piece())
      multiply_group<WeightsByElements, kAdds>(
          {p.rows, p.weights(), p.values(), p.results(state_.w.product), p.piece_steps, smaller(2, p.left)});
    return p;
  }

  /// Computes the next `pieces` pieces of the waiting product.
  template <class Way>
  HEED_INLINE void multiply_values(std::int64_t pieces, WaitingProduct& p, Way& way) {
    if (pieces == 0) return;
    for (; pieces > 0 && p.rows > kMatrixRows && p.left >= 2; --pieces, p.end_piece()) {
      const TileMatrix a = p.weights(), b = p.values(), c = p.results(state_.w.product);
      multiply_tiles_once<WeightsByElements, 2, 2, kAdds>(a, b, p.piece_steps, c, way);
    }
    if (pieces > 0) {
      p = multiply_rest(pieces, p, way.deferred);
      way.deferred = result_rows(unused_, 2 * kLanes);
    }
    if (kAdds || p.pieces > 0) return;
    store_deferred(way.deferred);
    add_scaled(p.rows, p.results_at(state_.w.product), p.results_at(p.result), p.columns, p.factor);
  }

  /// Multiplies the scores of the next panel, if there is one, and `pieces` of the waiting product.
  template <class Way>
  HEED_INLINE void multiply(const ScoreProduct& next, const ScoreLayout& layout, std::int64_t pieces,
                            Progress& progress, Way& way) {
    if (next.rows > 0) multiply_scores(next, layout, 1 - progress.read, way);
    multiply_values(pieces, progress.values, way);
    if (next.rows > 0 && pieces == 0) store_deferred(way.deferred);  // a softmax reads the scores next
    progress.read = 1 - progress.read;
  }
  void multiply_alone(const ScoreProduct& next, std::int64_t pieces) {
    Interleaved<NoWork> way = {deferred_, {}};
    multiply(next, layout_, pieces, progress_, way);
    deferred_ = way.deferred;
  }

  /// How often these products call between() at most. A product of one row of tiles does not.
  [[nodiscard]] HEED_INLINE static std::int64_t calls_of(const ScoreProduct& next, const ScoreLayout& layout,
                                                         std::int64_t pieces, const WaitingProduct& values) {
    return larger(1, (next.rows > 0 ? kPanelVectors / 2 * calls_between<Elements>(layout.steps) : 0) +
                         pieces * calls_between<WeightsByElements>(values.piece_steps));
  }

  /// How many pieces of the waiting product run beside one of `panels` panels, in equal shares. Divisions of
  /// 32 bits are fast.
  [[nodiscard]] HEED_INLINE static std::int64_t share_of(const WaitingProduct& values, std::int64_t panels) {
    const auto pieces = static_cast<std::uint32_t>(values.pieces), units = static_cast<std::uint32_t>(panels);
    return (pieces + units - 1) / units;
  }

  /// Turns the scores of a block's panels from `p` on into weights, while the products that come next are
  /// under way: of the block's next panel or `next`, and a share of the waiting product. It stops before a
  /// panel that is not plain. It stops after one if statistics are taken of each, and after one with rows
  /// whose scores outgrew their shift; it returns a bit for each. Inlined work calls nothing, so what it
  /// needs stays in registers.
  template <class Rows>
  [[gnu::noinline]] std::uint32_t attend_plain(const Block& block, std::int64_t& p, const ScoreProduct& next,
                                               const Rows& work) {
    const std::int64_t end = block.end;
    const RowGroup& group = state_.w.group[block.row / kGroupRows];
    const bool one = has_panel_statistics(state_.call);
    Interleaved<Rows> way = {deferred_, work};
    Progress progress = progress_;
    const ScoreLayout layout = layout_;
    const std::int64_t panel_floats = panel_floats_;
    ScoreProduct product = product_of(block, p);
    PanelKeys panel = panel_at(block, p);
    std::uint32_t outgrown = 0;
    std::int64_t at = p;
    do {
      const std::int64_t pieces = share_of(progress.values, end - at);
      product.keys += panel_floats;
      if (++at == end) product = next;
      MatrixScores& scores = scores_[progress.read];
      way.work.start(scores, panel, calls_of(product, layout, pieces, progress.values));
      multiply(product, layout, pieces, progress, way);
      outgrown = way.work.finish();
      if (way.work.keep_candidates()) insert_waiting(state_, block.row, kLongColumn);
      if (at == end) break;
      panel = panel_at(block, at);
    } while (outgrown == 0 && !one && is_plain(state_, group, panel));
    p = at;
    progress_ = progress;
    deferred_ = way.deferred;
    return outgrown;
  }

  /// A piece of a whole block's product: the offsets of its operands and of its results, in floats.
  struct Piece {
    std::int64_t a, b, c, steps;
  };
  static constexpr std::int64_t kMostPieces = 16;

  /// Whether attend_whole() takes `block` from panel `p` on, and the `whole` blocks after it. A product that
  /// waits must have the same pieces as theirs.
  [[nodiscard]] bool goes_whole(const Block& block, std::int64_t p, std::int64_t whole) const {
    const RowGroup& group = state_.w.group[block.row / kGroupRows];
    const WaitingProduct& waiting = progress_.values;
    return kAdds && whole > 0 && block.begin == 0 && group.full_begin <= key_of(block) + p * kPanel &&
           group.started && rows_of(block) > kMatrixRows && state_.w.value_columns / kLanes % 2 == 0 &&
           state_.w.value_columns / kLanes <= kMostPieces &&
           (waiting.pieces == 0 || (waiting.rows > kMatrixRows && waiting.steps == kKvBlock / kStepKeys));
  }

  /// attend_plain() for `block` from panel `p` on and for `whole` blocks after it, all of which the group
  /// sees wholly. It may leave out the very last panel. Tiles would wait for any chain of operations that
  /// leads from one panel to the next by way of memory. So the pieces of a block's product are listed before.
  template <class Rows>
  [[gnu::noinline]] std::uint32_t attend_whole(Block& block, std::int64_t& p, std::int64_t& whole,
                                               const ScoreProduct& next, const Rows& work) {
    const WaitingProduct of_block = values_of(block, kv_blocks_[block.kv_block]);
    const WaitingProduct waiting = progress_.values;
    WaitingProduct rest = of_block;
    Piece pieces[kMostPieces + 1];
    for (std::int64_t i = 0; i < of_block.pieces; ++i, rest.end_piece())
      pieces[i] = {rest.a - of_block.a, rest.b - of_block.b, rest.c - of_block.c, rest.piece_steps};
    pieces[of_block.pieces] = {};
    const Piece* piece = pieces + (of_block.pieces - waiting.pieces);
    ScoreProduct scores = product_of(block, p);
    scores.rows = kGroupRows;
    const ScoreLayout layout = layout_;
    const std::int64_t panel_floats = panel_floats_;
    const std::int64_t columns = of_block.columns, b_next = of_block.b_next, b_part = of_block.b_part;
    float *a = waiting.a - piece->a, *b = waiting.b - piece->b, *c = waiting.c - piece->c;
    Interleaved<Rows> way = {deferred_, work};
    const KvBlock *kv_block = kv_blocks_ + block.kv_block, *const last = kv_block + whole;
    std::int64_t done = p;  // panels of the block
    int read = progress_.read;
    std::uint32_t outgrown = 0;
    // The marks of a panel are read while the next one is multiplied, when their stores have ended.
    PanelCandidates previous = {};
    for (;;) {
      scores.keys += panel_floats;
      if (done + 1 == kBlockPanels) {
        if (kv_block != last) {
          scores.keys = const_cast<float*>(kv_block[1].keys);
        } else {
          if (next.rows <= kMatrixRows) break;
          scores.query = next.query;
          scores.keys = next.keys;
        }
      }
      const Piece* const end = pieces + (done + 1) * of_block.pieces / kBlockPanels;
      const std::int64_t key = key_ + (kv_block - kv_blocks_) * kKvBlock + done * kPanel;
      way.work.start(scores_[read], {nullptr, Rows::kMarksCandidates ? key : 0, kPanel, done * kPanel},
                     calls_of(scores, layout, larger(0, end - piece), of_block));
      multiply_scores(scores, layout, 1 - read, way);
      if (way.work.append_candidates(previous)) insert_waiting(state_, block.row, kLongColumn);
      if (piece >= end) store_deferred(way.deferred);  // a softmax reads the scores next
      for (; piece < end; ++piece) {
        const TileMatrix of_a = {a + piece->a, kLanes, kMatrixRows * kLanes, kWeightStep, kWeightPart};
        const TileMatrix of_b = {b + piece->b, 16, b_next, 16 * 16, b_part};
        const TileMatrix of_c = {c + piece->c, columns * kLanes, kLanes, kMatrixRows * columns * kLanes};
        multiply_tiles_once<WeightsByElements, 2, 2, true>(of_a, of_b, piece->steps, of_c, way);
      }
      outgrown = way.work.finish();
      if (Rows::kMarksCandidates) previous = way.work.candidates();
      read = 1 - read;
      ++done;
      if (outgrown != 0) break;
      if (done < kBlockPanels) continue;
      if (kv_block == last) break;
      a = way.work.swap_operands(state_.w.weight_parts);
      b = const_cast<float*>(kv_block->values);
      c = of_block.result;
      piece = pieces;
      done = 0;
      ++kv_block;
    }
    if (way.work.append_candidates(previous)) insert_waiting(state_, block.row, kLongColumn);
    p = done;
    if (kv_block != kv_blocks_ + block.kv_block) row_of_values_ = block.row;
    block.kv_block = kv_block - kv_blocks_;
    whole = last - kv_block;
    state_.weight_parts = way.work.operand();
    WaitingProduct& left = progress_.values = of_block;
    left.a = a;
    left.b = b;
    left.c = left.result = c;
    for (; piece != pieces; --piece) left.end_piece();
    progress_.read = read;
    deferred_ = way.deferred;
    return outgrown;
  }

  /// The same for one panel that is not plain. Its scores become weights after the products.
  template <class Rows>
  [[gnu::noinline]] std::uint32_t attend_cut(const Block& block, std::int64_t& p, const ScoreProduct& next) {
    MatrixScores& scores = scores_[progress_.read];
    const PanelKeys panel = panel_at(block, p);
    const std::int64_t pieces = share_of(progress_.values, block.end - p);
    multiply_alone(++p < block.end ? product_of(block, p) : next, pieces);
    count_path(state_.call.paths, Path::masked);
    if (panel.keys != kPanel) count_path(state_.call.paths, Path::tail);
    if (!is_cut_to_ranges(state_, state_.w.group[block.row / kGroupRows])) return kAllRows;
    insert_marked(block);
    typename Rows::OfRanges ranges(state_, block.row, rows_of(block), waits());
    ranges.start(scores, panel, 1);
    const std::uint32_t outgrown = ranges.finish();
    if (ranges.keep_candidates()) insert_waiting(state_, block.row, kLongColumn);
    return outgrown;
  }

  /// Turns the scores of a block's panels, and of the `whole` blocks that follow, into weights, while the
  /// products that come next are under way: `next` after the blocks' own.
  template <class Rows>
  void attend(Block block, std::int64_t whole, const ScoreProduct& next) {
    const std::int64_t rows = rows_of(block);
    RowGroup& group = state_.w.group[block.row / kGroupRows];
    for (std::int64_t p = block.begin;;) {
      const ScoreProduct& after = whole > 0 ? product_of(whole_block_after(block), 0) : next;
      const bool is_cut = !is_plain(state_, group, panel_at(block, p));
      std::uint32_t rest = 0;
      if (!is_cut) insert_marked(block);
      if (is_cut) {
        rest = attend_cut<Rows>(block, p, after);
      } else if (!goes_whole(block, p, whole)) {
        rest = attend_plain<Rows>(block, p, after, Rows(state_, block.row, rows, waits()));
      } else if constexpr (kAdds) {
        rest = attend_whole<Rows>(block, p, whole, next, Rows(state_, block.row, rows, waits()));
      }
      if (!is_cut) count_path(state_.call.paths, Path::outgrown, __builtin_popcount(rest));
      const PanelKeys panel = panel_at(block, p - 1);
      if (rest != 0) {
        if (row_of_values_ == block.row) complete_values();  // before a shift scales the output
        if (waits()) insert_waiting(state_, block.row, 1);   // likewise, before it scales the lists
        has_marked_ = true;
        softmax_by_memory<Format>(state_, block.row, rows, rest, panel, scores_[1 - progress_.read], false);
      }
      group.started = true;
      add_panel_statistics(state_, block.row, rows, panel.key, state_.weights + panel.done, panel.keys);
      if (p < block.end) continue;
      if (ends_groups_) end_kv_block(block, rows);
      if (whole == 0) return;
      block = whole_block_after(block);
      p = 0;
      --whole;
    }
  }

  /// Whether the candidates of plain panels wait in columns. Other panels mark their candidates. Keys are
  /// inserted in their order, so only one kind is kept at a time.
  [[nodiscard]] bool waits() const { return ends_groups_ && state_.call.top_k > 0; }
  void insert_marked(const Block& block) {
    if (has_marked_ && waits())
      insert_candidates(state_, block.row, rows_of(block), state_.weights, key_of(block));
    has_marked_ = false;
  }

  void complete_values() {
    Interleaved<NoWork> way = {deferred_, {}};
    multiply_values(progress_.values.pieces, progress_.values, way);
    store_deferred(way.deferred);
    deferred_ = way.deferred;
  }

  /// The product of a group's weights of a KV block with its values.
  [[nodiscard]] WaitingProduct values_of(const Block& block, const KvBlock& kv_block) {
    ValueProduct p;
    set_value_product<Format>(p, state_, block.row, rows_of(block), key_of(block), kv_block);
    return WaitingProduct(p);
  }

  /// Called when a group's weights of a KV block are complete. Their product with values waits for what is
  /// next.
  void end_kv_block(const Block& block, std::int64_t rows) {
    const KvBlock& kv_block = kv_blocks_[block.kv_block];
    insert_marked(block);
    if (waits()) insert_waiting(state_, block.row, 1);
    if (!state_.call.output.data) return;
    drop_block(state_, block.row, rows, key_of(block), kv_block.count);
    progress_.values = values_of(block, kv_block);
    row_of_values_ = block.row;
    state_.weight_parts = other_operand<Format>(state_.w.weight_parts, state_.weight_parts);
  }

  TaskState& state_;
  const std::int64_t key_;
  const KvBlock* const kv_blocks_;
  const std::int64_t count_;
  const bool ends_groups_;
  const ScoreLayout layout_ = {.steps = lanes_of<Format>(state_.w.depth) / 16,
                               .query_stride = state_.w.query_lanes * kMatrixRows};
  const std::int64_t panel_floats_ = kPanel * Format::kParts * 16 * layout_.steps;
  Progress progress_;
  std::int64_t row_of_values_ = -1;  // the first row of the waiting product
  bool has_marked_ = false;          // whether the block may have marked candidates
  alignas(64) MatrixScores scores_[2];
  alignas(64) float unused_[4 * kLanes * kLanes];  // takes stores when nothing is deferred
  TileMatrix deferred_;
};

}  // namespace heed::detail::HEED_ISA
