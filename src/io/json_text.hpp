// JSON from strangers, looked through before anything is made of it: made into values it may take eighty
// times its size in memory, and, where an object has many members, time that grows with their square.
#pragma once

#include <cstddef>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "heed/export.hpp"

namespace heed::detail {

/// What a text may hold.
struct JsonLimits {
  std::size_t depth = 8;                                         ///< lists and objects around a value
  std::size_t members = 100;                                     ///< of an object
  std::size_t values = std::numeric_limits<std::size_t>::max();  ///< lists and objects too
};

/// Strings, numbers and white space are as long at most: the reader holds one of them several times.
inline constexpr std::size_t kLongestJsonWord = std::size_t{1} << 20;

/// What comes first in the text: that it is not JSON in UTF-8, or that it is beyond a limit.
enum class JsonFault { none, malformed, deep, wide, many, long_word };

/// Takes no memory to speak of, whatever the text is.
[[nodiscard]] JsonFault fault_in_json(std::string_view text, const JsonLimits& limits = {});

/// The value, null where it is beyond a limit, or nothing where the text is not JSON.
[[nodiscard]] HEED_API std::optional<nlohmann::ordered_json> json_of(std::string_view text,
                                                                     const JsonLimits& limits = {});

}  // namespace heed::detail
