#include "text/normal_forms.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "text/shared/text_edit.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail {
namespace {

struct Piece {
  std::uint32_t point = 0;
  std::int64_t change = 0;  // see PointChange
  int combining_class = 0;
};

bool composes(NormalForm form) { return form == NormalForm::nfc || form == NormalForm::nfkc; }

// All code points beyond equal their normal forms.
constexpr std::uint32_t kPointsWithForms = 0x30000;
// Longer than the decomposition of any code point.
constexpr std::size_t kLongest = 32;

int combining_class(std::uint32_t point) {
  return is_of_unicode_9(point) ? utf8proc_get_property(static_cast<utf8proc_int32_t>(point))->combining_class
                                : 0;
}

// Adds the full decomposition of a code point.
void decompose(std::uint32_t point, NormalForm form, std::vector<Piece>& pieces) {
  if (!is_of_unicode_9(point)) return pieces.push_back({point, 0, 0});
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const int options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0);
  std::array<utf8proc_int32_t, kLongest> parts{};
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), parts.data(), kLongest,
                                             static_cast<utf8proc_option_t>(options), nullptr);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto part = static_cast<std::uint32_t>(parts[i]);
    pieces.push_back({part, i == 0 ? 0 : 1, combining_class(part)});
  }
}

// Sorts the marks after each letter into canonical order.
void order(std::vector<Piece>& pieces) {
  for (auto begin = pieces.begin(); begin != pieces.end();) {
    const auto is_starter = [](const Piece& piece) { return piece.combining_class == 0; };
    const auto end = std::find_if(begin, pieces.end(), is_starter);
    std::stable_sort(begin, end,
                     [](const Piece& a, const Piece& b) { return a.combining_class < b.combining_class; });
    begin = std::find_if_not(end, pieces.end(), is_starter);
  }
}

// The composition of two code points, or 0.
std::uint32_t composed(std::uint32_t first, std::uint32_t second) {
  std::array<utf8proc_int32_t, 2> both = {static_cast<utf8proc_int32_t>(first),
                                          static_cast<utf8proc_int32_t>(second)};
  const int options = UTF8PROC_COMPOSE | UTF8PROC_STABLE;
  const auto count = utf8proc_normalize_utf32(both.data(), 2, static_cast<utf8proc_option_t>(options));
  const auto one = static_cast<std::uint32_t>(both[0]);
  return count == 1 && is_of_unicode_9(one) ? one : 0;
}

void compose(std::vector<Piece>& pieces) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t starter = kNone;
  int last_class = -1;  // class of the last piece between the starter and this one; -1: none
  std::size_t count = 0;
  for (const Piece piece : pieces) {
    const bool blocked = last_class >= piece.combining_class;
    const std::uint32_t one = starter == kNone || blocked ? 0 : composed(pieces[starter].point, piece.point);
    if (one != 0) {
      pieces[starter].point = one;
      pieces[starter].change += piece.change - 1;
      continue;
    }
    if (piece.combining_class == 0) starter = count;
    if (starter != kNone) last_class = piece.combining_class == 0 ? -1 : piece.combining_class;
    pieces[count++] = piece;
  }
  pieces.resize(count);
}

// Whether a code point keeps its form whatever precedes it, and does not affect what precedes it.
bool is_inert_alone(std::uint32_t point, NormalForm form) {
  std::vector<Piece> pieces;
  decompose(point, form, pieces);
  if (pieces.front().combining_class != 0) return false;
  if (composes(form)) compose(pieces);
  return pieces.size() == 1 && pieces.front().point == point;
}

std::vector<bool> inert_points(NormalForm form) {
  std::vector<bool> inert(kPointsWithForms);
  for (std::uint32_t point = 0; point < kPointsWithForms; ++point) inert[point] = is_inert_alone(point, form);
  if (!composes(form)) return inert;
  // It must not compose with a code point before it, as the last part of a composition would.
  for (std::uint32_t point = 0; point < kPointsWithForms; ++point) {
    std::vector<Piece> pieces;
    decompose(point, NormalForm::nfd, pieces);
    if (pieces.size() > 1) inert[pieces.back().point] = false;
  }
  return inert;
}

bool is_inert(std::uint32_t point, NormalForm form) {
  if (point >= kPointsWithForms) return true;
  switch (form) {
    case NormalForm::nfc: {
      static const std::vector<bool> points = inert_points(NormalForm::nfc);
      return points[point];
    }
    case NormalForm::nfd: {
      static const std::vector<bool> points = inert_points(NormalForm::nfd);
      return points[point];
    }
    case NormalForm::nfkc: {
      static const std::vector<bool> points = inert_points(NormalForm::nfkc);
      return points[point];
    }
    case NormalForm::nfkd:
      break;
  }
  static const std::vector<bool> points = inert_points(NormalForm::nfkd);
  return points[point];
}

void normalize_part(TextEdit& edit, std::string_view text, std::size_t begin, std::size_t end,
                    NormalForm form) {
  std::vector<Piece> pieces;
  for (std::size_t at = begin; at < end;) {
    const CodePoint point = decode_utf8(text.substr(at));
    decompose(point.value, form, pieces);
    at += point.length;
  }
  order(pieces);
  if (composes(form)) compose(pieces);
  std::vector<PointChange> changes;
  for (const Piece& piece : pieces) changes.push_back({piece.point, piece.change});
  edit.replace(begin, end, changes);
}

}  // namespace

void normalize(AlignedText& text, NormalForm form) {
  TextEdit edit(text);
  const std::string_view bytes = text.text();
  std::size_t begin = 0;  // of the previous inert code point, which may compose with the next ones
  bool changes = false;   // a code point since then is not inert
  for (std::size_t at = 0; at < bytes.size();) {
    const bool ascii = static_cast<unsigned char>(bytes[at]) < 0x80;
    const CodePoint point = ascii ? CodePoint{0, 1, true} : decode_utf8(bytes.substr(at));
    if (ascii || is_inert(point.value, form)) {
      if (changes) normalize_part(edit, bytes, begin, at, form);
      begin = at;
      changes = false;
    } else {
      if (!changes && !composes(form)) begin = at;
      changes = true;
    }
    at += point.length;
  }
  if (changes) normalize_part(edit, bytes, begin, bytes.size(), form);
  edit.finish();
}

}  // namespace heed::detail
