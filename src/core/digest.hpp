// A digest of bytes that any program computes alike: it tells differing bytes apart, but not forged ones.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "heed/tensor.hpp"

namespace heed::detail {

/// FNV-1a (Fowler, Noll, Vo), 64 bits.
class Digest {
 public:
  explicit Digest(std::string_view bytes = {}) { add(bytes); }
  void add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void add(Number number) { add({reinterpret_cast<const char*>(&number), sizeof number}); }
  void add(const Tensor& tensor) {
    const auto bytes = static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype());
    add({static_cast<const char*>(tensor.view().data()), bytes});
  }
  [[nodiscard]] std::int64_t value() const { return static_cast<std::int64_t>(value_); }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace heed::detail
