// Reading and checking of JSON files.
#pragma once

#include <string>
#include <string_view>

#include "heed/export.hpp"

#include "io/json_text.hpp"

namespace heed::io::detail {

/// The content of a regular file of at most `most` MiB. Throws Error (io) that starts with the path.
[[nodiscard]] HEED_API std::string bytes_in(const std::string& path, std::uintmax_t most);

/// Throws Error (io), starting with `subject`, if the text is not JSON within the limits.
HEED_API void check_json(std::string_view text, const std::string& subject,
                         const heed::detail::JsonLimits& limits);

/// The text of a file, checked to be JSON within the limits, so that parsing it cannot take many times the
/// file's size. Throws likewise.
[[nodiscard]] HEED_API std::string json_in(const std::string& path, std::uintmax_t most,
                                           const heed::detail::JsonLimits& limits);

}  // namespace heed::io::detail
