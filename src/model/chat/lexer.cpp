#include "model/chat/lexer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include "core/message.hpp"
#include "core/utf8.hpp"
#include "io/fault.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail::chat {
namespace {

using io::detail::printable;

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Line ends become \n, and one at the end is left out.
std::string normalized(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (!rest_.empty()) read_text();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    line_ += static_cast<int>(std::ranges::count(taken, '\n'));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  bool take_if(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    take(text.size());
    return true;
  }
  void skip_spaces() { take(rest_.size() - without_spaces_before(rest_).size()); }

  // Text up to a tag, and the tag.
  void read_text() {
    std::size_t at = rest_.find('{');
    while (at != rest_.npos && rest_.substr(at + 1).find_first_of("{%#") != 0) at = rest_.find('{', at + 1);
    const std::string_view text = take(at);
    if (rest_.empty()) return add(TokenKind::text, std::string(text));
    const char kind = take(2)[1];
    const bool strips = take_if("-"), keeps = !strips && take_if("+");
    const std::string_view kept = strips                 ? without_spaces_after(text)
                                  : keeps || kind == '{' ? text
                                                         : without_indent(text);
    if (!kept.empty()) add(TokenKind::text, std::string(kept));
    if (kind == '#') return skip_comment();
    add(kind == '{' ? TokenKind::begin_print : TokenKind::begin_block, "");
    read_tag(kind == '{' ? "}}" : "%}");
  }

  // lstrip_blocks: without the spaces between the begin of a line and a tag.
  std::string_view without_indent(std::string_view text) const {
    const std::size_t begin = text.rfind('\n') + 1;  // npos + 1 is 0
    if (begin == 0 && !line_begins_) return text;
    return without_spaces_before(text.substr(begin)).empty() ? text.substr(0, begin) : text;
  }

  // Skips the space after a tag that its sign asks for. trim_blocks: a newline after a block or a comment
  // goes.
  void end_tag(char sign, bool trims) {
    const std::size_t before = rest_.size();
    if (sign == '-')
      skip_spaces();
    else if (sign != '+' && trims)
      take_if("\n");
    const std::size_t end = source_.size() - rest_.size();
    line_begins_ = rest_.size() < before && source_[end - 1] == '\n';
  }

  void skip_comment() {
    const std::size_t end = rest_.find("#}");
    if (end == rest_.npos) refuse_at(line_, "has a comment without an end");
    const char sign = end > 0 ? rest_[end - 1] : ' ';
    take(end + 2);
    end_tag(sign, true);
  }

  void read_tag(std::string_view mark) {
    const bool prints = mark == "}}";
    std::string open;  // brackets
    while (true) {
      if (open.empty()) {
        const char sign = rest_.empty() ? ' ' : rest_[0];
        const bool has_sign = sign == '-' || (sign == '+' && !prints);
        if (rest_.substr(has_sign ? 1 : 0).starts_with(mark)) {
          take(mark.size() + (has_sign ? 1 : 0));
          add(prints ? TokenKind::end_print : TokenKind::end_block, "");
          return end_tag(has_sign ? sign : ' ', !prints);
        }
      }
      if (rest_.empty()) refuse_at(line_, "has a tag without an end");
      if (space_at(rest_) > 0)
        skip_spaces();
      else
        read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = rest_[0];
    if (is_letter(c)) return read_name();
    if (is_digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_string();
    read_sign(open);
  }

  void read_name() {
    const auto end = std::ranges::find_if_not(rest_, [](char c) { return is_letter(c) || is_digit(c); });
    add(TokenKind::name, std::string(take(static_cast<std::size_t>(end - rest_.begin()))));
  }

  std::size_t digits_from(std::size_t at) const {
    while (at < rest_.size() && is_digit(rest_[at])) ++at;
    return at;
  }

  void read_number() {
    std::size_t end = digits_from(0);
    const bool is_real = end + 1 < rest_.size() && rest_[end] == '.' && is_digit(rest_[end + 1]);
    const std::size_t whole = end;
    if (is_real) end = digits_from(end + 1);
    const bool odd =
        end < rest_.size() && (is_letter(rest_[end]) || (!is_real && whole > 1 && rest_[0] == '0'));
    if (odd)
      refuse_at(line_, "has the number " + printable(rest_.substr(0, end + (is_letter(rest_[end]) ? 1 : 0))) +
                           ", which heed does not know");
    add(is_real ? TokenKind::real : TokenKind::integer, std::string(take(end)));
  }

  void read_string() {
    const char quote = rest_[0];
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2U : 1U;
    if (end >= rest_.size()) refuse_at(line_, "has a string without an end");
    const int line = line_;
    const std::string_view text = take(end + 1);
    tokens_.push_back({TokenKind::string, unescaped(text.substr(1, text.size() - 2)), line});
  }

  // Python's escapes. Backslashes before other characters stay.
  std::string unescaped(std::string_view text) const {
    constexpr std::string_view kLetters = "\\'\"abfnrtv", kBytes = "\\'\"\a\b\f\n\r\t\v";
    std::string made;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        made += text[i];
        continue;
      }
      const char c = text[++i];
      const std::size_t known = kLetters.find(c);
      if (known != kLetters.npos)
        made += kBytes[known];
      else if (c == 'x' || c == 'u' || c == 'U')
        i += add_code_point(text.substr(i + 1, c == 'x'   ? 2
                                               : c == 'u' ? 4
                                                          : 8),
                            c == 'x'   ? 2
                            : c == 'u' ? 4
                                       : 8,
                            made);
      else if (c == '\n')
        continue;
      else if (is_digit(c) || c == 'N' || (static_cast<unsigned char>(c) & 0x80u) != 0)
        refuse_at(line_, "has the escape " + printable(text.substr(i - 1, 2)) +
                             " in a string, which heed does not know");
      else
        made += {'\\', c};
    }
    return made;
  }

  std::size_t add_code_point(std::string_view digits, std::size_t count, std::string& made) const {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    const bool whole = error == std::errc() && digits.size() == count && end == digits.data() + count;
    if (!whole || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      refuse_at(line_, "has an escape in a string that is no character");
    append_utf8(value, made);
    return count;
  }

  void read_sign(std::string& open) {
    constexpr std::array<std::string_view, 6> kTwo = {"==", "!=", "<=", ">=", "//", "**"};
    constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,";
    const bool two = std::ranges::find(kTwo, rest_.substr(0, 2)) != kTwo.end();
    if (!two && kOne.find(rest_[0]) == kOne.npos)
      refuse_at(line_, "has " + printable(rest_.substr(0, 1)) + " in a tag, which heed does not know");
    const std::string sign(take(two ? 2 : 1));
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (!two && kOpen.find(sign) != kOpen.npos) open += sign;
    if (const std::size_t at = kClose.find(sign); !two && at != kClose.npos) {
      if (open.empty() || open.back() != kOpen[at])
        refuse_at(line_, "has " + printable(sign) + " that closes nothing");
      open.pop_back();
    }
    add(TokenKind::sign, sign);
  }

  std::string source_;
  std::string_view rest_;
  int line_ = 1;
  bool line_begins_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

void refuse_at(int line, const std::string& what) { refuse(what, " (line ", line, ")"); }

std::size_t space_at(std::string_view text) {
  if (text.empty()) return 0;
  const CodePoint point = decode_utf8(text);
  const bool is_separator = point.value >= 28 && point.value <= 31;
  return point.valid && (is_white_space(point.value) || is_separator) ? point.length : 0;
}

std::string_view without_spaces_before(std::string_view text) {
  while (const std::size_t size = space_at(text)) text.remove_prefix(size);
  return text;
}

std::string_view without_spaces_after(std::string_view text) {
  while (!text.empty()) {
    const std::size_t at = begin_of_last(text);
    if (space_at(text.substr(at)) == 0) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

}  // namespace heed::detail::chat
