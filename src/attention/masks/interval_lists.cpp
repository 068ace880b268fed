#include "attention/masks/interval_lists.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace heed::detail {
namespace {

constexpr std::int64_t kChunkRows = 32;

const KeyInterval* first_after(const ListOfIntervals::View& list, std::int64_t key) {
  if (list.end - list.begin <= 4) {
    const KeyInterval* at = list.begin;
    while (at != list.end && at->end <= key) ++at;
    return at;
  }
  return std::upper_bound(list.begin, list.end, key,
                          [](std::int64_t k, const KeyInterval& interval) { return k < interval.end; });
}

bool meets(const ListOfIntervals::View& list, std::int64_t begin, std::int64_t end) {
  const KeyInterval* at = first_after(list, begin);
  return at != list.end && at->begin < end;
}

bool contains(const ListOfIntervals::View& list, std::int64_t begin, std::int64_t end) {
  const KeyInterval* at = first_after(list, begin);
  return at != list.end && at->begin <= begin && at->end >= end;
}

std::vector<KeyInterval> intersection(const std::vector<KeyInterval>& a, const ListOfIntervals::View& b) {
  std::vector<KeyInterval> both;
  const KeyInterval* other = b.begin;
  for (const KeyInterval& one : a) {
    while (other != b.end && other->end <= one.begin) ++other;
    for (const KeyInterval* at = other; at != b.end && at->begin < one.end; ++at)
      both.push_back({std::max(one.begin, at->begin), std::min(one.end, at->end)});
  }
  return both;
}

}  // namespace

void normalise(std::vector<KeyInterval>& intervals) {
  std::erase_if(intervals, [](const KeyInterval& x) { return x.begin >= x.end; });
  std::ranges::sort(intervals, {}, &KeyInterval::begin);
  std::size_t count = 0;
  for (const KeyInterval& one : intervals) {
    if (count > 0 && one.begin <= intervals[count - 1].end)
      intervals[count - 1].end = std::max(intervals[count - 1].end, one.end);
    else
      intervals[count++] = one;
  }
  intervals.resize(count);
}

void ListOfIntervals::append(const std::vector<KeyInterval>& list) {
  intervals_.insert(intervals_.end(), list.begin(), list.end());
  first_.push_back(intervals_.size());
}

void ListOfIntervals::shrink() {
  first_.shrink_to_fit();
  intervals_.shrink_to_fit();
}

std::size_t ListOfIntervals::bytes() const {
  return first_.capacity() * sizeof(std::size_t) + intervals_.capacity() * sizeof(KeyInterval);
}

IntervalLists::IntervalLists(const MaskShape& shape, std::int64_t rows_each, ListOfIntervals lists)
    : MaskPart(shape),
      rows_each_(rows_each),
      lists_each_(std::max<std::int64_t>(1, kChunkRows / rows_each)),
      lists_(std::move(lists)) {
  lists_.shrink();
  if (lists_each_ == 1 || lists_.size() == 0) return;  // each list is a chunk of its own
  for (std::int64_t plane = 0; plane < shape.planes(); ++plane)
    for (std::int64_t first = 0; first < lists_a_plane(); first += lists_each_) {
      const std::int64_t begin = plane * lists_a_plane() + first;
      const std::int64_t end = plane * lists_a_plane() + std::min(first + lists_each_, lists_a_plane());
      std::vector<KeyInterval> any, all(lists_[begin].begin, lists_[begin].end);
      for (std::int64_t list = begin; list < end; ++list) {
        any.insert(any.end(), lists_[list].begin, lists_[list].end);
        if (list > begin) all = intersection(all, lists_[list]);
      }
      normalise(any);
      any_.append(any);
      all_.append(all);
    }
  any_.shrink();
  all_.shrink();
}

std::int64_t IntervalLists::lists_a_plane() const {
  return (shape().query_length + rows_each_ - 1) / rows_each_;
}

std::int64_t IntervalLists::chunks_a_plane() const {
  return (lists_a_plane() + lists_each_ - 1) / lists_each_;
}

// Coverage by the lists [first, last) of a plane's chunk; lists are numbered over all planes.
Coverage IntervalLists::coverage_of_chunk(std::int64_t chunk, std::int64_t first, std::int64_t last,
                                          const MaskTile& tile) const {
  if (lists_each_ > 1) {
    if (!meets(any_[chunk], tile.key_begin, tile.key_end)) return Coverage::empty;
    if (contains(all_[chunk], tile.key_begin, tile.key_end)) return Coverage::full;
    if (last - first == lists_each_) return Coverage::cut;
  }
  bool any = false, all = true;
  for (std::int64_t list = first; list < last; ++list) {
    any = any || meets(lists_[list], tile.key_begin, tile.key_end);
    all = all && contains(lists_[list], tile.key_begin, tile.key_end);
    if (any && !all) return Coverage::cut;
  }
  return all ? Coverage::full : any ? Coverage::cut : Coverage::empty;
}

Coverage IntervalLists::coverage(const MaskTile& tile) const {
  const std::int64_t plane = tile.batch * shape().heads + tile.head;
  const std::int64_t begin = tile.row_begin / rows_each_, end = (tile.row_end - 1) / rows_each_ + 1;
  bool any = false, all = true;
  for (std::int64_t chunk = begin / lists_each_; chunk * lists_each_ < end; ++chunk) {
    const std::int64_t first = std::max(begin, chunk * lists_each_);
    const std::int64_t last = std::min(end, (chunk + 1) * lists_each_);
    const Coverage here = coverage_of_chunk(plane * chunks_a_plane() + chunk, plane * lists_a_plane() + first,
                                            plane * lists_a_plane() + last, tile);
    any = any || here != Coverage::empty;
    all = all && here == Coverage::full;
    if (any && !all) return Coverage::cut;
  }
  return all ? Coverage::full : Coverage::empty;
}

void IntervalLists::restrict_row(const MaskTile& row, std::uint8_t* visible) const {
  const std::int64_t plane = row.batch * shape().heads + row.head;
  const ListOfIntervals::View list = lists_[plane * lists_a_plane() + row.row_begin / rows_each_];
  std::int64_t done = row.key_begin;
  const auto forbid = [&](std::int64_t end) {
    if (end > done) std::memset(visible + (done - row.key_begin), 0, static_cast<std::size_t>(end - done));
  };
  for (const KeyInterval* at = first_after(list, row.key_begin); at != list.end && at->begin < row.key_end;
       ++at) {
    forbid(at->begin);
    done = at->end;
  }
  forbid(row.key_end);
}

std::size_t IntervalLists::bytes() const {
  return lists_.bytes() + any_.bytes() + all_.bytes() + sizeof *this;
}

}  // namespace heed::detail
