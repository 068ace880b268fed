// Changing a text from its beginning to its end, which costs nothing until something changes.
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

/// A code point of a changed text. change > 0: it was put in after those before it, and came from the same.
/// Else: it stands for the next code point of the text, and -change more that follow are left out.
struct PointChange {
  std::uint32_t point = 0;
  std::int64_t change = 0;
};

class TextEdit {
 public:
  /// The text changes when finish() is called.
  explicit TextEdit(AlignedText& text) : text_(text) {}

  /// In place of the code points [begin, end), which follow those of the calls before, come `bytes` from
  /// `span`.
  void replace(std::size_t begin, std::size_t end, std::string_view bytes, Span span);
  void replace(std::size_t begin, std::size_t end, const std::vector<PointChange>& changes);
  void finish();

 private:
  void begin_at(std::size_t begin);

  AlignedText& text_;
  AlignedText edited_;
  std::size_t kept_ = 0;  // bytes of the text that are done
  bool changed_ = false;
};

/// Lead bytes of code points.
using LeadBytes = std::array<bool, 256>;

/// Goes over the code points but those that begin with one of `kept`. `change(point, bytes)` says whether
/// another text, which it adds to `bytes`, takes its place.
template <typename Change>
void change_points(AlignedText& text, const LeadBytes& kept, const Change& change) {
  TextEdit edit(text);
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    if (kept[static_cast<unsigned char>(text.text()[at])]) {
      ++at;  // through the rest of a code point, too, whose bytes are no lead bytes
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
