// Checks untrusted JSON before values are built from it. The values may take 80 times the text's memory. If
// an object has many members, the time grows with the square of their number.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "heed/export.hpp"

namespace heed::detail {

struct JsonLimits {
  std::size_t depth = 8;      ///< nesting of lists and objects
  std::size_t members = 100;  ///< members of an object
  /// Number of values, including lists and objects.
  std::size_t values = std::numeric_limits<std::size_t>::max();
};

/// Longest string, number or run of white space; the reader holds several copies of one.
inline constexpr std::size_t kLongestJsonWord = std::size_t{1} << 20;

/// A fault of the text: it is not JSON in UTF-8, or it exceeds a limit. Zero bytes and then long words are
/// reported before others; of the others, the first.
enum class JsonFault { none, malformed, deep, wide, many, long_word };

/// Uses negligible memory for any text.
[[nodiscard]] JsonFault fault_in_json(std::string_view text, const JsonLimits& limits = {});

/// The parsed value; a null value if a limit is exceeded; nullopt if the text is not JSON.
[[nodiscard]] HEED_API std::optional<nlohmann::ordered_json> json_of(std::string_view text,
                                                                     const JsonLimits& limits = {});

/// The value of a text that was checked to be JSON. nlohmann's parser, which takes a second to compile, is
/// compiled here only.
[[nodiscard]] HEED_API nlohmann::ordered_json parsed_in_order(std::string_view checked);

/// The same with sorted members. `on_name` is called for each member's name in the order of the text, with
/// the number of objects and lists around it.
[[nodiscard]] HEED_API nlohmann::json parsed(
    std::string_view checked, const std::function<void(int depth, const std::string& name)>& on_name = {});

}  // namespace heed::detail
