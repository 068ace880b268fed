// Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror, Shaw 2011, "Parallel random
// numbers: as easy as 1, 2, 3", section 4.3). A block of 128 bits is a function of a counter and a key alone,
// so any thread can compute any block in any order.
#pragma once

#include <array>
#include <cstdint>

namespace heed::detail {

using PhiloxBlock = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxBlock philox(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9;  // the golden ratio
    key[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

constexpr std::uint32_t low_word(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high_word(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

}  // namespace heed::detail
