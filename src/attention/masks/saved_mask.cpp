#include "attention/masks/saved_mask.hpp"

#include <algorithm>
#include <memory>

#include "attention/masks/interval_lists.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"

namespace heed::detail {
namespace {

constexpr std::size_t kMaxRuns = std::size_t{1} << 26;

}  // namespace

SavedMask saved_mask(const SparseMask& mask) {
  std::vector<std::int64_t> first, keys;
  for (std::int64_t b = 0; b < mask.batch(); ++b)
    for (std::int64_t h = 0; h < mask.heads(); ++h) {
      first.push_back(static_cast<std::int64_t>(keys.size() / 2));
      for (std::int64_t i = 0; i < mask.query_length(); ++i) {
        for (const auto& [begin, end] : mask.runs(b, h, i)) keys.insert(keys.end(), {begin, end});
        if (keys.size() / 2 > kMaxRuns)
          refuse("sparse_mask has more than 2^26 runs of keys, too many for a file; fewer are expected");
        first.push_back(static_cast<std::int64_t>(keys.size() / 2));
      }
    }
  return {Tensor::from<std::int64_t>(std::span<const std::int64_t>(first),
                                     {mask.batch(), mask.heads(), mask.query_length() + 1}),
          Tensor::from<std::int64_t>(std::span<const std::int64_t>(keys),
                                     {static_cast<std::int64_t>(keys.size() / 2), 2})};
}

SparseMask restored_runs(const TensorView& first, const TensorView& keys, std::int64_t key_length) {
  const std::int64_t rows = first.rank() == 3 ? std::max<std::int64_t>(0, first.size(2) - 1) : 0;
  return restored_lists(first, keys, 1, rows, key_length);
}

SparseMask restored_lists(const TensorView& first, const TensorView& keys, std::int64_t rows_each,
                          std::int64_t query_length, std::int64_t key_length) {
  const std::int64_t rows = query_length / rows_each + (query_length % rows_each != 0);
  if (first.rank() != 3 || first.size(0) < 1 || first.size(1) < 1 || first.size(2) != rows + 1)
    refuse(kMaskFirst, " has shape ", first.shape(), "; [B, H, ", rows, " + 1] is expected");
  if (keys.rank() != 2 || keys.size(1) != 2)
    refuse(kMaskKeys, " has shape ", keys.shape(), "; [N, 2] is expected");
  const std::vector<std::int64_t> at = whole_numbers_of(kMaskFirst, first),
                                  ends = whole_numbers_of(kMaskKeys, keys);
  ListOfIntervals lists;
  std::vector<KeyInterval> list;
  for (std::size_t plane = 0; plane < static_cast<std::size_t>(first.size(0) * first.size(1)); ++plane)
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
      const std::size_t place = plane * static_cast<std::size_t>(rows + 1) + i;
      if (at[place] < 0 || at[place] > at[place + 1] || at[place + 1] > keys.size(0))
        refuse(kMaskFirst, " has ", at[place], " before ", at[place + 1], "; non-decreasing numbers up to ",
               keys.size(0), " are expected");
      list.clear();
      for (std::int64_t n = at[place]; n < at[place + 1]; ++n) {
        const KeyInterval one{ends[static_cast<std::size_t>(2 * n)],
                              ends[static_cast<std::size_t>(2 * n + 1)]};
        if (one.begin < 0 || one.begin > one.end || one.end > key_length)
          refuse(kMaskKeys, " has keys ", one.begin, " to ", one.end, "; a range within 0 to ", key_length,
                 " is expected");
        list.push_back(one);
      }
      normalise(list);
      lists.append(list);
    }
  return SparseMask(std::make_shared<IntervalLists>(
      MaskShape{first.size(0), first.size(1), query_length, key_length}, rows_each, std::move(lists)));
}

}  // namespace heed::detail
