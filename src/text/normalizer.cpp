#include "text/normalizer.hpp"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "text/byte_level.hpp"
#include "text/charsmap.hpp"
#include "text/normal_forms.hpp"
#include "text/pattern.hpp"
#include "text/shared/text_edit.hpp"
#include "text/shared/unicode.hpp"

namespace heed::detail {
namespace {

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

class Bert : public Normalizer {
 public:
  explicit Bert(const JsonPart& part)
      : clean_(part.flag("clean_text")),
        ideographs_(part.flag("handle_chinese_chars")),
        lower_(part.flag("lowercase")),
        accents_(part.flag("strip_accents", lower_)) {}
  void apply(AlignedText& text) const override {
    if (clean_) clean(text);
    if (ideographs_) space_ideographs(text);
    if (accents_) {
      normalize(text, NormalForm::nfd);
      drop_points(text, is_nonspacing_mark);
    }
    if (lower_) lower(text);
  }

 private:
  bool clean_, ideographs_, lower_, accents_;
};

class Form : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  void apply(AlignedText& text) const override { normalize(text, form_); }

 private:
  NormalForm form_;
};

// A normalizer without settings.
class Plain : public Normalizer {
 public:
  explicit Plain(void (*change)(AlignedText&)) : change_(change) {}
  void apply(AlignedText& text) const override { change_(text); }

 private:
  void (*change_)(AlignedText&);
};

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

class Strip : public Normalizer {
 public:
  explicit Strip(const JsonPart& part) : left_(part.flag("strip_left")), right_(part.flag("strip_right")) {}
  void apply(AlignedText& text) const override {
    const std::string_view bytes = text.text();
    std::size_t begin = 0;
    std::size_t end = bytes.size();
    while (left_ && begin < end) {
      const CodePoint point = decode_utf8(bytes.substr(begin));
      if (!is_white_space(point.value)) break;
      begin += point.length;
    }
    while (right_ && begin < end) {
      const std::size_t last = begin_of_last(bytes.substr(0, end));
      if (!is_white_space(decode_utf8(bytes.substr(last)).value)) break;
      end = last;
    }
    if (end - begin < bytes.size()) text = text.part(begin, end);
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(const JsonPart& part) : prefix_(part.text("prepend")) {}
  void apply(AlignedText& text) const override { prepend(prefix_, text); }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  explicit Replace(const JsonPart& part) : pattern_(pattern_from(part)), content_(part.text("content")) {}
  void apply(AlignedText& text) const override { replace(*pattern_, content_, text); }

 private:
  std::unique_ptr<const Pattern> pattern_;
  std::string content_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(const JsonPart& part) {
    for (const JsonPart& one : part.parts("normalizers")) all_.push_back(normalizer_from(one));
  }
  void apply(AlignedText& text) const override {
    for (const auto& one : all_) one->apply(text);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> all_;
};

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(const JsonPart& part) : map_(part.text("precompiled_charsmap"), part) {}
  void apply(AlignedText& text) const override { map_.apply(text); }

 private:
  Charsmap map_;
};

}  // namespace

std::unique_ptr<const Normalizer> normalizer_from(const JsonPart& part) {
  const std::string& type = part.type();
  if (type == "BertNormalizer") return std::make_unique<Bert>(part);
  if (type == "NFC") return std::make_unique<Form>(NormalForm::nfc);
  if (type == "NFD") return std::make_unique<Form>(NormalForm::nfd);
  if (type == "NFKC") return std::make_unique<Form>(NormalForm::nfkc);
  if (type == "NFKD") return std::make_unique<Form>(NormalForm::nfkd);
  if (type == "Lowercase") return std::make_unique<Plain>(lower);
  if (type == "StripAccents") return std::make_unique<Plain>(strip_accents);
  if (type == "Nmt") return std::make_unique<Plain>(nmt);
  if (type == "ByteLevel") return std::make_unique<Plain>(to_letters);
  if (type == "Strip") return std::make_unique<Strip>(part);
  if (type == "Prepend") return std::make_unique<Prepend>(part);
  if (type == "Replace") return std::make_unique<Replace>(part);
  if (type == "Precompiled") return std::make_unique<Precompiled>(part);
  if (type == "Sequence") return std::make_unique<Sequence>(part);
  part.fail_type();
}

}  // namespace heed::detail
