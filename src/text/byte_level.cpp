#include "text/byte_level.hpp"

#include <array>
#include <string>

#include "text/shared/unicode.hpp"

namespace heed::detail {

void add_letters(const AlignedText& text, std::size_t begin, std::size_t end, AlignedText& added) {
  static const std::array<std::string, 256> letters = [] {
    std::array<std::string, 256> all;
    constexpr auto kPoints = byte_letters();
    for (std::size_t byte = 0; byte < all.size(); ++byte) append_utf8(kPoints[byte], all[byte]);
    return all;
  }();
  const std::string_view bytes = text.text();
  for (std::size_t at = begin, next = at; at < end; at = next) {
    next = at + (static_cast<unsigned char>(bytes[at]) < 0x80 ? 1 : decode_utf8(bytes.substr(at)).length);
    const Span span = text.span(at, next);
    for (; at < next; ++at) added.add(letters[static_cast<unsigned char>(bytes[at])], span);
  }
}

}  // namespace heed::detail
