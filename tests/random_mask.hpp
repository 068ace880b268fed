// Random masks in O(L) memory, each with the same mask as booleans, computed from the definitions alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "heed/attention/masks.hpp"
#include "random_call.hpp"

namespace heed::test {

/// NATTEN's definition on one axis. The class of p are the coordinates that leave p's remainder by the
/// dilation. p sees the run of `window` of them with the nearest centre; on a causal axis it sees the
/// last `window` up to p.
inline bool sees_on_axis(const GridAxis& axis, std::int64_t p, std::int64_t key) {
  if (key % axis.dilation != p % axis.dilation) return false;
  std::vector<std::int64_t> members;
  for (std::int64_t x = p % axis.dilation; x < axis.size; x += axis.dilation) members.push_back(x);
  const std::int64_t count = static_cast<std::int64_t>(members.size());
  const std::int64_t window = axis.window < 0 ? count : axis.window;
  if (axis.causal) {
    std::int64_t later = 0;  // members after the key, up to p
    for (const std::int64_t x : members) later += x > key && x <= p ? 1 : 0;
    return key <= p && later < window;
  }
  std::int64_t best = 0;
  const auto far = [&](std::int64_t begin) {
    const std::int64_t centre = begin + window / 2;
    return std::abs(p % axis.dilation + centre * axis.dilation - p);
  };
  for (std::int64_t begin = 0; begin + window <= count; ++begin)
    if (far(begin) < far(best)) best = begin;
  const std::int64_t at = key / axis.dilation;
  return at >= best && at < best + window;
}

inline bool sees_on_grid(const std::vector<GridAxis>& axes, std::int64_t i, std::int64_t j) {
  for (std::size_t n = axes.size(); n-- > 0; i /= axes[n].size, j /= axes[n].size)
    if (!sees_on_axis(axes[n], i % axes[n].size, j % axes[n].size)) return false;
  return true;
}

/// Whether two tokens differ in one coordinate at most: on axis `along`, or on any axis if it is -1.
inline bool is_on_line(const std::vector<std::int64_t>& sizes, std::int64_t along, std::int64_t i,
                       std::int64_t j) {
  int differing = 0;
  for (std::size_t n = sizes.size(); n-- > 0; i /= sizes[n], j /= sizes[n])
    if (i % sizes[n] != j % sizes[n]) {
      if (along >= 0 && static_cast<std::int64_t>(n) != along) return false;
      ++differing;
    }
  return differing <= 1;
}

struct RandomMask {
  std::string kind;
  SparseMask mask;
  Tensor dense;  ///< bool [B, H, Lq, Lk]
};

class MaskMaker {
 public:
  /// Makes masks for H = heads and Hkv = kv_heads.
  MaskMaker(Draw& draw, std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t queries,
            std::int64_t keys)
      : draw_(draw), batch_(batch), heads_(heads), kv_heads_(kv_heads), queries_(queries), keys_(keys) {}

  RandomMask make() { return make_by(&MaskMaker::add); }

  /// These make one mask of the named kind, and sometimes another mask too.
  RandomMask make_key_lists(Gather gather) {
    gather_ = gather;
    return make_by(&MaskMaker::add_key_lists);
  }
  RandomMask make_grid() { return make_by(&MaskMaker::add_grid); }

 private:
  using Allows = std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>;
  using Numbers = std::vector<std::int64_t>;

  RandomMask make_by(void (MaskMaker::*add_first)()) {
    made_.dense = Tensor({batch_, heads_, queries_, keys_}, DType::boolean);
    std::fill(bytes(), bytes() + made_.dense.count(), std::uint8_t{1});
    (this->*add_first)();
    if (draw_.chance(0.25)) add();
    return std::move(made_);
  }

  std::uint8_t* bytes() { return static_cast<std::uint8_t*>(made_.dense.mutable_view().data()); }

  // `allows` takes head indices of the mask.
  void join(const std::string& kind, const SparseMask& mask, const Allows& allows) {
    made_.kind += (made_.kind.empty() ? "" : " and ") + kind;
    made_.mask = made_.mask & mask;
    std::uint8_t* to = bytes();
    const std::int64_t each = heads_ / std::max<std::int64_t>(1, mask.heads());
    for (std::int64_t b = 0; b < batch_; ++b)
      for (std::int64_t h = 0; h < heads_; ++h)
        for (std::int64_t i = 0; i < queries_; ++i)
          for (std::int64_t j = 0; j < keys_; ++j, ++to)
            *to = *to != 0 && allows(mask.batch() == 1 ? 0 : b, h / each, i, j);
  }

  void add() {
    switch (draw_.between(0, 8)) {
      case 0:
        return add_rows();
      case 1:
        return add_columns();
      case 2:
        return add_slices();
      case 3:
        return add_blocks();
      case 4:
        return add_block_mask();
      case 5:
        return add_flash_mask();
      case 6:
        return add_key_lists();
      case 7:
        return add_grid();
      default:
        return add_pattern();
    }
  }

  // Draws the leading axes: none, [H] or [B, H], each of size 1 or full.
  void draw_planes() {
    mask_batch_ = mask_heads_ = 1;
    planes_ = {};
    const std::int64_t axes = batch_ > 0 && heads_ > 0 ? draw_.between(0, 2) : 0;
    if (axes == 2 && draw_.chance(0.5)) mask_batch_ = batch_;
    if (axes >= 1 && draw_.chance(0.7)) mask_heads_ = draw_.chance(0.5) ? heads_ : kv_heads_;
    if (axes == 2) planes_.push_back(mask_batch_);
    if (axes >= 1) planes_.push_back(mask_heads_);
  }
  std::size_t plane(std::int64_t b, std::int64_t h) const {
    return static_cast<std::size_t>(b * mask_heads_ + h);
  }

  Tensor integers(const Numbers& numbers, std::initializer_list<std::int64_t> axes) {
    Dims shape = planes_;
    for (const std::int64_t axis : axes) shape.push_back(axis);
    Tensor tensor = Tensor::from(std::span<const std::int64_t>(numbers), shape);
    return draw_.chance(0.5) ? Tensor::copy_of(tensor, DType::i32) : tensor;
  }

  // Two numbers from 0 to `most`: anywhere, around `middle`, or the whole range.
  std::pair<std::int64_t, std::int64_t> range(std::int64_t most, std::int64_t middle) {
    if (draw_.chance(0.15)) return {0, most};
    if (draw_.chance(0.4)) return {draw_.between(0, most), draw_.between(0, most)};
    const std::int64_t reach = std::max<std::int64_t>(1, most / 4);
    return {std::clamp<std::int64_t>(middle - draw_.between(0, reach), 0, most),
            std::clamp<std::int64_t>(middle + draw_.between(0, reach), 0, most)};
  }

  void add_rows() {
    draw_planes();
    const std::int64_t count = draw_.between(1, 3);
    Numbers numbers;
    for (std::int64_t p = 0; p < mask_batch_ * mask_heads_; ++p)
      for (std::int64_t i = 0; i < queries_; ++i)
        for (std::int64_t n = 0; n < count; ++n) {
          const auto [begin, end] = range(keys_, queries_ > 0 ? i * keys_ / queries_ : 0);
          numbers.insert(numbers.end(), {begin, end});
        }
    join("row intervals", SparseMask::row_intervals(integers(numbers, {queries_, count, 2}), keys_),
         [=, this](auto b, auto h, auto i, auto j) {
           const std::int64_t* row =
               numbers.data() + (static_cast<std::int64_t>(plane(b, h)) * queries_ + i) * count * 2;
           for (std::int64_t n = 0; n < count; ++n)
             if (j >= row[2 * n] && j < row[2 * n + 1]) return true;
           return false;
         });
  }

  Numbers column_numbers(std::int64_t count) {
    Numbers numbers;
    for (std::int64_t key = 0; key < mask_batch_ * mask_heads_ * keys_; ++key)
      for (std::int64_t n = 0; n < count; n += 2) {
        const auto [begin, end] = range(queries_, key % keys_ * queries_ / keys_);
        numbers.push_back(begin);
        if (count > 1) numbers.push_back(end);
      }
    return numbers;
  }

  void add_columns() {
    draw_planes();
    const std::int64_t count = draw_.pick<std::int64_t>({1, 2, 4});
    const Numbers numbers = column_numbers(count);
    join("column intervals", SparseMask::column_intervals(integers(numbers, {keys_, count}), queries_),
         [=, this](auto b, auto h, auto i, auto j) {
           const std::int64_t* key =
               numbers.data() + (static_cast<std::int64_t>(plane(b, h)) * keys_ + j) * count;
           if (count == 1) return i < key[0];
           for (std::int64_t n = 0; n < count; n += 2)
             if (i >= key[n] && i < key[n + 1]) return false;
           return true;
         });
  }

  void add_key_lists() {
    draw_planes();
    const std::int64_t room = std::min(keys_, draw_.pick<std::int64_t>({0, 1, 3, 20, 100, 100000}));
    Numbers numbers, all(static_cast<std::size_t>(keys_));
    std::iota(all.begin(), all.end(), 0);
    std::vector<char> listed(static_cast<std::size_t>(mask_batch_ * mask_heads_ * queries_ * keys_), 0);
    for (std::int64_t row = 0; row < mask_batch_ * mask_heads_ * queries_; ++row) {
      const std::int64_t count = draw_.chance(0.2) ? room : draw_.between(0, room);
      for (std::int64_t n = 0; n < room; ++n) {
        if (n < count)
          std::swap(all[static_cast<std::size_t>(n)],
                    all[static_cast<std::size_t>(draw_.between(n, keys_ - 1))]);
        const std::int64_t key = n < count ? all[static_cast<std::size_t>(n)] : -1;
        numbers.push_back(key);
        if (key >= 0) listed[static_cast<std::size_t>(row * keys_ + key)] = 1;
      }
    }
    join("key lists", SparseMask::key_lists(integers(numbers, {queries_, room}), keys_, {}, gather_),
         [=, this](auto b, auto h, auto i, auto j) {
           const auto row = static_cast<std::int64_t>(plane(b, h)) * queries_ + i;
           return listed[static_cast<std::size_t>(row * keys_ + j)] != 0;
         });
  }

  void add_flash_mask() {
    draw_planes();
    const bool causal = draw_.chance(0.5);
    const std::int64_t count = causal ? draw_.between(1, 2) : 2 * draw_.between(1, 2);
    const Numbers numbers = column_numbers(count);
    join("FlashMask", SparseMask::from_flash_mask(integers(numbers, {keys_, count}), causal, queries_),
         [=, this](auto b, auto h, auto i, auto j) {
           const std::int64_t* key =
               numbers.data() + (static_cast<std::int64_t>(plane(b, h)) * keys_ + j) * count;
           if (causal) return j <= i && !(i >= key[0] && (count == 1 || i < key[1]));
           if (count == 2) return i < key[0] && i >= key[1];
           return !(i >= key[0] && i < key[1]) && !(i >= key[2] && i < key[3]);
         });
  }

  void add_slices() {
    std::vector<MaskSlice> slices;
    for (std::int64_t n = draw_.between(0, 6); n > 0; --n) {
      auto [q0, q1] = range(queries_, draw_.between(0, queries_));
      auto [k0, k1] = range(keys_, draw_.between(0, keys_));
      if (q0 > q1) std::swap(q0, q1);
      if (k0 > k1) std::swap(k0, k1);
      slices.push_back({q0, q1, k0, k1, static_cast<SliceKind>(draw_.between(0, 3))});
    }
    join("slices", SparseMask::slices(slices, queries_, keys_), [=](auto, auto, auto i, auto j) {
      for (const MaskSlice& s : slices) {
        if (i < s.query_begin || i >= s.query_end || j < s.key_begin || j >= s.key_end) continue;
        const bool causal = s.kind == SliceKind::causal || s.kind == SliceKind::both_causal;
        const bool inverse = s.kind == SliceKind::inverse_causal || s.kind == SliceKind::both_causal;
        if ((!causal || j - s.key_end <= i - s.query_end) &&
            (!inverse || j - s.key_begin >= i - s.query_begin))
          return true;
      }
      return false;
    });
  }

  std::int64_t block_size() { return draw_.pick<std::int64_t>({1, 3, 16, 20, 64, 100, 128}); }

  void add_blocks() {
    const std::int64_t rows_each = block_size(), keys_each = block_size();
    const std::int64_t rows = (queries_ + rows_each - 1) / rows_each,
                       columns = (keys_ + keys_each - 1) / keys_each;
    const double density = draw_.pick<double>({0.1, 0.5, 0.9});
    Numbers offsets{0}, indices;
    std::vector<char> listed(static_cast<std::size_t>(rows * columns));
    for (std::int64_t at = 0; at < rows * columns; ++at) {
      listed[static_cast<std::size_t>(at)] = draw_.chance(density);
      if (listed[static_cast<std::size_t>(at)] != 0) indices.push_back(at % columns);
      if (at % columns == columns - 1) offsets.push_back(static_cast<std::int64_t>(indices.size()));
    }
    offsets.resize(static_cast<std::size_t>(rows + 1), 0);
    planes_ = {};
    join("blocks",
         SparseMask::blocks(integers(offsets, {rows + 1}),
                            integers(indices, {static_cast<std::int64_t>(indices.size())}), rows_each,
                            keys_each, queries_, keys_),
         [=](auto, auto, auto i, auto j) {
           return listed[static_cast<std::size_t>(i / rows_each * columns + j / keys_each)] != 0;
         });
  }

  // A block mask as FlexAttention has it: each block is full, partial or not listed.
  void add_block_mask() {
    draw_planes();
    const std::int64_t rows_each = block_size(), keys_each = block_size();
    const std::int64_t rows = (queries_ + rows_each - 1) / rows_each,
                       columns = (keys_ + keys_each - 1) / keys_each;
    const std::int64_t planes = mask_batch_ * mask_heads_;
    std::vector<char> allowed(static_cast<std::size_t>(planes * queries_ * keys_), 0);
    Numbers counts, indices, full_counts, full_indices, order;
    for (std::int64_t p = 0; p < planes; ++p)
      for (std::int64_t r = 0; r < rows; ++r) {
        Numbers partial, full;
        for (std::int64_t c = 0; c < columns; ++c) {
          const std::int64_t what = draw_.between(0, 2);
          if (what > 0) (what == 1 ? partial : full).push_back(c);
          if (what == 1) order.push_back((p * rows + r) * columns + c);
        }
        counts.push_back(static_cast<std::int64_t>(partial.size()));
        full_counts.push_back(static_cast<std::int64_t>(full.size()));
        for (const std::int64_t c : full)
          fill_block(allowed, p, r * rows_each, rows_each, c * keys_each, keys_each);
        partial.resize(static_cast<std::size_t>(columns), 77777);  // entries beyond the count are arbitrary
        full.resize(static_cast<std::size_t>(columns), -1);
        indices.insert(indices.end(), partial.begin(), partial.end());
        full_indices.insert(full_indices.end(), full.begin(), full.end());
      }
    Tensor bits({static_cast<std::int64_t>(order.size()), rows_each, keys_each}, DType::boolean);
    auto* bit = static_cast<std::uint8_t*>(bits.mutable_view().data());
    for (const std::int64_t at : order)
      for (std::int64_t r = 0; r < rows_each; ++r)
        for (std::int64_t k = 0; k < keys_each; ++k, ++bit) {
          *bit = draw_.chance(0.5) ? 1 : 0;
          const std::int64_t i = at / columns % rows * rows_each + r, j = at % columns * keys_each + k;
          if (*bit != 0 && i < queries_ && j < keys_)
            allowed[static_cast<std::size_t>((at / columns / rows * queries_ + i) * keys_ + j)] = 1;
        }
    const Tensor count = integers(counts, {rows}), index = integers(indices, {rows, columns});
    const Tensor full_count = integers(full_counts, {rows}),
                 full_index = integers(full_indices, {rows, columns});
    const BlockMaskView view{.kv_num_blocks = count,
                             .kv_indices = index,
                             .full_kv_num_blocks = full_count,
                             .full_kv_indices = full_index,
                             .partial = bits,
                             .query_block = rows_each,
                             .key_block = keys_each};
    join("BlockMask", SparseMask::from_block_mask(view, queries_, keys_),
         [=, this](auto b, auto h, auto i, auto j) {
           return allowed[(plane(b, h) * static_cast<std::size_t>(queries_) + static_cast<std::size_t>(i)) *
                              static_cast<std::size_t>(keys_) +
                          static_cast<std::size_t>(j)] != 0;
         });
  }

  void fill_block(std::vector<char>& allowed, std::int64_t plane, std::int64_t row, std::int64_t rows,
                  std::int64_t key, std::int64_t keys) const {
    for (std::int64_t i = row; i < std::min(queries_, row + rows); ++i)
      for (std::int64_t j = key; j < std::min(keys_, key + keys); ++j)
        allowed[static_cast<std::size_t>((plane * queries_ + i) * keys_ + j)] = 1;
  }

  // A grid of one to three axes that has all queries from the first on, and all keys.
  void add_grid() {
    std::vector<GridAxis> axes(static_cast<std::size_t>(draw_.between(1, 3)));
    const std::int64_t first = draw_.between(0, 30), least = std::max(first + queries_, keys_);
    std::int64_t tokens = 1;
    for (std::size_t n = axes.size(); n-- > 1; tokens *= axes[n].size) axes[n].size = draw_.between(1, 40);
    axes[0].size = std::max<std::int64_t>(1, (least + tokens - 1) / tokens);
    for (GridAxis& axis : axes) {
      if (draw_.chance(0.3)) axis.dilation = draw_.between(1, std::min<std::int64_t>(axis.size, 4));
      axis.window = draw_.chance(0.2) ? -1 : draw_.between(1, axis.size / axis.dilation);
      axis.causal = draw_.chance(0.3);
    }
    if (draw_.chance(0.7))
      return join("neighbourhood", masks::neighbourhood(axes, first, queries_, keys_),
                  [=](auto, auto, auto i, auto j) { return sees_on_grid(axes, first + i, j); });
    const std::int64_t along = draw_.between(-1, static_cast<std::int64_t>(axes.size()) - 1);
    Numbers sizes;
    for (const GridAxis& axis : axes) sizes.push_back(axis.size);
    join("axial", masks::axial(sizes, along, first, queries_, keys_),
         [=](auto, auto, auto i, auto j) { return is_on_line(sizes, along, first + i, j); });
  }

  void add_pattern() {
    const std::int64_t a = draw_.between(0, 40), b = draw_.between(1, 40);
    switch (draw_.between(0, 4)) {
      case 0:
        return join("prefix_lm", masks::prefix_lm(a, queries_, keys_),
                    [=](auto, auto, auto i, auto j) { return j < a || j <= i; });
      case 1:
        return join(
            "sliding_window", masks::sliding_window(a - 1, b - 1, queries_, keys_),
            [=](auto, auto, auto i, auto j) { return (a == 0 || j >= i - (a - 1)) && j <= i + b - 1; });
      case 2:
        return join("sinks_and_window", masks::sinks_and_window(a, b, queries_, keys_),
                    [=](auto, auto, auto i, auto j) { return j <= i && (j < a || j > i - b); });
      case 3:
        return join("dilated", masks::dilated(a, b, queries_, keys_), [=](auto, auto, auto i, auto j) {
          const std::int64_t gap = std::abs(i - j);
          return gap % b == 0 && gap / b <= a;
        });
      default:
        if (queries_ != keys_) return;
        return draw_.chance(0.5) ? add_documents() : add_shared_question();
    }
  }

  Numbers cuts() {
    Numbers ends{0, queries_};
    for (std::int64_t n = draw_.between(0, 4); n > 0; --n) ends.push_back(draw_.between(0, queries_));
    std::sort(ends.begin(), ends.end());
    return ends;
  }
  static Numbers lengths_of(const Numbers& cuts) {
    Numbers lengths;
    for (std::size_t n = 1; n < cuts.size(); ++n) lengths.push_back(cuts[n] - cuts[n - 1]);
    return lengths;
  }
  // The number of the piece that contains token i.
  static std::int64_t piece_of(const Numbers& cuts, std::int64_t i) {
    return std::upper_bound(cuts.begin(), cuts.end(), i) - cuts.begin();
  }

  void add_documents() {
    const Numbers ends = cuts();
    const bool causal = draw_.chance(0.5);
    join("documents", masks::documents(lengths_of(ends), causal), [=](auto, auto, auto i, auto j) {
      return piece_of(ends, i) == piece_of(ends, j) && (!causal || j <= i);
    });
  }

  void add_shared_question() {
    const Numbers ends = cuts();
    Numbers answers = lengths_of(ends);
    const std::int64_t question = answers.front();
    answers.erase(answers.begin());
    join("shared_question", masks::shared_question(question, answers), [=](auto, auto, auto i, auto j) {
      return j <= i && (j < question || piece_of(ends, i) == piece_of(ends, j));
    });
  }

  Draw& draw_;
  std::int64_t batch_, heads_, kv_heads_, queries_, keys_;
  std::int64_t mask_batch_ = 1, mask_heads_ = 1;
  Gather gather_ = Gather::automatic;
  Dims planes_;
  RandomMask made_;
};

}  // namespace heed::test
