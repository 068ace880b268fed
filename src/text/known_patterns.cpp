#include "text/known_patterns.hpp"

#include "core/utf8.hpp"

namespace heed::detail {
namespace {

enum class Kind : unsigned char { other, letter, number, space };

// The kind of every code point, by Oniguruma.
class Kinds {
 public:
  Kinds() : kinds_(0x110000, Kind::other) {
    set(Kind::letter, "L");
    set(Kind::number, "N");
    set(Kind::space, "Space");
  }
  Kind of(std::uint32_t point) const { return kinds_[point]; }

 private:
  void set(Kind kind, std::string_view property) {
    for (const PointRange& range : points_of_property(property))
      for (std::uint32_t point = range.first; point <= range.last; ++point) kinds_[point] = kind;
  }
  std::vector<Kind> kinds_;
};

const Kinds& kinds() {
  static const Kinds all;
  return all;
}

// Reads kinds and bytes of a text by position.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  std::size_t size() const { return text_.size(); }
  char byte(std::size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  // `at` must be within the text.
  Kind kind(std::size_t at, std::size_t& next) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    const CodePoint point = byte < 0x80 ? CodePoint{byte, 1, true} : decode_utf8(text_.substr(at));
    next = at + point.length;
    return kinds_.of(point.value);
  }
  // The end of a run of code points of one kind, of length `most` at most.
  std::size_t end_of(Kind kind, std::size_t at, std::size_t most = static_cast<std::size_t>(-1)) const {
    for (std::size_t next = at; at < size() && most > 0 && this->kind(at, next) == kind; at = next) --most;
    return at;
  }
  std::size_t end_of_breaks(std::size_t at) const {
    while (byte(at) == '\r' || byte(at) == '\n') ++at;
    return at;
  }

 private:
  std::string_view text_;
  const Kinds& kinds_ = kinds();
};

// The length of 's, 't, 're, 've, 'm, 'll or 'd in bytes, or 0. With `any_case`, U+017F also counts as s.
std::size_t contraction(const Reader& text, std::size_t at, bool any_case) {
  if (text.byte(at) != '\'') return 0;
  const auto letter = [&](std::size_t place) {
    const char byte = text.byte(place);
    return any_case ? ascii_lower(byte) : byte;
  };
  const char first = letter(at + 1);
  const char second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l')) return 3;
  return any_case && first == '\xC5' && second == '\xBF' ? 3 : 0;
}

// The end of white space from `at` on; it leaves one space before a word: \s+(?!\S)|\s+.
std::size_t end_of_spaces(const Reader& text, std::size_t at) {
  std::size_t last = at;
  std::size_t end = at;
  for (std::size_t next = at; end < text.size() && text.kind(end, next) == Kind::space; end = next)
    last = end;
  return end == text.size() || last == at ? end : last;
}

// The end of the word at `at`.
std::size_t end_of_gpt2(const Reader& text, std::size_t at) {
  if (const std::size_t bytes = contraction(text, at, false); bytes > 0) return at + bytes;
  std::size_t begin = at;
  std::size_t next = 0;
  Kind kind = text.kind(at, next);
  if (text.byte(at) == ' ' && next < text.size()) {
    begin = next;
    kind = text.kind(begin, next);
  }
  if (kind == Kind::space) return end_of_spaces(text, at);
  return text.end_of(kind, next);
}

// \s*[\r\n]+|\s+(?!\S)|\s+: up to the last line end among white space.
std::size_t end_of_lines(const Reader& text, std::size_t at) {
  std::size_t lines = 0;
  for (std::size_t next = at; at < text.size() && text.kind(at, next) == Kind::space; at = next)
    if (text.byte(at) == '\r' || text.byte(at) == '\n') lines = next;
  return lines;
}

template <std::size_t kDigits>
std::size_t end_of_llama3(const Reader& text, std::size_t at) {
  if (const std::size_t bytes = contraction(text, at, true); bytes > 0) return at + bytes;
  std::size_t next = 0;
  const Kind kind = text.kind(at, next);
  if (kind == Kind::letter) return text.end_of(Kind::letter, next);
  if (kind == Kind::number) return text.end_of(Kind::number, next, kDigits - 1);
  const bool breaks = text.byte(at) == '\r' || text.byte(at) == '\n';
  std::size_t after = next;
  const Kind second = next < text.size() ? text.kind(next, after) : Kind::space;
  if (!breaks && second == Kind::letter) return text.end_of(Kind::letter, after);
  if (kind == Kind::other) return text.end_of_breaks(text.end_of(Kind::other, next));
  if (text.byte(at) == ' ' && second == Kind::other)
    return text.end_of_breaks(text.end_of(Kind::other, after));
  const std::size_t lines = end_of_lines(text, at);
  return lines > 0 ? lines : end_of_spaces(text, at);
}

template <std::size_t (*kEnd)(const Reader&, std::size_t)>
std::vector<TextRange> words_of(std::string_view bytes) {
  const Reader text(bytes);
  std::vector<TextRange> words;
  words.reserve(bytes.size() / 4 + 1);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = kEnd(text, at);
    words.push_back({at, end});
    at = end;
  }
  return words;
}

}  // namespace

FindWords known_pattern(std::string_view regex) {
  if (regex == kWordsOfGpt2) return words_of<end_of_gpt2>;
  if (regex == kWordsOfLlama3) return words_of<end_of_llama3<3>>;
  return regex == kWordsOfQwen2 ? words_of<end_of_llama3<1>> : nullptr;
}

}  // namespace heed::detail
