// UTF-8 decoding, one code point at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heed::detail {

/// Whether a byte of UTF-8 continues a letter.
constexpr bool continues_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80u; }

inline std::size_t letters_in(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continues_letter));
}

constexpr char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t length = 1;  ///< in bytes
  bool valid = false;
};

/// The first code point of a non-empty text. Overlong forms, surrogates and values past U+10FFFF are invalid.
inline CodePoint decode_utf8(std::string_view text) {
  const std::uint32_t lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {lead, 1, false};
  std::uint32_t value = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const std::uint32_t byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0u) != 0x80u) return {lead, 1, false};
    value = (value << 6) | (byte & 0x3Fu);
  }
  constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kLeast[length] || value > 0x10FFFF || surrogate) return {lead, 1, false};
  return {value, length, true};
}

inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    if (!point.valid) return false;
    text.remove_prefix(point.length);
  }
  return true;
}

}  // namespace heed::detail
