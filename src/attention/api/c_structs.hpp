// The structs of heed/heed.h may gain members in later versions. Their first member is their size, which
// tells which members the caller knows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "attention/api/c_support.hpp"
#include "core/message.hpp"
#include "heed/version.hpp"

namespace heed::detail::c_api {

// Every member has 8 bytes, or 4 bytes next to another 4. A multiple of 8 therefore never ends inside a
// member.
constexpr std::size_t kMemberStep = 8;
// Far more than any version will need: a larger size was never initialised.
constexpr std::size_t kMaxStruct = 4096;

template <class Struct>
constexpr bool kGrows = sizeof(Struct) % kMemberStep == 0 && offsetof(Struct, struct_size) == 0;

inline void check_size(std::string_view name, std::size_t size) {
  if (size < kMemberStep || size > kMaxStruct || size % kMemberStep != 0)
    refuse(name, ".struct_size is ", size,
           "; the sizeof of the struct, as its init function sets it, is expected");
}

/// Returns the caller's struct as this version knows it. Missing members get their defaults; bytes beyond
/// Struct must be 0. The caller's struct may be smaller or larger than Struct, so it is read as bytes.
template <class Struct>
Struct as_known(std::string_view name, const void* given, const Struct& defaults) {
  static_assert(kGrows<Struct>);
  const auto* bytes = static_cast<const unsigned char*>(given);
  std::size_t size = 0;
  std::memcpy(&size, bytes, sizeof size);
  check_size(name, size);
  Struct known = defaults;
  std::memcpy(&known, bytes, std::min(size, sizeof(Struct)));
  for (std::size_t at = sizeof(Struct); at < size; ++at)
    if (bytes[at] != 0)
      refuse(name, " requests something that heed ", heed::version(), " does not know: byte ", at, " of its ",
             size, " bytes is not 0, but this version knows only the first ", sizeof(Struct));
  return known;
}

/// Returns a struct whose members are all 0 except struct_size.
template <class Struct>
Struct nothing_given() {
  Struct pointers{};
  pointers.struct_size = sizeof pointers;
  return pointers;
}

/// Writes a struct into one of the caller's size: truncated if that is smaller, padded with zeros if larger.
template <class Struct>
void initialise(std::string_view name, Struct* to, std::size_t size, Struct from) {
  static_assert(kGrows<Struct>);
  require(name, to);
  check_size(name, size);
  from.struct_size = size;
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &from, std::min(size, sizeof(Struct)));
}

}  // namespace heed::detail::c_api
