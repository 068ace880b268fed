#include "text/shared/aligned.hpp"

#include <utility>

namespace heed::detail {

Span AlignedText::span(std::size_t begin, std::size_t end) const {
  if (changed_) return {spans_[begin].begin, spans_[end - 1].end};
  while (begin > 0 && continues_letter(text_[begin])) --begin;
  while (end < text_.size() && continues_letter(text_[end])) ++end;
  return {begin_ + static_cast<std::uint32_t>(begin), begin_ + static_cast<std::uint32_t>(end)};
}

AlignedText AlignedText::part(std::size_t begin, std::size_t end) const {
  AlignedText part(std::string_view(text_).substr(begin, end - begin), begin_ + begin);
  part.changed_ = changed_;
  if (changed_)
    part.spans_.assign(spans_.begin() + static_cast<std::ptrdiff_t>(begin),
                       spans_.begin() + static_cast<std::ptrdiff_t>(end));
  return part;
}

void AlignedText::add(const AlignedText& other, std::size_t begin, std::size_t end) {
  text_.append(other.text_, begin, end - begin);
  if (other.changed_) {
    const auto first = other.spans_.begin();
    spans_.insert(spans_.end(), first + static_cast<std::ptrdiff_t>(begin),
                  first + static_cast<std::ptrdiff_t>(end));
    return;
  }
  for (std::size_t at = begin; at < end;) {
    std::size_t next = at + 1;
    while (next < end && continues_letter(other.text_[next])) ++next;
    spans_.resize(spans_.size() + next - at, other.span(at, next));
    at = next;
  }
}

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
