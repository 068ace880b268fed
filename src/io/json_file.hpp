// JSON in a file, whole or refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "heed/export.hpp"

#include "io/json_text.hpp"

namespace heed::io::detail {

/// What a regular file of at most `most` MiB holds. Throws Error (io) that begins with the path.
[[nodiscard]] HEED_API std::string bytes_in(const std::string& path, std::uintmax_t most);

/// Throws Error (io), which begins with `subject`, for what is not JSON within the limits.
HEED_API void check_json(std::string_view text, const std::string& subject,
                         const heed::detail::JsonLimits& limits);

/// Its text, which is JSON within the limits, so that it can be made into values without taking many times
/// the file's size. Throws likewise.
[[nodiscard]] HEED_API std::string json_in(const std::string& path, std::uintmax_t most,
                                           const heed::detail::JsonLimits& limits);

}  // namespace heed::io::detail
