// Bytes that may not be UTF-8, as text.
#pragma once

#include <string>
#include <string_view>

namespace heed::detail {

/// Each longest beginning of a letter that goes on otherwise, and each byte that begins none, gives U+FFFD
/// (the Unicode Standard, 3.9, "Substitution of Maximal Subparts").
[[nodiscard]] std::string lossy_utf8(std::string_view bytes);

}  // namespace heed::detail
