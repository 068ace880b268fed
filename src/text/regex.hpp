// Oniguruma's regular expressions, as tokenizers use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/shared/json_part.hpp"

namespace heed::detail {

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct PointRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

/// The code points that \p{property} matches, including additions of Unicode 16 to categories.
[[nodiscard]] std::vector<PointRange> points_of_property(std::string_view property);

/// Immutable; several threads may use one.
class Regex {
 public:
  /// Throws Error (io), by `part`, for an invalid pattern.
  Regex(const std::string& pattern, const JsonPart& part);
  ~Regex();
  Regex(Regex&&) noexcept;

  /// The matches in UTF-8, in order and disjoint. An empty match does not follow another match at its end,
  /// and an empty text has none. Time grows linearly with the text: throws Error (invalid_argument) if the
  /// pattern backtracks more than a hundred times per byte.
  [[nodiscard]] std::vector<TextRange> find(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace heed::detail
