// Text that normalizers and pre-tokenizers change. Each byte knows the bytes of the original that it came
// from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/shared/unicode.hpp"

namespace heed::detail {

/// Bytes [begin, end) of the original text.
struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

/// UTF-8. An unchanged text has no list of spans.
class AlignedText {
 public:
  AlignedText() = default;
  /// The bytes of the original from `begin` on; the original has fewer than 2^32.
  explicit AlignedText(std::string_view text, std::size_t begin = 0)
      : text_(text), begin_(static_cast<std::uint32_t>(begin)) {}

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::size_t size() const { return text_.size(); }
  /// The position in the original at which the text begins.
  [[nodiscard]] std::uint32_t start() const {
    return changed_ && !spans_.empty() ? spans_.front().begin : begin_;
  }

  /// The origin of the bytes [begin, end), at least one. A byte's origin is whole code points.
  [[nodiscard]] Span span(std::size_t begin, std::size_t end) const;
  [[nodiscard]] AlignedText part(std::size_t begin, std::size_t end) const;

  /// Overwrites code points in place with others of the same size in bytes.
  void overwrite(std::size_t begin, std::string_view bytes) { text_.replace(begin, bytes.size(), bytes); }

  /// An empty text to write a changed version into.
  [[nodiscard]] static AlignedText rewritten(std::size_t expected_size) {
    AlignedText text;
    text.changed_ = true;
    text.text_.reserve(expected_size);
    text.spans_.reserve(expected_size);
    return text;
  }
  /// Appends bytes with the common origin `span`.
  void add(std::string_view bytes, Span span) {
    text_ += bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) spans_.push_back(span);
  }
  /// Appends the bytes [begin, end), whole code points, of another text unchanged.
  void add(const AlignedText& other, std::size_t begin, std::size_t end);

 private:
  std::string text_;
  std::vector<Span> spans_;  // for each byte, if changed
  std::uint32_t begin_ = 0;
  bool changed_ = false;
};

/// A code point of a changed text. change > 0: it is inserted and shares the origin of the one before.
/// Otherwise it replaces the next code point of the text, and -change further ones are dropped.
struct PointChange {
  std::uint32_t point = 0;
  std::int64_t change = 0;
};

/// Edits a text from beginning to end; free of cost until something changes.
class TextEdit {
 public:
  /// The text changes only when finish() is called.
  explicit TextEdit(AlignedText& text) : text_(text) {}

  /// Replaces the code points [begin, end) by `bytes` with the origin `span`. Each call's code points must
  /// follow the earlier calls'.
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
