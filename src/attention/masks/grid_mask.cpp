#include "attention/masks/grid_mask.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "core/message.hpp"

namespace heed::detail {
namespace {

// Longer runs fill the panels of keys that kernels visit by the mask.
constexpr std::int64_t kShortRun = 48;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 48;

// The keys that a row at coordinate p sees on an axis. With dilation d, these are among p's own class: the
// coordinates that leave p's remainder by d. A window that would pass the border is moved inwards.
GridKeys keys_at(const GridAxis& axis, std::int64_t p) {
  const std::int64_t step = axis.dilation;
  std::int64_t rest = 0, at = p, count = axis.size;
  if (step > 1) {
    rest = p % step;
    at = p / step;
    count = (axis.size - rest + step - 1) / step;
  }
  const std::int64_t window = axis.window < 0 ? count : axis.window;
  std::int64_t begin, end;
  if (axis.causal) {
    begin = std::max<std::int64_t>(0, at - window + 1);
    end = at + 1;
  } else {
    begin = std::clamp<std::int64_t>(at - window / 2, 0, count - window);
    end = begin + window;
  }
  return {begin * step + rest, (end - 1) * step + rest, step};
}

// How much of keys [low, high] the rows at coordinates [first, last] see on an axis.
Coverage coverage_on(const GridAxis& axis, std::int64_t first, std::int64_t last, std::int64_t low,
                     std::int64_t high) {
  if (axis.dilation > 1 && first < last) {  // rows of other classes: only their reach is known
    const std::int64_t most = axis.window < 0 ? axis.size : (axis.window - 1) * axis.dilation;
    return low > last + most || high < first - most ? Coverage::empty : Coverage::cut;
  }
  // The first and last key of a row rise with the row.
  const GridKeys one = keys_at(axis, first), other = first == last ? one : keys_at(axis, last);
  if (one.first > high || other.last < low) return Coverage::empty;
  if (one.step == 1) return other.first <= low && one.last >= high ? Coverage::full : Coverage::cut;
  const std::int64_t next = std::max(one.first, low + (one.first - low % one.step + one.step) % one.step);
  if (next > std::min(high, one.last)) return Coverage::empty;
  return low == high ? Coverage::full : Coverage::cut;
}

// Cuts a range of tokens into at most five boxes: parts of lines and planes at its ends, whole ones between.
struct Boxes {
  const GridMask::Axes& axes;
  const std::array<std::int64_t, kMaxGridAxes + 1>& tokens_each;
  std::array<GridBox, 2 * kMaxGridAxes - 1> box;
  std::size_t count = 0;

  void add(std::int64_t begin, std::int64_t end, std::size_t axis, GridBox& outer) {
    const std::int64_t each = tokens_each[axis];
    std::int64_t first = begin / each, last = (end - 1) / each;
    const auto part = [&](std::int64_t at, std::int64_t from, std::int64_t to) {
      outer.low[axis] = outer.high[axis] = at;
      add(from, to, axis + 1, outer);
    };
    if (begin % each != 0 || (first == last && end - begin < each)) {
      part(first, begin - first * each, std::min(each, end - first * each));
      if (first++ == last) return;
    }
    const bool cut = end % each != 0;
    if (cut) --last;
    if (first <= last) {
      outer.low[axis] = first;
      outer.high[axis] = last;
      for (std::size_t inner = axis + 1; inner < axes.size(); ++inner) {
        outer.low[inner] = 0;
        outer.high[inner] = axes[inner].size - 1;
      }
      box[count++] = outer;
    }
    if (cut) part(last + 1, 0, end - (last + 1) * each);
  }
};

void check_axes(std::size_t axes) {
  if (axes < 1 || axes > kMaxGridAxes) refuse("the grid has ", axes, " axes; 1 to 3 are expected");
}

}  // namespace

GridMask::GridMask(const MaskShape& shape, std::int64_t first_query, std::vector<Axes> windows)
    : MaskPart(shape), first_query_(first_query), windows_(std::move(windows)) {
  const Axes& axes = windows_.front();
  tokens_each_[axes.size() - 1] = 1;
  for (std::size_t axis = axes.size() - 1; axis-- > 0;)
    tokens_each_[axis] = tokens_each_[axis + 1] * axes[axis + 1].size;
}

Coverage GridMask::coverage_of(const GridBox& rows, const GridBox& keys) const {
  Coverage any = Coverage::empty;
  for (const Axes& window : windows_) {
    Coverage all = Coverage::full;
    for (std::size_t axis = 0; axis < window.size() && all != Coverage::empty; ++axis)
      all = std::min(
          all, coverage_on(window[axis], rows.low[axis], rows.high[axis], keys.low[axis], keys.high[axis]));
    any = std::max(any, all);
  }
  return any;
}

Coverage GridMask::coverage(const MaskTile& tile) const {
  GridBox outer{};
  Boxes rows{windows_.front(), tokens_each_, {}}, keys{windows_.front(), tokens_each_, {}};
  rows.add(first_query_ + tile.row_begin, first_query_ + tile.row_end, 0, outer);
  keys.add(tile.key_begin, tile.key_end, 0, outer);
  bool any = false, all = true;
  for (std::size_t r = 0; r < rows.count; ++r)
    for (std::size_t k = 0; k < keys.count; ++k) {
      const Coverage one = coverage_of(rows.box[r], keys.box[k]);
      any = any || one != Coverage::empty;
      all = all && one == Coverage::full;
      if (any && !all) return Coverage::cut;
    }
  return all ? Coverage::full : Coverage::empty;
}

GridMask::RowKeys GridMask::keys_of_row(const Axes& window, std::int64_t row) const {
  RowKeys keys{};
  std::int64_t token = first_query_ + row;
  for (std::size_t axis = 0; axis < window.size(); ++axis) {
    keys[axis] = keys_at(window[axis], token / tokens_each_[axis]);
    token %= tokens_each_[axis];
  }
  return keys;
}

std::vector<std::int64_t> GridMask::lines_seen(std::int64_t row) const {
  const Axes& axes = windows_.front();
  const RowKeys keys = keys_of_row(axes, row);
  std::vector<std::int64_t> lines{0};
  for (std::size_t axis = 0; axis + 1 < axes.size(); ++axis) {
    std::vector<std::int64_t> longer;
    for (const std::int64_t line : lines)
      for (std::int64_t p = keys[axis].first; p <= keys[axis].last; p += keys[axis].step)
        longer.push_back(line * axes[axis].size + p);
    lines = std::move(longer);
  }
  return lines;
}

GridKeys GridMask::columns_seen(std::int64_t row) const {
  const GridAxis& axis = windows_.front().back();
  return keys_at(axis, token_of(row) % axis.size);
}

std::int64_t GridMask::most_lines() const {
  std::int64_t lines = 1;
  for (const GridAxis& axis : std::span(windows_.front()).first(windows_.front().size() - 1))
    lines *= axis.window < 0 ? axis.size : axis.window;
  return lines;
}

bool GridMask::sees_short_runs() const {
  const Axes& axes = windows_.front();
  const GridAxis& last = axes.back();
  return windows_.size() == 1 && axes.size() > 1 && shape().key_length == tokens_each_[0] * axes[0].size &&
         last.dilation == 1 && last.window > 0 && last.window <= kShortRun && 2 * last.window <= last.size;
}

std::pair<std::int64_t, std::int64_t> GridMask::next_run(const RowKeys& keys, std::int64_t token) const {
  const std::size_t axes = windows_.front().size();
  std::int64_t at = 0;  // the run's first token, by the axes so far
  for (std::size_t axis = 0; axis < axes;) {
    const std::int64_t each = tokens_each_[axis], p = (token - at) / each;
    const GridKeys& seen = keys[axis];
    const std::int64_t next =
        p <= seen.first ? seen.first : p + (seen.step - (p - seen.first) % seen.step) % seen.step;
    if (next > seen.last) {  // nothing more in this line: on to the next of the axis before
      if (axis == 0) return {INT64_MAX, INT64_MAX};
      token = at + tokens_each_[axis - 1];
      at = 0;
      axis = 0;
      continue;
    }
    at += next * each;
    token = std::max(token, at);
    ++axis;
  }
  return {at, keys[axes - 1].step == 1 ? at + keys[axes - 1].last - at % (windows_.front().back().size) + 1
                                       : at + 1};
}

void GridMask::restrict_row(const MaskTile& row, std::uint8_t* visible) const {
  std::array<RowKeys, kMaxGridAxes> keys;
  for (std::size_t n = 0; n < windows_.size(); ++n) keys[n] = keys_of_row(windows_[n], row.row_begin);
  for (std::int64_t done = row.key_begin; done < row.key_end;) {
    std::pair<std::int64_t, std::int64_t> run{INT64_MAX, INT64_MAX};
    for (std::size_t n = 0; n < windows_.size(); ++n) run = std::min(run, next_run(keys[n], done));
    const std::int64_t begin = std::min(run.first, row.key_end);
    std::memset(visible + (done - row.key_begin), 0, static_cast<std::size_t>(begin - done));
    done = run.second;
  }
}

std::size_t GridMask::bytes() const {
  return sizeof *this + windows_.size() * (sizeof(Axes) + windows_.front().size() * sizeof(GridAxis));
}

SparseMask grid_mask(std::vector<GridMask::Axes> windows, std::int64_t first_query, std::int64_t query_length,
                     std::int64_t key_length) {
  const GridMask::Axes& axes = windows.front();
  check_axes(axes.size());
  std::int64_t tokens = 1;
  for (std::size_t n = 0; n < axes.size(); ++n) {
    const GridAxis& axis = axes[n];
    if (axis.size < 1 || axis.size > kMaxTokens / tokens)
      refuse("size of axis ", n, " is ", axis.size,
             "; 1 or more, and at most 2^48 tokens in all, are expected");
    tokens *= axis.size;
  }
  for (const GridMask::Axes& window : windows)
    for (std::size_t n = 0; n < window.size(); ++n) {
      const GridAxis& axis = window[n];
      if (axis.size != axes[n].size)
        refuse("size of axis ", n, " is ", axes[n].size, " in one window and ", axis.size,
               " in another; one size is expected");
      if (axis.dilation < 1 || axis.dilation > axis.size)
        refuse("dilation of axis ", n, " is ", axis.dilation, "; 1 to its size ", axis.size, " is expected");
      if (axis.window != -1 && (axis.window < 1 || axis.window > axis.size / axis.dilation))
        refuse("window of axis ", n, " is ", axis.window, "; 1 to ", axis.size / axis.dilation,
               ", its size by its dilation, or -1 for all is expected");
    }
  if (first_query < 0 || first_query > tokens)
    refuse("first_query is ", first_query, "; 0 to ", tokens, ", the tokens of the grid, is expected");
  if (query_length < -1 || query_length > tokens - first_query)
    refuse("query_length is ", query_length, "; 0 to ", tokens - first_query,
           ", the tokens from first_query on, or -1 for all of them is expected");
  if (key_length < -1 || key_length > tokens)
    refuse("key_length is ", key_length, "; 0 to ", tokens, ", the tokens of the grid, or -1 is expected");
  const MaskShape shape{1, 1, query_length < 0 ? tokens - first_query : query_length,
                        key_length < 0 ? tokens : key_length};
  return SparseMask(std::make_shared<GridMask>(shape, first_query, std::move(windows)));
}

}  // namespace heed::detail

namespace heed::masks {

SparseMask neighbourhood(std::span<const GridAxis> axes, std::int64_t first_query, std::int64_t query_length,
                         std::int64_t key_length) {
  return detail::grid_mask({{axes.begin(), axes.end()}}, first_query, query_length, key_length);
}

SparseMask axial(std::span<const std::int64_t> sizes, std::int64_t axis, std::int64_t first_query,
                 std::int64_t query_length, std::int64_t key_length) {
  detail::check_axes(sizes.size());
  const auto axes = std::ssize(sizes);
  if (axis < -1 || axis >= axes)
    detail::refuse("axis is ", axis, "; 0 to ", axes - 1, ", or -1 for all, is expected");
  std::vector<detail::GridMask::Axes> windows;
  for (std::int64_t along = 0; along < axes; ++along) {
    if (axis != -1 && along != axis) continue;
    detail::GridMask::Axes& window = windows.emplace_back();
    for (std::int64_t n = 0; n < axes; ++n)
      window.push_back({sizes[static_cast<std::size_t>(n)], n == along ? -1 : 1});
  }
  return detail::grid_mask(std::move(windows), first_query, query_length, key_length);
}

}  // namespace heed::masks
