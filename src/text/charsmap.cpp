#include "text/charsmap.hpp"

#include <utf8proc.h>

#include <algorithm>

namespace heed::detail {
namespace {

constexpr std::size_t kLongestGrapheme = 6;  // limit of graphemes looked up as a whole, plus one

int digit_of(char letter) {
  if (letter >= 'A' && letter <= 'Z') return letter - 'A';
  if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
  if (letter >= '0' && letter <= '9') return letter - '0' + 52;
  if (letter == '+') return 62;
  return letter == '/' ? 63 : -1;
}

std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  text.remove_suffix(padding);
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char letter : text) {
    const int digit = digit_of(letter);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<std::uint32_t>(digit)) & 0xFFFFu;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFFu);
  }
  return bytes;
}

std::uint32_t unit_at(std::string_view bytes, std::size_t at) {
  std::uint32_t unit = 0;
  for (std::size_t i = 0; i < 4; ++i)
    unit |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return unit;
}

// Units of a double array (Aoe 1989), as packed by darts-clone.
bool is_value(std::uint32_t unit) { return unit >> 31 != 0; }
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1u) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFu; }
std::size_t offset_of(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & 0x200u) >> 6); }

bool begins_point(std::string_view text, std::size_t at) {
  return at < text.size() && !continues_letter(text[at]);
}

// The size in bytes of the first grapheme of a text.
std::size_t grapheme_size(std::string_view text) {
  CodePoint last = decode_utf8(text);
  std::size_t size = last.length;
  utf8proc_int32_t state = 0;
  while (size < text.size()) {
    const CodePoint next = decode_utf8(text.substr(size));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state))
      break;
    size += next.length;
    last = next;
  }
  return size;
}

}  // namespace

Charsmap::Charsmap(const std::string& base64, const JsonPart& part) {
  const auto bytes = bytes_of_base64(base64);
  if (!bytes) part.fail("whose precompiled_charsmap is not in base 64");
  const std::size_t size = bytes->size() < 4 ? 0 : unit_at(*bytes, 0) / 4;
  if (size == 0 || size > (bytes->size() - 4) / 4) part.fail("whose precompiled_charsmap is cut off");
  for (std::size_t i = 0; i < size; ++i) units_.push_back(unit_at(*bytes, 4 + 4 * i));
  texts_ = bytes->substr(4 + 4 * size);
  if (!is_utf8(texts_)) part.fail("whose precompiled_charsmap has texts that are not UTF-8");
  for (std::size_t i = 0; i < size; ++i) {
    if (is_value(units_[i]) || !has_value(units_[i])) continue;
    const std::size_t value = i ^ offset_of(units_[i]);
    if (value >= size || !begins_point(texts_, value_of(units_[value])))
      part.fail("whose precompiled_charsmap points beyond its end");
  }
  for (std::size_t byte = 0; byte < ascii_.size(); ++byte) {
    const char letter = static_cast<char>(byte);
    ascii_[byte] = replacement({&letter, 1}).has_value();
  }
}

// The replacement by the shortest rule that the text begins with.
std::optional<std::string_view> Charsmap::replacement(std::string_view text) const {
  std::size_t node = offset_of(units_[0]);
  for (const char byte : text) {
    const auto label = static_cast<unsigned char>(byte);
    node ^= label;
    if (label == 0 || node >= units_.size() || label_of(units_[node]) != label) return std::nullopt;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (has_value(unit)) return std::string_view(texts_.c_str() + value_of(units_[node]));
  }
  return std::nullopt;
}

bool Charsmap::change(std::string_view text, std::vector<PointChange>& changes) const {
  const auto found = replacement(text);
  if (!found) return false;
  auto left = static_cast<std::int64_t>(letters_in(text));  // the remaining code points to replace
  for (std::size_t at = 0; at < found->size(); --left) {
    const CodePoint point = decode_utf8(found->substr(at));
    changes.push_back({point.value, left > 0 ? 0 : 1});
    at += point.length;
  }
  if (left > 0 && !changes.empty()) changes.back().change -= left;
  return true;
}

bool Charsmap::change_points_of(std::string_view grapheme, std::vector<PointChange>& changes) const {
  bool changed = false;
  for (std::size_t at = 0; at < grapheme.size();) {
    const CodePoint point = decode_utf8(grapheme.substr(at));
    const bool has_rule = change(grapheme.substr(at, point.length), changes);
    if (!has_rule) changes.push_back({point.value, 0});
    changed = changed || has_rule;
    at += point.length;
  }
  return changed;
}

void Charsmap::apply(AlignedText& text) const {
  const std::string_view bytes = text.text();
  std::vector<PointChange> changes;
  bool changed = false;
  const auto is_ascii = [&](std::size_t at) { return static_cast<unsigned char>(bytes[at]) < 0x80; };
  for (std::size_t at = 0; at < bytes.size();) {
    // Except for line ends, an ASCII letter before another ASCII letter is a grapheme of its own.
    const bool alone = is_ascii(at) && bytes[at] != '\r' && (at + 1 == bytes.size() || is_ascii(at + 1));
    if (alone && !ascii_[static_cast<unsigned char>(bytes[at])]) {
      changes.push_back({static_cast<unsigned char>(bytes[at]), 0});
      ++at;
      continue;
    }
    const std::string_view grapheme = bytes.substr(at, grapheme_size(bytes.substr(at)));
    const bool whole = grapheme.size() < kLongestGrapheme && change(grapheme, changes);
    const bool part = !whole && change_points_of(grapheme, changes);
    changed = changed || whole || part;
    at += grapheme.size();
  }
  if (!changed) return;
  TextEdit edit(text);
  edit.replace(0, text.size(), changes);
  edit.finish();
}

}  // namespace heed::detail
