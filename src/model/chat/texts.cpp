#include "model/chat/texts.hpp"

#include <string.h>  // memmem

#include <algorithm>

#include "core/message.hpp"
#include "model/chat/lexer.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail::chat {
namespace {

// The bytes of the first code point if it is to be stripped; else 0.
std::size_t stripped_at(std::string_view text, const std::optional<std::string>& characters) {
  if (text.empty()) return 0;
  if (!characters) return space_at(text);
  const std::size_t size = decode_utf8(text).length;
  return characters->find(text.substr(0, size)) != std::string::npos ? size : 0;
}

std::vector<Value> split_at_spaces(std::string_view text, std::int64_t most) {
  std::vector<Value> parts;
  text = without_spaces_before(text);
  while (!text.empty() && most-- != 0) {
    std::size_t end = 0;
    while (end < text.size() && space_at(text.substr(end)) == 0) end += decode_utf8(text.substr(end)).length;
    parts.emplace_back(text.substr(0, end));
    text = without_spaces_before(text.substr(end));
  }
  if (!text.empty()) parts.emplace_back(text);
  return parts;
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::vector<std::string_view> characters_of(std::string_view text, Work& work) {
  work.spend(text.size() * sizeof(Value));
  std::vector<std::string_view> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = decode_utf8(text.substr(at)).length;
    all.push_back(text.substr(at, size));
    at += size;
  }
  return all;
}

std::size_t find_in(std::string_view text, std::string_view part, std::size_t from) {
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? text.npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::string_view stripped(std::string_view text, const std::optional<std::string>& characters, Side side,
                          Work& work) {
  work.spend(text.size() * (characters ? characters->size() + 1 : 1));
  if (side != Side::right)
    while (const std::size_t size = stripped_at(text, characters)) text.remove_prefix(size);
  while (side != Side::left && !text.empty()) {
    const std::size_t begin = begin_of_last(text);
    if (stripped_at(text.substr(begin), characters) == 0) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::vector<Value> split_text(std::string_view text, const std::optional<std::string>& separator,
                              std::int64_t most, bool from_right, Work& work) {
  work.spend(text.size() * sizeof(Value));
  if (!separator && from_right) refuse("calls rsplit() without a separator, which heed does not know");
  if (!separator) return split_at_spaces(text, most);
  if (separator->empty()) refuse("splits a text at an empty separator");
  std::vector<std::size_t> cuts;
  for (std::size_t at = find_in(text, *separator); at != text.npos; at = find_in(text, *separator, at))
    cuts.push_back(at), at += separator->size();
  if (from_right && separator->size() > 1)
    refuse("calls rsplit() with a separator of several bytes, which heed does not know");
  const std::size_t count = most < 0 ? cuts.size() : std::min(cuts.size(), static_cast<std::size_t>(most));
  if (from_right) cuts.erase(cuts.begin(), cuts.end() - static_cast<std::ptrdiff_t>(count));
  cuts.resize(count);
  std::vector<Value> parts;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    parts.emplace_back(text.substr(begin, cut - begin));
    begin = cut + separator->size();
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string replaced(std::string_view text, std::string_view old, std::string_view by, std::int64_t most,
                     Work& work) {
  if (old.empty()) refuse("replaces an empty text, which heed does not know");
  std::string made;
  std::size_t begin = 0;
  for (std::size_t at = find_in(text, old); at != text.npos && most-- != 0; at = find_in(text, old, begin)) {
    work.spend(at - begin + by.size() + 1);
    made.append(text.substr(begin, at - begin)).append(by);
    begin = at + old.size();
  }
  work.spend(text.size() - begin);
  return made.append(text.substr(begin));
}

std::string in_case(std::string_view text, Case wanted) {
  constexpr std::string_view kBeforeWords = "-({[<";
  std::string made(text);
  bool inside = false;  // of a word, or behind the first letter of the text
  for (char& c : made) {
    if (static_cast<unsigned char>(c) >= 0x80)
      refuse("changes the case of a text beyond ASCII, which heed does not know");
    const bool raises = wanted == Case::upper || (wanted != Case::lower && !inside);
    inside = wanted == Case::title   ? is_ascii_letter(c)
             : wanted == Case::words ? space_at({&c, 1}) == 0 && kBeforeWords.find(c) == kBeforeWords.npos
                                     : true;
    c = raises ? upper(c) : ascii_lower(c);
  }
  return made;
}

}  // namespace heed::detail::chat
