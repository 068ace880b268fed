// Splits an expression's text into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "attention/masks/expression_tree.hpp"
#include "core/message.hpp"

namespace heed::detail {

enum class WordKind : std::uint8_t { number, name, symbol, end };

struct Word {
  WordKind kind = WordKind::end;
  std::string_view text;
  std::size_t begin = 0;
  double value = 0;  ///< set for numbers

  [[nodiscard]] bool is(std::string_view symbol) const { return kind == WordKind::symbol && text == symbol; }
};

/// Reads the words one by one. `and` and `or` are returned as && and ||; `not` is returned as a symbol.
class Words {
 public:
  Words(ExpressionKind kind, std::string_view text) : kind_(kind), text_(text) { advance(); }

  [[nodiscard]] const Word& now() const { return now_; }
  [[nodiscard]] std::size_t previous_end() const { return previous_end_; }
  void advance();
  /// Whether the current word is this symbol; if so, advances past it.
  bool take(std::string_view symbol);

  [[nodiscard]] std::string_view text() const { return text_; }
  /// Throws an Error whose message is the quoted text, followed by the parts.
  template <class... Parts>
  [[noreturn]] void fail(std::size_t place, const Parts&... parts) const {
    refuse(quote_of(kind_, text_, place), parts...);
  }
  /// Returns "at column 6", for example.
  [[nodiscard]] static std::string at(std::size_t place) { return "at column " + std::to_string(place + 1); }
  /// Describes the current word, for a message: "unexpected ')' at column 6".
  [[nodiscard]] std::string unexpected() const;

 private:
  void read_number();
  void read_symbol();

  ExpressionKind kind_;
  std::string_view text_;
  std::size_t place_ = 0;
  std::size_t previous_end_ = 0;
  Word now_;
};

/// Makes text printable for a message: other characters than printable ASCII become '?', and the length is
/// limited.
[[nodiscard]] std::string shown(std::string_view text, std::size_t most = 60);
/// Whether the text is a valid array name: letters, digits and _, not beginning with a digit.
[[nodiscard]] bool is_name(std::string_view text);
/// Whether the name has a meaning in the language.
[[nodiscard]] bool is_reserved(std::string_view name);

}  // namespace heed::detail
