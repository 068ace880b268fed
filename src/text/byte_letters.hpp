// The letters that GPT-2 uses for bytes (Radford et al. 2019): printable Latin-1 letters stand for
// themselves, the others become U+0100 and on.
#pragma once

#include <array>
#include <cstdint>

namespace heed::detail {

/// The code point of each byte.
[[nodiscard]] constexpr std::array<std::uint32_t, 256> byte_letters() {
  std::array<std::uint32_t, 256> letters{};
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    letters[byte] = printable ? byte : next++;
  }
  return letters;
}

}  // namespace heed::detail
