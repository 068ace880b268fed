// Masks for common patterns, as lists of intervals.
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "attention/masks/interval_lists.hpp"
#include "attention/problem/philox.hpp"
#include "core/message.hpp"
#include "heed/attention/masks.hpp"

namespace heed::masks {
namespace {

using detail::KeyInterval;
using detail::refuse;

constexpr std::int64_t kMaxLength = std::int64_t{1} << 48;

void check_number(const char* name, std::int64_t value, std::int64_t least, std::int64_t most = kMaxLength) {
  if (value < least || value > most) refuse(name, " is ", value, "; ", least, " to ", most, " is expected");
}

void check_lengths(std::int64_t query_length, std::int64_t key_length) {
  check_number("query_length", query_length, 0);
  check_number("key_length", key_length, 0);
}

// Builds a mask from rows. fill(i, list) appends the intervals of row i, in any order; they may exceed the
// keys.
template <class Fill>
SparseMask from_rows(std::int64_t query_length, std::int64_t key_length, Fill fill,
                     std::int64_t rows_each = 1) {
  return detail::with_memory_errors([&] {
    detail::ListOfIntervals lists;
    lists.reserve(query_length / rows_each);  // too many rows are refused before the first
    std::vector<KeyInterval> list;
    for (std::int64_t row = 0; row < query_length; row += rows_each) {
      list.clear();
      fill(row / rows_each, list);
      for (KeyInterval& one : list)
        one = {std::clamp<std::int64_t>(one.begin, 0, key_length),
               std::clamp<std::int64_t>(one.end, 0, key_length)};
      detail::normalise(list);
      lists.append(list);
    }
    const detail::MaskShape shape{1, 1, query_length, key_length};
    return SparseMask(std::make_shared<detail::IntervalLists>(shape, rows_each, std::move(lists)));
  });
}

std::int64_t sum_of(const char* name, std::span<const std::int64_t> lengths, std::int64_t sum) {
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    if (lengths[n] < 0 || lengths[n] > kMaxLength - sum)
      refuse(name, "[", n, "] is ", lengths[n], "; 0 or more, and at most 2^48 in total, are expected");
    sum += lengths[n];
  }
  return sum;
}

// Draws `count` of the untaken columns. Each candidate, in order, is chosen with probability count / left
// (Knuth, The Art of Computer Programming, volume 2, algorithm 3.4.2 S).
void draw(std::int64_t count, std::vector<char>& taken, std::uint64_t seed, std::int64_t row) {
  auto left = static_cast<std::int64_t>(std::ranges::count(taken, 0));
  count = std::min(count, left);
  for (std::size_t column = 0; column < taken.size() && count > 0; ++column) {
    if (taken[column] != 0) continue;
    const auto r = static_cast<std::uint64_t>(row);
    const detail::PhiloxBlock block = detail::philox(
        {detail::low_word(column), detail::high_word(column), detail::low_word(r), detail::high_word(r)},
        {detail::low_word(seed), detail::high_word(seed)});
    const double number = static_cast<double>(block[0]) * 0x1p-32;
    if (number * static_cast<double>(left--) >= static_cast<double>(count)) continue;
    taken[column] = 1;
    --count;
  }
}

}  // namespace

SparseMask prefix_lm(std::int64_t prefix, std::int64_t query_length, std::int64_t key_length) {
  check_lengths(query_length, key_length);
  check_number("prefix", prefix, 0);
  return from_rows(query_length, key_length, [&](std::int64_t i, std::vector<KeyInterval>& list) {
    list.push_back({0, std::max(prefix, i + 1)});
  });
}

SparseMask documents(std::span<const std::int64_t> lengths, bool causal) {
  const std::int64_t length = sum_of("lengths", lengths, 0);
  std::size_t document = 0;
  std::int64_t begin = 0;
  return from_rows(length, length, [&](std::int64_t i, std::vector<KeyInterval>& list) {
    while (i >= begin + lengths[document]) begin += lengths[document++];
    list.push_back({begin, causal ? i + 1 : begin + lengths[document]});
  });
}

SparseMask sliding_window(std::int64_t left, std::int64_t right, std::int64_t query_length,
                          std::int64_t key_length) {
  check_lengths(query_length, key_length);
  check_number("left", left, -1);
  check_number("right", right, -1);
  return from_rows(query_length, key_length, [&](std::int64_t i, std::vector<KeyInterval>& list) {
    list.push_back({left < 0 ? 0 : i - left, right < 0 ? key_length : i + right + 1});
  });
}

SparseMask sinks_and_window(std::int64_t sinks, std::int64_t window, std::int64_t query_length,
                            std::int64_t key_length) {
  check_lengths(query_length, key_length);
  check_number("sinks", sinks, 0);
  check_number("window", window, 0);
  return from_rows(query_length, key_length, [&](std::int64_t i, std::vector<KeyInterval>& list) {
    list.push_back({0, std::min(sinks, i + 1)});
    list.push_back({i + 1 - window, i + 1});
  });
}

SparseMask dilated(std::int64_t reach, std::int64_t step, std::int64_t query_length,
                   std::int64_t key_length) {
  check_lengths(query_length, key_length);
  check_number("reach", reach, 0, std::int64_t{1} << 20);
  check_number("step", step, 1, std::int64_t{1} << 28);
  return from_rows(query_length, key_length, [&](std::int64_t i, std::vector<KeyInterval>& list) {
    for (std::int64_t k = -reach; k <= reach; ++k) list.push_back({i + k * step, i + k * step + 1});
  });
}

SparseMask shared_question(std::int64_t question, std::span<const std::int64_t> answers) {
  check_number("question", question, 0);
  const std::int64_t length = sum_of("answers", answers, question);
  std::size_t answer = 0;
  std::int64_t begin = question;
  return from_rows(length, length, [&](std::int64_t i, std::vector<KeyInterval>& list) {
    if (i < question) {
      list.push_back({0, i + 1});
      return;
    }
    while (i >= begin + answers[answer]) begin += answers[answer++];
    list.push_back({0, question});
    list.push_back({begin, i + 1});
  });
}

SparseMask bigbird(std::int64_t block, std::int64_t global, std::int64_t window, std::int64_t random,
                   std::uint64_t seed, std::int64_t query_length, std::int64_t key_length) {
  check_lengths(query_length, key_length);
  check_number("block", block, 1);
  check_number("global", global, 0);
  check_number("window", window, 0);
  check_number("random", random, 0);
  const std::int64_t rows = (query_length + block - 1) / block, columns = (key_length + block - 1) / block;
  if (columns > 0 && rows > (std::int64_t{1} << 34) / columns)
    refuse("block is ", block, ", which makes ", rows, " x ", columns, " blocks; larger blocks are expected");
  std::vector<char> taken;
  return from_rows(
      query_length, key_length,
      [&](std::int64_t row, std::vector<KeyInterval>& list) {
        const bool whole = row < global || row >= rows - global;
        taken.assign(static_cast<std::size_t>(columns), whole ? 1 : 0);
        const auto take = [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t c = std::max<std::int64_t>(0, begin); c < std::min(columns, end); ++c)
            taken[static_cast<std::size_t>(c)] = 1;
        };
        take(0, std::min(global, columns));
        take(columns - std::min(global, columns), columns);
        take(row - window / 2, row + (window + 1) / 2);
        draw(random, taken, seed, row);
        for (std::int64_t c = 0; c < columns; ++c)
          if (taken[static_cast<std::size_t>(c)] != 0) list.push_back({c * block, (c + 1) * block});
      },
      block);
}

}  // namespace heed::masks
