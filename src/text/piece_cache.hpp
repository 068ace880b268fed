// Pieces of words that a text has more than once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/models/token_model.hpp"

namespace heed::detail {

/// For one thread, and one text: a table whose size goes by the text's. The model must live as long.
class PieceCache {
 public:
  PieceCache(const TokenModel& model, std::size_t text_size);

  /// As model.cut() gives them, until the next call.
  [[nodiscard]] std::span<const TokenPiece> pieces_of(std::string_view word);

 private:
  static constexpr std::size_t kLongestWord = 40;
  static constexpr std::size_t kMostPieces = 8;
  static constexpr std::size_t kMostSlots = std::size_t{1} << 13;

  struct Slot {
    std::uint8_t size = 0;  // of the word; 0: none is kept
    std::uint8_t count = 0;
    std::array<char, kLongestWord> word = {};
    std::array<std::uint8_t, 2 * kMostPieces> places = {};  // begin and end of each piece
    std::array<std::int32_t, kMostPieces> ids = {};
  };

  void keep(std::string_view word, Slot& slot) const;

  const TokenModel& model_;
  std::vector<Slot> slots_;  // as many as a power of two
  std::vector<TokenPiece> pieces_;
};

}  // namespace heed::detail
