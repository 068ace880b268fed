// A cache for words that a text repeats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/models/token_model.hpp"

namespace heed::detail {

/// For one thread and one text; the table's size depends on the text's. The model must outlive it.
class PieceCache {
 public:
  PieceCache(const TokenModel& model, std::size_t text_size);

  /// The result of model.cut(word), valid until the next call.
  [[nodiscard]] std::span<const TokenPiece> pieces_of(std::string_view word);

 private:
  static constexpr std::size_t kLongestWord = 40;
  static constexpr std::size_t kMaxPieces = 8;
  static constexpr std::size_t kMaxSlots = std::size_t{1} << 13;

  struct Slot {
    std::uint8_t size = 0;  // of the word; 0: the slot is empty
    std::uint8_t count = 0;
    std::array<char, kLongestWord> word = {};
    std::array<std::uint8_t, 2 * kMaxPieces> places = {};  // begin and end of each piece
    std::array<std::int32_t, kMaxPieces> ids = {};
  };

  void keep(std::string_view word, Slot& slot) const;

  const TokenModel& model_;
  std::vector<Slot> slots_;  // their number is a power of two
  std::vector<TokenPiece> pieces_;
};

}  // namespace heed::detail
