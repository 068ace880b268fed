// The words of an expression's text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/message.hpp"
#include "attention/masks/expression_tree.hpp"

namespace heed::detail {

enum class WordKind : std::uint8_t { number, name, symbol, end };

struct Word {
  WordKind kind = WordKind::end;
  std::string_view text;
  std::size_t begin = 0;
  double value = 0;  ///< of a number

  [[nodiscard]] bool is(std::string_view symbol) const { return kind == WordKind::symbol && text == symbol; }
};

/// Gives one word after the other; `and` and `or` come as && and ||, and `not` is a symbol too.
class Words {
 public:
  Words(ExpressionKind kind, std::string_view text) : kind_(kind), text_(text) { advance(); }

  [[nodiscard]] const Word& now() const { return now_; }
  /// Where the word before this one ended.
  [[nodiscard]] std::size_t previous_end() const { return previous_end_; }
  void advance();
  /// Whether the word is this symbol; then it is passed.
  bool take(std::string_view symbol);

  [[nodiscard]] std::string_view text() const { return text_; }
  /// Throws Error: the quoted text, then the parts.
  template <class... Parts>
  [[noreturn]] void fail(std::size_t place, const Parts&... parts) const {
    refuse(quote_of(kind_, text_, place), parts...);
  }
  /// "at column 6".
  [[nodiscard]] static std::string at(std::size_t place) { return "at column " + std::to_string(place + 1); }
  /// What is there instead of what is expected: "unexpected ')' at column 6".
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

/// For a message: printable ASCII as it is, else '?', and no more than there is room for.
[[nodiscard]] std::string shown(std::string_view text, std::size_t most = 60);
/// Whether it may name an array: letters, digits and _, no digit first.
[[nodiscard]] bool is_name(std::string_view text);
/// Whether it has a meaning in the language.
[[nodiscard]] bool is_reserved(std::string_view name);

}  // namespace heed::detail
