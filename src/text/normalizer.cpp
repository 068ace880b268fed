#include "text/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "text/byte_level.hpp"
#include "text/charsmap.hpp"
#include "text/pattern.hpp"
#include "text/shared/aligned.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail {
namespace {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

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
  struct Table {
    std::once_flag made;
    std::vector<bool> inert;
  };
  static std::array<Table, 4> tables;
  Table& table = tables[static_cast<std::size_t>(form)];
  std::call_once(table.made, [&] { table.inert = inert_points(form); });
  return table.inert[point];
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

// Uses Unicode 9: newer code points stay unchanged.
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

template <typename Keep>
constexpr LeadBytes lead_bytes(Keep keep) {
  LeadBytes kept = {};
  for (std::size_t byte = 0; byte < kept.size(); ++byte) kept[byte] = keep(byte);
  return kept;
}

bool is_continuation_byte(std::size_t byte) { return byte >= 0x80 && byte < 0xC0; }
bool is_ascii_or_continuation(std::size_t byte) { return byte < 0xC0; }

void lower(AlignedText& text) {
  static const LeadBytes kept =
      lead_bytes([](std::size_t byte) { return byte < 0xC0 && (byte < 'A' || byte > 'Z'); });
  change_points(text, kept, [](std::uint32_t point, std::string& bytes) {
    const std::uint32_t lowered = point == 0x130 ? 'i' : lower_case(point);
    if (lowered == point) return false;
    append_utf8(lowered, bytes);
    if (point == 0x130) append_utf8(0x307, bytes);
    return true;
  });
}

template <typename Drop>
void drop_points(AlignedText& text, Drop drop) {
  static const LeadBytes kept = lead_bytes(is_ascii_or_continuation);
  change_points(text, kept, [&](std::uint32_t point, std::string&) { return drop(point); });
}

// BERT's cleaning: removes control characters, and turns white space into spaces.
void clean(AlignedText& text) {
  static const LeadBytes kept =
      lead_bytes([](std::size_t byte) { return is_continuation_byte(byte) || (byte >= ' ' && byte < 0x7F); });
  change_points(text, kept, [](std::uint32_t point, std::string& bytes) {
    const bool space = is_white_space(point);
    // The only controls that count as white space are tabs and line ends.
    const bool blank = point == '\t' || point == '\n' || point == '\r';
    if (point == 0 || point == 0xFFFD || (is_control(point) && !blank)) return true;
    if (space) bytes = " ";
    return space;
  });
}

bool is_ideograph(std::uint32_t point) {
  return (point >= 0x4E00 && point <= 0x9FFF) || (point >= 0x3400 && point <= 0x4DBF) ||
         (point >= 0x20000 && point <= 0x2A6DF) || (point >= 0x2A700 && point <= 0x2B81F) ||
         (point >= 0x2B920 && point <= 0x2CEAF) || (point >= 0xF900 && point <= 0xFAFF) ||
         (point >= 0x2F800 && point <= 0x2FA1F);
}

void space_ideographs(AlignedText& text) {
  static const LeadBytes kept = lead_bytes([](std::size_t byte) { return byte < 0xE0; });
  change_points(text, kept, [](std::uint32_t point, std::string& bytes) {
    if (!is_ideograph(point)) return false;
    bytes = " ";
    append_utf8(point, bytes);
    bytes += ' ';
    return true;
  });
}

Normalizer bert_normalizer(const JsonPart& part) {
  const bool cleans = part.flag("clean_text"), ideographs = part.flag("handle_chinese_chars"),
             lowers = part.flag("lowercase"), accents = part.flag("strip_accents", lowers);
  return [=](AlignedText& text) {
    if (cleans) clean(text);
    if (ideographs) space_ideographs(text);
    if (accents) {
      normalize(text, NormalForm::nfd);
      drop_points(text, is_nonspacing_mark);
    }
    if (lowers) lower(text);
  };
}

Normalizer in_form(NormalForm form) {
  return [form](AlignedText& text) { normalize(text, form); };
}

void strip_accents(AlignedText& text) { drop_points(text, is_mark); }

// SentencePiece's rules for machine translation.
void nmt(AlignedText& text) {
  static const LeadBytes kept =
      lead_bytes([](std::size_t byte) { return is_continuation_byte(byte) || (byte >= ' ' && byte < 0x7F); });
  change_points(text, kept, [](std::uint32_t point, std::string& bytes) {
    const bool dropped = (point >= 0x1 && point <= 0x8) || point == 0xB || (point >= 0xE && point <= 0x1F) ||
                         point == 0x7F || point == 0x8F || point == 0x9F;
    const bool space = point == 0x9 || point == 0xA || point == 0xC || point == 0xD || point == 0x1680 ||
                       (point >= 0x200B && point <= 0x200F) || point == 0x2028 || point == 0x2029 ||
                       point == 0x2581 || point == 0xFEFF || point == 0xFFFD;
    if (space) bytes = " ";
    return dropped || space;
  });
}

void to_letters(AlignedText& text) {
  AlignedText letters = AlignedText::rewritten(text.size() * 2);
  add_letters(text, 0, text.size(), letters);
  text = std::move(letters);
}

void strip_space(bool at_begin, bool at_end, AlignedText& text) {
  const std::string_view bytes = text.text();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (at_begin && begin < end) {
    const CodePoint point = decode_utf8(bytes.substr(begin));
    if (!is_white_space(point.value)) break;
    begin += point.length;
  }
  while (at_end && begin < end) {
    const std::size_t last = begin_of_last(bytes.substr(0, end));
    if (!is_white_space(decode_utf8(bytes.substr(last)).value)) break;
    end = last;
  }
  if (end - begin < bytes.size()) text = text.part(begin, end);
}

Normalizer normalizer_sequence(const JsonPart& part) {
  std::vector<Normalizer> all;
  for (const JsonPart& one : part.parts("normalizers")) all.push_back(normalizer_from(one));
  return [all](AlignedText& text) {
    for (const Normalizer& one : all) one(text);
  };
}

}  // namespace

Normalizer normalizer_from(const JsonPart& part) {
  const std::string& type = part.type();
  if (type == "BertNormalizer") return bert_normalizer(part);
  if (type == "NFC") return in_form(NormalForm::nfc);
  if (type == "NFD") return in_form(NormalForm::nfd);
  if (type == "NFKC") return in_form(NormalForm::nfkc);
  if (type == "NFKD") return in_form(NormalForm::nfkd);
  if (type == "Lowercase") return lower;
  if (type == "StripAccents") return strip_accents;
  if (type == "Nmt") return nmt;
  if (type == "ByteLevel") return to_letters;
  if (type == "Strip")
    return [left = part.flag("strip_left"), right = part.flag("strip_right")](AlignedText& text) {
      strip_space(left, right, text);
    };
  if (type == "Prepend") return [prefix = part.text("prepend")](AlignedText& text) { prepend(prefix, text); };
  if (type == "Replace")
    return [pattern = pattern_from(part), content = part.text("content")](AlignedText& text) {
      replace(pattern, content, text);
    };
  if (type == "Precompiled")
    return [map = std::make_shared<const Charsmap>(part.text("precompiled_charsmap"), part)](
               AlignedText& text) { map->apply(text); };
  if (type == "Sequence") return normalizer_sequence(part);
  part.fail_type();
}

}  // namespace heed::detail
