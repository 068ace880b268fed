#include "text/shared/text_edit.hpp"

#include <algorithm>
#include <utility>

namespace heed::detail {

void TextEdit::begin_at(std::size_t begin) {
  if (!changed_) edited_ = AlignedText::rewritten(text_.size() + text_.size() / 8);
  changed_ = true;
  edited_.add(text_, kept_, begin);
}

void TextEdit::replace(std::size_t begin, std::size_t end, std::string_view bytes, Span span) {
  begin_at(begin);
  edited_.add(bytes, span);
  kept_ = end;
}

void TextEdit::replace(std::size_t begin, std::size_t end, const std::vector<PointChange>& changes) {
  begin_at(begin);
  const std::string_view text = text_.text();
  std::size_t at = begin;
  const auto skip = [&] { at += at < end ? decode_utf8(text.substr(at)).length : 0; };
  std::string bytes;
  for (const PointChange& one : changes) {
    Span span = {text_.start(), text_.start()};
    if (one.change > 0 || at == end) {
      if (at > 0) span = text_.span(at - 1, at);
    } else {
      const std::size_t from = at;
      skip();
      span = text_.span(from, at);
      for (std::int64_t left = one.change; left < 0; ++left) skip();
    }
    bytes.clear();
    append_utf8(one.point, bytes);
    edited_.add(bytes, span);
  }
  kept_ = end;
}

void TextEdit::finish() {
  if (!changed_) return;
  edited_.add(text_, kept_, text_.size());
  text_ = std::move(edited_);
}

}  // namespace heed::detail
