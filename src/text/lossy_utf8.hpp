// Text from bytes that may not be UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace heed::detail {

/// Replaces each maximal part of a broken letter, and each byte that cannot begin one, by U+FFFD (the Unicode
/// Standard, 3.9, "Substitution of Maximal Subparts").
[[nodiscard]] std::string lossy_utf8(std::string_view bytes);

}  // namespace heed::detail
