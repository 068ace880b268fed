#include "text/shared/aligned.hpp"

namespace heed::detail {

namespace {

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80u; }

}  // namespace

Span AlignedText::span(std::size_t begin, std::size_t end) const {
  if (changed_) return {spans_[begin].begin, spans_[end - 1].end};
  while (begin > 0 && is_continuation(text_[begin])) --begin;
  while (end < text_.size() && is_continuation(text_[end])) ++end;
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
    while (next < end && is_continuation(other.text_[next])) ++next;
    spans_.resize(spans_.size() + next - at, other.span(at, next));
    at = next;
  }
}

}  // namespace heed::detail
