// Makes choices from the bytes of an input, read from its end to its beginning. Once all bytes are used up,
// every choice takes its first alternative. The same bytes make the same choices as with LLVM's
// FuzzedDataProvider, which other compilers do not have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace heed::fuzz {

class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), remaining_(size) {}

  [[nodiscard]] std::size_t remaining_bytes() const { return remaining_; }

  /// An integer in [least, most]. It uses as many bytes as the range needs.
  template <class Integer>
  Integer integer(Integer least, Integer most) {
    const std::uint64_t range = static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
    std::uint64_t chosen = 0;
    for (unsigned bits = 0; bits < 64 && range >> bits != 0 && remaining_ > 0; bits += 8)
      chosen = chosen << 8 | data_[--remaining_];
    if (range != std::numeric_limits<std::uint64_t>::max()) chosen %= range + 1;
    return static_cast<Integer>(static_cast<std::uint64_t>(least) + chosen);
  }
  template <class Integer>
  Integer integer() {
    return integer(std::numeric_limits<Integer>::min(), std::numeric_limits<Integer>::max());
  }

  bool boolean() { return integer<std::uint8_t>() % 2 == 1; }

  template <class Value>
  Value one_of(std::initializer_list<Value> values) {
    return values.begin()[integer<std::size_t>(0, values.size() - 1)];
  }

 private:
  const std::uint8_t* data_;
  std::size_t remaining_;
};

}  // namespace heed::fuzz
