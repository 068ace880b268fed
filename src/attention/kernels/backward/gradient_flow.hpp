// The five products of the gradients by matrix tiles, for a block of rows and a KV block. In the notation of
// backward.hpp, with 32 rows or keys per step:
//
//   s = q k^T    d = g v^T        over the depth: rows and panels, as in the forward pass
//   dq += ds k                    over keys: ds by rows
//   dk^T += q^T ds   dv^T += g^T p   over rows: p and ds by pairs of rows. The keys' gradients stay
//                                 transposed, tile after tile, until they are written
//
// Vectors work while tile products of others are under way, as in forward/tile_flow.hpp:
//
//   for each panel of keys, for each group of rows that may see it, for each strip of 32 keys of the panel:
//     s and d of the next strip                    } tile products, in this order; between them,
//     dk and dv of the panel before, a share       } this strip's s and d become weights and
//     dq of the chunk of panels before, a share    } score gradients
//
// So weights and score gradients of two panels, and score gradients by rows of two chunks, are kept: those
// that are written, and those that are operands. s and d of more than two strips would not stay in the
// first-level cache. Products of parts are longer: s and d alone take the time that the vectors need. dk, dv
// and dq are then computed at once, and one panel and one chunk are kept.
#pragma once

#include "attention/kernels/backward/matrix_gradients.hpp"

namespace heed::detail::HEED_ISA {

/// The panels of a block that some row of the group may see.
inline KeyRange seen_panels(const RowGroup& group, const Block& block) {
  const std::int64_t begin = larger(0, group.begin - block.key);
  const std::int64_t end = smaller(block.keys, group.end - block.key);
  return begin < end ? KeyRange{begin / kPanel, (end + kPanel - 1) / kPanel} : KeyRange{0, 0};
}

/// c += a x b, of `rows` x `columns` tiles, over `steps` steps.
struct TileProduct {
  TileMatrix a = {}, b = {}, c = {};
  std::int64_t steps = 0, rows = 0, columns = 0;
};

/// Adds 2 x 2 tiles to a sum, a vector per call. The tiles are contiguous.
class AddedTiles {
 public:
  HEED_INLINE void start(const float* from, const TileMatrix& to) {
    from_ = from;
    to_ = to;
    next_ = 0;
  }
  HEED_INLINE void operator()() {
    if (next_ == kVectors) return;
    float* to = tile_at<2>(to_, next_ / kMatrixRows) + next_ % kMatrixRows * to_.stride;
    store(to, add(load(to), load(from_ + next_++ * kLanes)));
  }
  HEED_INLINE void finish() {
    while (next_ < kVectors) operator()();
  }

 private:
  static constexpr int kVectors = 4 * kMatrixRows;
  const float* from_ = nullptr;
  TileMatrix to_ = {};
  int next_ = kVectors;
};

/// c += a x b, where every sum of 2 x 2 tiles begins at 0. It is added while the next one is computed.
/// `scratch` has room for two.
template <class Products>
void add_sums(const TileProduct& p, float* scratch) {
  constexpr std::int64_t kTile = kMatrixRows * kLanes;
  static_assert(Products::kCount == 1 || kGroupRows * kPanel >= 8 * kTile);  // scratch
  const auto sums = [&](bool odd) { return TileMatrix{scratch + 4 * kTile * odd, kLanes, kTile, 2 * kTile}; };
  bool odd = false;
  Interleaved<AddedTiles> way = {sums(true), {}};
  for (std::int64_t row = 0; row < p.rows; row += 2)
    for (std::int64_t column = 0; column < p.columns; column += 2, odd = !odd) {
      TileMatrix a = p.a, b = p.b, c = p.c;
      a.data += row * a.next;
      b.data += column * b.next;
      c.data += row * c.step + column * c.next;
      multiply_tiles_once<Products, 2, 2, false, Streams::a>(a, b, p.steps, sums(odd), way);
      way.work.finish();
      way.work.start(sums(odd).data, c);
    }
  store_tiles<MatrixTiles>(way.deferred);
  way.work.finish();
}

/// Products that wait for vector work to run beside them, 2 x 2 tiles at a time.
template <class Products, Streams kStreams>
class WaitingProducts {
 public:
  /// Adds a product. Its tiles in an odd row or column are computed at once. So are products of parts, whose
  /// results are summed separately first, in `scratch` (add_product(), add_sums()). No results may be left in
  /// tile registers.
  void add(const TileProduct& product, float* scratch) {
    TileProduct even = product;
    even.rows -= product.rows % 2;
    even.columns -= product.columns % 2;
    if constexpr (Products::kCount > 1) {
      if (product.steps > kStepsInCache || even.columns != product.columns) even.rows = 0;
      if (even.rows > 0) add_sums<Products>(even, scratch);
    }
    TileMatrix a = product.a, c = product.c;
    const auto skip = [](TileMatrix m, std::int64_t tiles) {
      m.data += tiles * m.next;
      return m;
    };
    for (std::int64_t row = 0; row < product.rows; row += 2, a.data += 2 * a.next, c.data += 2 * c.step) {
      const std::int64_t done = row < even.rows ? even.columns : 0;
      if (done == product.columns) continue;
      add_product<Products>({smaller(2, product.rows - row) * kMatrixRows, a, skip(product.b, done),
                             skip(c, done), product.steps, product.columns - done},
                            1.0f, scratch);
    }
    if (Products::kCount > 1 || even.rows == 0 || even.columns == 0) return;
    products_[count_++] = even;
    left_ += even.rows / 2 * (even.columns / 2);
  }
  /// The number of blocks of 2 x 2 tiles that are left.
  [[nodiscard]] std::int64_t left() const { return left_; }
  /// How often the next `blocks` blocks call `work`.
  [[nodiscard]] std::int64_t calls_of(std::int64_t blocks) const {
    std::int64_t calls = 0;
    std::int64_t done = row_ / 2 * (products_[first_].columns / 2) + column_ / 2;
    for (int i = first_; i < count_ && blocks > 0; ++i, done = 0) {
      const TileProduct& p = products_[i];
      const std::int64_t here = smaller(blocks, p.rows / 2 * (p.columns / 2) - done);
      calls += here * calls_between<Products>(p.steps);
      blocks -= here;
    }
    return calls;
  }

  /// Computes the next `blocks` blocks.
  template <class Way>
  HEED_INLINE void multiply(std::int64_t blocks, Way& way) {
    for (; blocks > 0 && left_ > 0; --blocks, --left_) {
      const TileProduct& p = products_[first_];
      TileMatrix a = p.a, b = p.b, c = p.c;
      a.data += row_ * a.next;
      b.data += column_ * b.next;
      c.data += row_ * c.step + column_ * c.next;
      multiply_tiles_once<Products, 2, 2, true, kStreams>(a, b, p.steps, c, way);
      if ((column_ += 2) < p.columns) continue;
      column_ = 0;
      if ((row_ += 2) < p.rows) continue;
      row_ = 0;
      if (++first_ == count_) first_ = count_ = 0;
    }
  }

 private:
  // The products of a chunk, one for each group; or of a panel, two for each run of groups that see it.
  TileProduct products_[kGradientRows / kGroupRows + 2];
  int first_ = 0, count_ = 0;
  std::int64_t row_ = 0, column_ = 0;  // of the first product, in tiles
  std::int64_t left_ = 0;
};

template <class Format>
class GradientFlow {
 public:
  GradientFlow(const BackwardTaskState& state, const Block& block, const HeadBits& bits)
      : state_(state), block_(block), bits_(bits) {}

  /// Adds the block's gradients. Returns false if a score exceeds what f32 holds.
  bool run() {
    return block_.flushed ? add_units<RecomputedRows<Format, true, false>>()
                          : add_units<RecomputedRows<Format, false, false>>();
  }

 private:
  /// A panel of the block, and a group of rows that may see it.
  struct Unit {
    std::int64_t panel, group;
  };
  /// The products of a group and a strip of a panel.
  struct Strip {
    Unit unit;
    int strip;  // kNoStrip: there is none
  };
  static constexpr int kNoStrip = -1;
  /// Numbers of blocks of the waiting products.
  struct Blocks {
    std::int64_t of_keys = 0, of_queries = 0;
  };
  using Elements = typename Format::Elements;
  using WeightsByElements = typename Format::WeightsByElements;
  using ElementsByWeights = typename Format::ElementsByWeights;

  static std::int64_t chunk_of(const Unit& unit) { return unit.panel / kChunkPanels; }
  [[nodiscard]] std::int64_t groups() const { return block_.rows / kGroupRows; }
  [[nodiscard]] std::int64_t key_of(std::int64_t panel) const { return block_.key + panel * kPanel; }
  [[nodiscard]] bool sees(std::int64_t group, std::int64_t panel) const {
    return touches(state_.w.group[group], key_of(panel));
  }

  /// Goes on to the next group that sees a panel. Returns false if there is none.
  bool advance(Unit& unit) const {
    for (;;) {
      if (++unit.group == groups()) {
        unit.group = 0;
        if (++unit.panel * kPanel >= block_.keys) return false;
      }
      if (sees(unit.group, unit.panel)) return true;
    }
  }
  /// How many groups see the unit's panel, from its group on.
  [[nodiscard]] std::int64_t units_left(const Unit& unit) const {
    std::int64_t count = 0;
    for (std::int64_t g = unit.group; g < groups(); ++g) count += sees(g, unit.panel) ? 1 : 0;
    return count;
  }

  template <class Rows>
  [[gnu::noinline]] bool add_units() {
    Unit unit = {0, -1};
    if (!advance(unit)) return true;
    // Where vector work is inlined, nothing takes its address: its members need not be in memory.
    Interleaved<Rows> way = {unused_tiles(), Rows(state_)};
    way.deferred = multiply_alone({unit, 0}, {}, way.deferred);
    for (bool more = true; more;) {
      Unit following = unit;
      more = advance(following);
      const bool ends_panel = !more || following.panel != unit.panel;
      const bool ends_chunk = !more || chunk_of(following) != chunk_of(unit);
      const Strip next = {following, more ? 0 : kNoStrip};
      if (is_whole(unit)) {
        recompute(unit, next, ends_chunk, way);
      } else {
        TileMatrix deferred = way.deferred;
        if (!recompute_cut(unit, next, ends_chunk, deferred)) return false;
        way.deferred = deferred;
      }
      if (ends_panel) {
        store_deferred(way.deferred);
        add_key_grads(unit.panel);
        panel_written_ = (panel_written_ + 1) % kGradientBuffers;
      }
      if (ends_chunk) {
        add_query_grads(chunk_of(unit));
        chunk_written_ = (chunk_written_ + 1) % kGradientBuffers;
      }
      unit = following;
    }
    way.deferred = multiply_alone({unit, kNoStrip}, {of_keys_.left(), of_queries_.left()}, way.deferred);
    store_deferred(way.deferred);
    return true;
  }

  /// Takes stores when nothing is deferred.
  [[nodiscard]] HEED_INLINE TileMatrix unused_tiles() { return result_rows(unused_, 2 * kLanes); }
  /// Stores results that are still in tile registers.
  HEED_INLINE void store_deferred(TileMatrix& deferred) {
    if constexpr (MatrixTiles::kHasRegisters) store_tiles<MatrixTiles>(deferred);
    deferred = unused_tiles();
  }

  /// Multiplies s and d of a strip, and so many blocks of the waiting products.
  template <class Way>
  HEED_INLINE void multiply(const Strip& strip, const Blocks& blocks, Way& way) {
    if (strip.strip != kNoStrip) multiply_strip(strip, way);
    of_keys_.multiply(blocks.of_keys, way);
    of_queries_.multiply(blocks.of_queries, way);
    if (blocks.of_keys + blocks.of_queries == 0) store_deferred(way.deferred);  // vectors read s and d next
    read_ = 1 - read_;
  }
  /// The same without vector work. Returns what is left in tile registers.
  [[gnu::noinline]] TileMatrix multiply_alone(const Strip& strip, const Blocks& blocks, TileMatrix deferred) {
    Interleaved<NoWork> way = {deferred, {}};
    multiply(strip, blocks, way);
    return way.deferred;
  }
  template <class Way>
  HEED_INLINE void multiply_strip(const Strip& strip, Way& way) {
    static_assert(!kHasMatrixTiles || (kStrips <= 2 && kLanes == 16));
    const BackwardWorkspace& w = state_.w;
    for (int i = 0; i < 2; ++i) {
      const std::int64_t lanes = lanes_of<Format>(i == 0 ? w.depth : w.value_depth);
      float* rows = (i == 0 ? w.query : w.grad) + strip.unit.group * kGroupRows * Format::kParts * lanes;
      float* panel = (i == 0 ? w.keys : w.values) + strip.unit.panel * kPanel * Format::kParts * lanes;
      TileMatrix b = by_columns<Format::kParts>(panel, lanes);
      b.data += 2 * strip.strip * b.next;
      float* to = i == 0 ? products_.scores(1 - read_) : products_.d(1 - read_);
      multiply_tiles_once<Elements, 2, 2, false, Streams::a>(
          by_rows<Format::kParts>(rows, lanes), b, lanes / kLanes,
          {to, kLanes, kGroupRows * kLanes, kMatrixRows * kLanes}, way);
    }
  }

  /// How often these products call `work`.
  [[nodiscard]] std::int64_t calls_of(const Strip& strip, const Blocks& blocks) const {
    const std::int64_t lanes = lanes_of<Format>(state_.w.depth) + lanes_of<Format>(state_.w.value_depth);
    return larger(1, (strip.strip != kNoStrip ? calls_between<Elements>(lanes / kLanes) : 0) +
                         of_keys_.calls_of(blocks.of_keys) + of_queries_.calls_of(blocks.of_queries));
  }

  /// Whether a unit's scores are scale times a product, and its rows may see all of the panel's keys.
  [[nodiscard]] bool is_whole(const Unit& unit) const {
    const RowGroup& group = state_.w.group[unit.group];
    const std::int64_t key = key_of(unit.panel);
    return !modifies(group) && group.full_begin <= key && group.full_end >= key + kPanel;
  }
  [[nodiscard]] bool modifies(const RowGroup& group) const {
    return state_.modifies_scores || group.scattered;
  }
  /// The share of the waiting products that runs beside a strip of a unit.
  [[nodiscard]] Blocks share_of(const Unit& unit, int strip, bool ends_chunk) const {
    const std::int64_t shares = kStrips * units_left(unit) - strip;
    const std::int64_t panels = kChunkPanels - 1 - unit.panel % kChunkPanels;  // that follow in the chunk
    const std::int64_t shares_of_chunk = ends_chunk ? kStrips - strip : shares + kStrips * panels * groups();
    return {(of_keys_.left() + shares - 1) / shares,
            (of_queries_.left() + shares_of_chunk - 1) / shares_of_chunk};
  }
  [[nodiscard]] HEED_INLINE static Strip strip_after(const Unit& unit, int strip, const Strip& next) {
    return strip + 1 == kStrips ? next : Strip{unit, strip + 1};
  }

  /// Turns a whole unit's products into weights and score gradients, while the products that come next are
  /// under way.
  template <class Rows>
  HEED_INLINE void recompute(const Unit& unit, const Strip& next, bool ends_chunk, Interleaved<Rows>& way) {
    const std::int64_t row = unit.group * kGroupRows;
    const GradientOperands to = operands_of(unit);
    set_terms(block_.row + row);
#pragma GCC unroll 1
    for (int strip = 0; strip < kStrips; ++strip) {
      const Blocks blocks = share_of(unit, strip, ends_chunk);
      const Strip product = strip_after(unit, strip, next);
      way.work.start(products_, read_, state_.w.query_row + row, key_of(unit.panel), 2 * strip, to,
                     calls_of(product, blocks));
      multiply(product, blocks, way);
      way.work.finish();
    }
    count_path(state_.call.forward.paths,
               block_.flushed ? Path::backward_matrix_flushed : Path::backward_matrix_tiles);
  }

  /// The same, without tile products beside it, for a panel that is cut or whose scores are modified. Returns
  /// false if a score exceeds what f32 holds.
  [[gnu::noinline]] bool recompute_cut(const Unit& unit, const Strip& next, bool ends_chunk,
                                       TileMatrix& deferred) {
    TileMatrix left = deferred;
    for (int strip = 0; strip < kStrips; ++strip) {
      const bool last = strip + 1 == kStrips;
      if (last && !recompute_alone(unit)) return false;
      left = multiply_alone(strip_after(unit, strip, next), share_of(unit, strip, ends_chunk), left);
      if (!last) store_deferred(left);
    }
    deferred = left;
    count_path(state_.call.forward.paths, modifies(state_.w.group[unit.group])
                                              ? Path::backward_matrix_modified
                                              : Path::backward_matrix_cut);
    return true;
  }
  bool recompute_alone(const Unit& unit) {
    const GroupPanel panel = {unit.group * kGroupRows, key_of(unit.panel)};
    const GradientOperands to = operands_of(unit);
    const int first = kStrips == 1 ? read_ : 0;
    if (modifies(state_.w.group[unit.group]))
      return recompute_generally<Format>(state_, block_, panel, bits_, products_, first, to);
    set_terms(block_.row + panel.row);
    RecomputedRows<Format, true, true> cut(state_);
    for (int strip = 0; strip < kStrips; ++strip) {
      cut.start(products_, first + strip, state_.w.query_row + panel.row, panel.key, 2 * strip, to, 1);
      cut.finish();
    }
    return true;
  }

  /// Sets what turns products into weights, for the group from row `row` of the segment on.
  void set_terms(std::int64_t row) {
    const BackwardWorkspace& w = state_.w;
    for (std::int64_t r = 0; r < kGroupRows; r += kLanes) {
      const Vf shift = load(w.shift + row + r);
      float* to = products_.terms[0] + r;
      store(to, sub(splat(kRound), shift));
      store(to + kGroupRows, add(shift, splat(kSmallestExponent)));
      store(to + 2 * kGroupRows, load(w.factor + row + r));
      store(to + 3 * kGroupRows, sub(zero(), load(w.delta + row + r)));
    }
  }

  // The operands that are written: weights and score gradients of a panel by columns, and score gradients of
  // a chunk by rows. Products that wait read the others.
  [[nodiscard]] float* panel_operands() const {
    return state_.w.panel_operands + panel_written_ * (2 * kPanelOperand);
  }
  [[nodiscard]] float* chunk_operand() const {
    return state_.w.chunk_operands + chunk_written_ * (kGradientRows * Format::kWeightParts * kKeyPairs);
  }
  [[nodiscard]] GradientOperands operands_of(const Unit& unit) const {
    const std::int64_t row = unit.group * kGroupRows;
    return {panel_operands() + row / 2 * kLanes, row_vector(chunk_operand(), Format::kWeightParts * kKeyPairs,
                                                            row, unit.panel % kChunkPanels * kPanel / 2)};
  }

  /// dv^T += g^T p and dk^T += q^T ds of a panel, over the groups that see it.
  void add_key_grads(std::int64_t panel) {
    const BackwardWorkspace& w = state_.w;
    const std::int64_t first = (block_.key - state_.task.key_begin) / kPanel + panel;  // within the task
    for (std::int64_t g = 0; g < groups(); ++g) {
      if (!sees(g, panel)) continue;
      std::int64_t end = g + 1;
      while (end < groups() && sees(end, panel)) ++end;
      const auto add = [&](float* transposed, float* pairs, std::int64_t columns, float* sums) {
        of_keys_.add({by_rows<Format::kParts>(transposed, kRowPairs).from(g),
                      by_columns<Format::kWeightParts>(pairs, kRowPairs).from(g),
                      key_sums_at(sums, first, 0, columns), end - g, columns / kLanes, kPanelVectors},
                     w.scratch);
      };
      if (state_.call.grad_value.data) add(w.grad_columns, panel_operands(), w.value_columns, w.value_grad);
      if (state_.call.grad_key.data)
        add(w.query_columns, panel_operands() + kPanelOperand, w.columns, w.key_grad);
      g = end;
    }
  }

  /// dq += ds k of a chunk. Score gradients exist from the panel of a group's first key to the panel of its
  /// last.
  void add_query_grads(std::int64_t chunk) {
    if (!wants_query_grads(state_)) return;
    const BackwardWorkspace& w = state_.w;
    const std::int64_t pairs = lanes_of<Format>(block_.keys);
    constexpr std::int64_t kSteps = kPanel / kStepKeys;
    for (std::int64_t g = 0; g < groups(); ++g) {
      const KeyRange seen = seen_panels(w.group[g], block_);
      const std::int64_t from = chunk * kChunkPanels;
      const std::int64_t begin = larger(seen.begin, from) * kSteps;
      const std::int64_t end = smaller(smaller(seen.end, from + kChunkPanels) * kSteps, pairs / kLanes);
      if (begin >= end) continue;
      const std::int64_t row = g * kGroupRows;
      float* rows = chunk_operand() + row * Format::kWeightParts * kKeyPairs;
      const TileMatrix b = {w.key_rows, kLanes, pairs * kLanes, kMatrixRows * kLanes, pairs * w.columns};
      of_queries_.add({by_rows<Format::kWeightParts>(rows, kKeyPairs).from(begin - from * kSteps),
                       b.from(begin), result_rows(w.query_grad + (block_.row + row) * w.columns, w.columns),
                       end - begin, kGroupRows / kMatrixRows, w.columns / kLanes},
                      w.scratch);
    }
  }

  const BackwardTaskState& state_;
  const Block& block_;
  const HeadBits& bits_;
  // A panel's keys, and its weights and score gradients, serve all rows; a group's score gradients serve all
  // columns of a chunk's keys.
  WaitingProducts<ElementsByWeights, Streams::a> of_keys_;
  WaitingProducts<WeightsByElements, Streams::b> of_queries_;
  int panel_written_ = 0, chunk_written_ = 0;  // of kGradientBuffers
  // The strip of products_ that vectors read, while tiles write the other. Two strips of a panel are 0 and 1.
  int read_ = 1;
  GroupProducts products_;
  alignas(64) float unused_[4 * kLanes * kLanes];
};

}  // namespace heed::detail::HEED_ISA
