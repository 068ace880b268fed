#include "text/lossy_utf8.hpp"

#include <algorithm>
#include <cstddef>

#include "core/utf8.hpp"

namespace heed::detail {
namespace {

bool can_be_second(unsigned lead, unsigned byte) {
  const unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return byte >= least && byte <= most;
}

// The length of a maximal part of a broken letter: its lead byte and valid continuations.
std::size_t length_of_subpart(std::string_view bytes) {
  const auto byte = [&](std::size_t at) {
    return static_cast<unsigned>(static_cast<unsigned char>(bytes[at]));
  };
  const unsigned lead = byte(0);
  const std::size_t whole = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 1;
  std::size_t length = 1;
  while (length < std::min(whole, bytes.size())) {
    const bool fits = length == 1 ? can_be_second(lead, byte(1)) : (byte(length) & 0xC0u) == 0x80u;
    if (!fits) break;
    ++length;
  }
  return length;
}

}  // namespace

std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const CodePoint point = decode_utf8(bytes);
    const std::size_t length = point.valid ? point.length : length_of_subpart(bytes);
    text += point.valid ? bytes.substr(0, length) : std::string_view("\uFFFD");
    bytes.remove_prefix(length);
  }
  return text;
}

}  // namespace heed::detail
