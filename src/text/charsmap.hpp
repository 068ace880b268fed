// SentencePiece's compiled normalisation rules (Kudo and Richardson 2018): a double-array trie of the texts
// to replace, with their replacements.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/shared/aligned.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

class Charsmap {
 public:
  /// Reads base 64: the trie's size in bytes, its units, and zero-terminated texts. Throws Error (io) by
  /// `part`.
  Charsmap(const std::string& base64, const JsonPart& part);

  /// Applies the rules as the Python package tokenizers does: grapheme by grapheme. Graphemes of 6 bytes or
  /// more, and those without a rule, are replaced code point by code point.
  void apply(AlignedText& text) const;

 private:
  [[nodiscard]] std::optional<std::string_view> replacement(std::string_view text) const;
  bool change(std::string_view text, std::vector<PointChange>& changes) const;
  bool change_points_of(std::string_view grapheme, std::vector<PointChange>& changes) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
  std::array<bool, 0x80> ascii_ = {};  // whether a rule exists
};

}  // namespace heed::detail
