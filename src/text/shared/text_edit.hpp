// Editing a text from beginning to end; free of cost until something changes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/shared/aligned.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail {

/// A code point of a changed text. change > 0: it is inserted and shares the origin of the one before.
/// Otherwise it replaces the next code point of the text, and -change further ones are dropped.
struct PointChange {
  std::uint32_t point = 0;
  std::int64_t change = 0;
};

class TextEdit {
 public:
  /// The text changes only when finish() is called.
  explicit TextEdit(AlignedText& text) : text_(text) {}

  /// Replaces the code points [begin, end), which must follow those of earlier calls, by `bytes` with the
  /// origin `span`.
  void replace(std::size_t begin, std::size_t end, std::string_view bytes, Span span);
  void replace(std::size_t begin, std::size_t end, const std::vector<PointChange>& changes);
  void finish();

 private:
  void begin_at(std::size_t begin);

  AlignedText& text_;
  AlignedText edited_;
  std::size_t kept_ = 0;  // bytes of the text already processed
  bool changed_ = false;
};

/// Lead bytes of code points.
using LeadBytes = std::array<bool, 256>;

/// Visits all code points except those that begin with one of `kept`. `change(point, bytes)` returns whether
/// the code point is replaced, and appends the replacement to `bytes`.
template <typename Change>
void change_points(AlignedText& text, const LeadBytes& kept, const Change& change) {
  TextEdit edit(text);
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    if (kept[static_cast<unsigned char>(text.text()[at])]) {
      ++at;  // also skips the rest of a code point, whose bytes are not lead bytes
      continue;
    }
    const CodePoint point = decode_utf8(std::string_view(text.text()).substr(at));
    bytes.clear();
    if (change(point.value, bytes)) {
      if (bytes.size() == point.length)
        text.overwrite(at, bytes);
      else
        edit.replace(at, at + point.length, bytes, text.span(at, at + point.length));
    }
    at += point.length;
  }
  edit.finish();
}

}  // namespace heed::detail
