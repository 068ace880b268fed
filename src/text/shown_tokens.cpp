#include "text/shown_tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "text/shared/unicode.hpp"

namespace heed::detail {
namespace {

constexpr std::string_view kHalf = "\uFFFD";   // the decoded text of an incomplete letter
constexpr std::string_view kContinues = "·";   // before a piece that continues a word
constexpr std::size_t kLongestLetter = 4;      // in bytes
constexpr std::size_t kWindow = 6;             // earlier tokens that a token's text may depend on
constexpr std::size_t kLongestWindow = 64;     // if a shorter one decodes differently from the text
constexpr std::uint32_t kIdeographs = 0x2E80;  // words of scripts from here on are not separated by spaces

// The text of a token: token n (from 0) of `of` tokens that spell it together.
struct TokenText {
  std::string text;
  std::size_t n = 0, of = 1;
};

std::size_t letters_in(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
  }));
}

std::string_view without_letters(std::string_view text, std::size_t count) {
  for (; count > 0 && !text.empty(); --count) text.remove_prefix(decode_utf8(text).length);
  return text;
}

std::string_view without_spaces(std::string_view text) {
  const std::size_t at = text.find_first_not_of(' ');
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

// The concatenation of the texts is the decoded text. A token may decode differently after others, so its
// text is what it adds to the text of some tokens before it.
std::vector<TokenText> texts_of(const Tokenizer& tokenizer, std::span<const std::int64_t> ids) {
  const auto decoded = [&](std::size_t begin, std::size_t end) {
    return tokenizer.decode(ids.subspan(begin, end - begin), false);
  };
  std::vector<TokenText> texts;
  std::size_t start = 0, waiting = 0;
  std::string known;
  for (std::size_t end = 1; end <= ids.size(); ++end) {
    const std::string text = decoded(start, end);
    ++waiting;
    if (text.ends_with(kHalf) && waiting < kLongestLetter && end < ids.size()) continue;
    const std::string_view added = without_letters(text, letters_in(known));
    for (std::size_t n = 0; n < waiting; ++n) texts.push_back({std::string(added), n, waiting});
    waiting = 0;
    const std::size_t window = std::max(start, end - std::min(end, kWindow));
    const std::string alone = decoded(window, end);
    const bool splits = !alone.starts_with(kHalf) && text.ends_with(without_spaces(alone));
    if (splits || end - start > kLongestWindow) start = window;
    known = decoded(start, end);
  }
  return texts;
}

std::string_view last_letter(std::string_view text) { return text.substr(begin_of_last(text)); }

// Whether the letter belongs to a script that separates words by spaces.
bool is_spaced(std::string_view letter) {
  const std::uint32_t point = decode_utf8(letter).value;
  const bool is_letter = is_word(point) && !is_mark(point) && !is_punctuation(point) && !is_control(point);
  return point < kIdeographs && (is_letter || is_numeric(point));
}

std::string in_brackets(const std::string& name) {
  const bool has_own = !name.empty() && ((name.front() == '[' && name.back() == ']') ||
                                         (name.front() == '<' && name.back() == '>'));
  return has_own ? name : "⟨" + name + "⟩";
}

}  // namespace

std::vector<std::string> shown_tokens(const Tokenizer& tokenizer, std::span<const std::int64_t> ids) {
  const std::vector<TokenText> texts = texts_of(tokenizer, ids);
  std::vector<std::string> shown;
  std::string before;  // the last letter before the token
  for (std::size_t place = 0; place < ids.size(); ++place) {
    if (tokenizer.is_special(ids[place])) {
      shown.push_back(in_brackets(*tokenizer.token(ids[place])));
      before.clear();
      continue;
    }
    const auto& [text, n, of] = texts[place];
    std::string word(without_spaces(text));
    if (word.empty()) word = text;
    if (of > 1)
      word += " " + std::to_string(n + 1) + "/" + std::to_string(of);
    else if (!before.empty() && !text.empty() && is_spaced(before) && is_spaced(text))
      word.insert(0, kContinues);
    if (!text.empty()) before = last_letter(text);
    shown.push_back(std::move(word));
  }
  return shown;
}

}  // namespace heed::detail
