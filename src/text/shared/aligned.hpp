// Text that normalizers and pre-tokenizers change. Each byte knows the bytes of the original that it came
// from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace heed::detail
