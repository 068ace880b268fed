// Merging of one word by BPE (Sennrich et al. 2016). It merges the neighbouring pair of lowest rank, the
// leftmost among equals, until no pair can merge. A heap of pairs over a linked list of symbols takes n log n
// steps for a word of n letters.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "text/models/bpe_merges.hpp"
#include "text/models/token_model.hpp"

namespace heed::detail {

class BpeWord {
 public:
  explicit BpeWord(std::size_t letters) {
    symbols_.reserve(letters);
    pairs_.reserve(letters);
  }

  /// Appends a symbol for the bytes [begin, end).
  void add(std::int32_t id, std::size_t begin, std::size_t end) {
    const auto place = static_cast<std::int32_t>(symbols_.size());
    symbols_.push_back(
        {id, place - 1, place + 1, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  }

  void merge(const BpeMerges& merges) {
    for (std::size_t left = 0; left + 1 < symbols_.size(); ++left)
      offer(merges, static_cast<std::int32_t>(left), static_cast<std::int32_t>(left) + 1);
    while (!pairs_.empty()) {
      std::pop_heap(pairs_.begin(), pairs_.end(), is_later);
      const Pair pair = pairs_.back();
      pairs_.pop_back();
      join(merges, pair);
    }
  }

  void put(std::vector<TokenPiece>& pieces) const {
    for (const Symbol& one : symbols_)
      if (one.id >= 0) pieces.push_back({one.id, one.begin, one.end});
  }

 private:
  struct Symbol {
    std::int32_t id;  // -1: merged into the one before
    std::int32_t before, after;
    std::uint32_t begin, end;
  };
  struct Pair {
    std::uint32_t rank;
    std::int32_t left;  // its index
    std::int32_t id;    // the merged symbol
  };
  static bool is_later(const Pair& a, const Pair& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }

  Symbol& at(std::int32_t place) { return symbols_[static_cast<std::size_t>(place)]; }
  bool is_in(std::int32_t place) const {
    return place >= 0 && static_cast<std::size_t>(place) < symbols_.size();
  }

  void offer(const BpeMerges& merges, std::int32_t left, std::int32_t right) {
    const BpeMerge* const found = merges.find(at(left).id, at(right).id);
    if (found == nullptr) return;
    pairs_.push_back({found->rank, left, found->id});
    std::push_heap(pairs_.begin(), pairs_.end(), is_later);
  }

  // Does nothing if one of the two has been merged since.
  void join(const BpeMerges& merges, const Pair& pair) {
    Symbol& left = at(pair.left);
    if (left.id < 0 || !is_in(left.after)) return;
    Symbol& right = at(left.after);
    const BpeMerge* const found = merges.find(left.id, right.id);
    if (found == nullptr || found->id != pair.id) return;
    left.id = pair.id;
    left.end = right.end;
    left.after = right.after;
    right.id = -1;
    if (is_in(left.after)) at(left.after).before = pair.left;
    if (is_in(left.before)) offer(merges, left.before, pair.left);
    if (is_in(left.after)) offer(merges, pair.left, left.after);
  }

  // Words of usual length only need memory on the stack.
  std::array<std::byte, 4096> stack_;
  std::pmr::monotonic_buffer_resource memory_{stack_.data(), stack_.size()};
  std::pmr::vector<Symbol> symbols_{&memory_};
  std::pmr::vector<Pair> pairs_{&memory_};
};

}  // namespace heed::detail
