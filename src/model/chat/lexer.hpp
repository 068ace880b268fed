// The tokens of a chat template, with whitespace removed as transformers sets Jinja up: trim_blocks,
// lstrip_blocks, no newline at the end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail::chat {

enum class TokenKind {
  text,
  begin_print,
  end_print,
  begin_block,
  end_block,
  name,
  string,
  integer,
  real,
  sign,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  ///< a string literal without its quotes and escapes
  int line = 1;
};

/// Ends with a token of kind `end`. Throws Error (invalid_argument) for what is no Jinja, and for Jinja that
/// heed does not know.
[[nodiscard]] std::vector<Token> tokens_of(std::string_view source);

/// Throws Error (invalid_argument) with the line at its end.
[[noreturn]] void refuse_at(int line, const std::string& what);

/// The bytes of Unicode whitespace, as Python's str.strip() sees it, at the beginning of a text; 0: none.
[[nodiscard]] std::size_t space_at(std::string_view text);
[[nodiscard]] std::string_view without_spaces_before(std::string_view text);
[[nodiscard]] std::string_view without_spaces_after(std::string_view text);

}  // namespace heed::detail::chat
