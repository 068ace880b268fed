// Bytes written as letters, as in byte-level vocabularies.
#pragma once

#include <array>
#include <cstdint>

#include "text/shared/aligned.hpp"

namespace heed::detail {

/// The code point of each byte (GPT-2, Radford et al. 2019): printable Latin-1 letters stand for themselves,
/// the others become U+0100 and on.
[[nodiscard]] constexpr std::array<std::uint32_t, 256> byte_letters() {
  std::array<std::uint32_t, 256> letters{};
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    letters[byte] = printable ? byte : next++;
  }
  return letters;
}

/// Appends the letters of a text's bytes [begin, end), whole code points.
void add_letters(const AlignedText& text, std::size_t begin, std::size_t end, AlignedText& letters);

}  // namespace heed::detail
