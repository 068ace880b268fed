// SentencePiece's compiled rules of normalisation (Kudo and Richardson 2018): a double-array trie of what is
// replaced, with what replaces it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/shared/aligned.hpp"
#include "text/shared/json_part.hpp"
#include "text/shared/text_edit.hpp"

namespace heed::detail {

class Charsmap {
 public:
  /// In base 64: the trie's size in bytes, its units, and texts that end with zero bytes. Throws Error (io)
  /// by `part`.
  Charsmap(const std::string& base64, const JsonPart& part);

  /// As the Python package tokenizers does it: grapheme by grapheme, those of 6 bytes or more and those that
  /// no rule has code point by code point.
  void apply(AlignedText& text) const;

 private:
  [[nodiscard]] std::optional<std::string_view> replacement(std::string_view text) const;
  bool change(std::string_view text, std::vector<PointChange>& changes) const;
  bool change_points_of(std::string_view grapheme, std::vector<PointChange>& changes) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
  std::array<bool, 0x80> ascii_ = {};  // has a rule
};

}  // namespace heed::detail
