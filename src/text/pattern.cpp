#include "text/pattern.hpp"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/known_patterns.hpp"
#include "text/shared/aligned.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail {
namespace {

class PointPattern {
 public:
  explicit PointPattern(bool (*holds)(std::uint32_t)) : holds_(holds) {
    for (std::uint32_t point = 0; point < ascii_.size(); ++point) ascii_[point] = holds(point);
  }
  std::vector<TextRange> operator()(std::string_view text) const {
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

Pattern string_pattern(std::string string) {
  return [string = std::move(string)](std::string_view text) {
    std::vector<TextRange> all;
    for (std::size_t at = text.find(string); at != std::string_view::npos;
         at = text.find(string, at + string.size()))
      all.push_back({at, at + string.size()});
    return all;
  };
}

Pattern point_pattern(bool (*holds)(std::uint32_t point)) { return PointPattern(holds); }

Pattern pattern_from(const JsonPart& part) {
  const JsonPart pattern(part.at("pattern"), part.file(), "a pattern");
  if (!pattern.has("String")) return regex_pattern(pattern.text("Regex"), part);
  const std::string string = pattern.text("String");
  return string.empty() ? regex_pattern(string, part) : string_pattern(string);
}

Pattern regex_pattern(const std::string& regex, const JsonPart& part) {
  if (const FindWords known = known_pattern(regex)) return known;
  const auto compiled = std::make_shared<const Regex>(regex, part);
  return [compiled](std::string_view text) { return compiled->find(text); };
}

void replace(const Pattern& pattern, std::string_view content, AlignedText& text) {
  TextEdit edit(text);
  for (const TextRange& match : pattern(text.text())) {
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
