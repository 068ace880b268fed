// Regular expressions as tokenizers have them, Oniguruma's.
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

/// Code points.
struct PointRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

/// Those that \p{property} matches, with what Unicode 16 added to categories.
[[nodiscard]] std::vector<PointRange> points_of_property(std::string_view property);

/// Immutable; several threads may use one.
class Regex {
 public:
  /// Throws Error (io), by `part`, for a pattern that is none.
  Regex(const std::string& pattern, const JsonPart& part);
  ~Regex();
  Regex(Regex&&) noexcept;

  /// The matches in UTF-8, in order, apart from each other; an empty one does not follow another at its end,
  /// nor is there one in an empty text. Time grows with the text's length: throws Error (invalid_argument)
  /// where the pattern goes back more often than a hundred times a byte.
  [[nodiscard]] std::vector<TextRange> find(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace heed::detail
