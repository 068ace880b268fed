#include "text/pattern.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "text/known_patterns.hpp"
#include "text/shared/aligned.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail {
namespace {

class StringPattern : public Pattern {
 public:
  explicit StringPattern(std::string string) : string_(std::move(string)) {}
  [[nodiscard]] std::vector<TextRange> find(std::string_view text) const override {
    std::vector<TextRange> all;
    for (std::size_t at = text.find(string_); at != std::string_view::npos;
         at = text.find(string_, at + string_.size()))
      all.push_back({at, at + string_.size()});
    return all;
  }

 private:
  std::string string_;
};

class RegexPattern : public Pattern {
 public:
  explicit RegexPattern(Regex regex) : regex_(std::move(regex)) {}
  [[nodiscard]] std::vector<TextRange> find(std::string_view text) const override {
    return regex_.find(text);
  }

 private:
  Regex regex_;
};

class KnownPattern : public Pattern {
 public:
  explicit KnownPattern(FindWords words) : find_(words) {}
  [[nodiscard]] std::vector<TextRange> find(std::string_view text) const override { return find_(text); }

 private:
  FindWords find_;
};

class PointPattern : public Pattern {
 public:
  explicit PointPattern(bool (*holds)(std::uint32_t)) : holds_(holds) {
    for (std::uint32_t point = 0; point < ascii_.size(); ++point) ascii_[point] = holds(point);
  }
  [[nodiscard]] std::vector<TextRange> find(std::string_view text) const override {
    std::vector<TextRange> all;
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      const CodePoint point = byte < 0x80 ? CodePoint{byte, 1, true} : decode_utf8(text.substr(at));
      if (byte < 0x80 ? ascii_[byte] : holds_(point.value)) all.push_back({at, at + point.length});
      at += point.length;
    }
    return all;
  }

 private:
  bool (*holds_)(std::uint32_t);
  std::array<bool, 0x80> ascii_ = {};
};

}  // namespace

std::unique_ptr<const Pattern> string_pattern(std::string string) {
  return std::make_unique<StringPattern>(std::move(string));
}

std::unique_ptr<const Pattern> point_pattern(bool (*holds)(std::uint32_t point)) {
  return std::make_unique<PointPattern>(holds);
}

std::unique_ptr<const Pattern> pattern_from(const JsonPart& part) {
  const JsonPart pattern(part.at("pattern"), part.file(), "a pattern");
  if (!pattern.has("String")) return regex_pattern(pattern.text("Regex"), part);
  const std::string string = pattern.text("String");
  return string.empty() ? regex_pattern(string, part) : string_pattern(string);
}

std::unique_ptr<const Pattern> regex_pattern(const std::string& regex, const JsonPart& part) {
  if (const FindWords known = known_pattern(regex)) return std::make_unique<KnownPattern>(known);
  return std::make_unique<RegexPattern>(Regex(regex, part));
}

void replace(const Pattern& pattern, std::string_view content, AlignedText& text) {
  TextEdit edit(text);
  for (const TextRange& match : pattern.find(text.text())) {
    const std::size_t end = match.end;
    const Span before = end == 0 ? Span{text.start(), text.start()} : text.span(end - 1, end);
    edit.replace(match.begin, end, content, before);
  }
  edit.finish();
}

void prepend(std::string_view prefix, AlignedText& text) {
  if (text.size() == 0) return;
  TextEdit edit(text);
  edit.replace(0, 0, prefix, text.span(0, 1));
  edit.finish();
}

}  // namespace heed::detail
