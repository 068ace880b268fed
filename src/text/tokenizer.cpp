#include "heed/model/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/message.hpp"
#include "core/utf8.hpp"
#include "io/fault.hpp"
#include "io/json_file.hpp"
#include "text/added_tokens.hpp"
#include "text/models/token_model.hpp"
#include "text/post_processor.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/shared/unicode.hpp"
#include "text/token_decoder.hpp"
#include "text/tokenizer_json.hpp"

namespace heed::detail {
namespace {

constexpr std::string_view kHalf = "\uFFFD";   // the decoded text of an incomplete letter
constexpr std::string_view kContinues = "·";   // before a piece that continues a word
constexpr std::size_t kLongestLetter = 4;      // in bytes
constexpr std::size_t kWindow = 6;             // earlier tokens that a token's text may depend on
constexpr std::size_t kLongestWindow = 64;     // if a shorter one decodes differently from the text
constexpr std::uint32_t kIdeographs = 0x2E80;  // words of scripts from here on are not separated by spaces

// The text of a token: token n (from 0) of `of` tokens that spell it together.
struct TokenText {
  std::string text;
  std::size_t n = 0, of = 1;
};

std::string_view without_letters(std::string_view text, std::size_t count) {
  for (; count > 0 && !text.empty(); --count) text.remove_prefix(decode_utf8(text).length);
  return text;
}

std::string_view without_spaces(std::string_view text) {
  const std::size_t at = text.find_first_not_of(' ');
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

// The concatenation of the texts is the decoded text. A token may decode differently after others, so its
// text is what it adds to the text of some tokens before it.
std::vector<TokenText> texts_of(const Tokenizer& tokenizer, std::span<const std::int64_t> ids) {
  const auto decoded = [&](std::size_t begin, std::size_t end) {
    return tokenizer.decode(ids.subspan(begin, end - begin), false);
  };
  std::vector<TokenText> texts;
  std::size_t start = 0, waiting = 0;
  std::string known;
  for (std::size_t end = 1; end <= ids.size(); ++end) {
    const std::string text = decoded(start, end);
    ++waiting;
    if (text.ends_with(kHalf) && waiting < kLongestLetter && end < ids.size()) continue;
    const std::string_view added = without_letters(text, letters_in(known));
    for (std::size_t n = 0; n < waiting; ++n) texts.push_back({std::string(added), n, waiting});
    waiting = 0;
    const std::size_t window = std::max(start, end - std::min(end, kWindow));
    const std::string alone = decoded(window, end);
    const bool splits = !alone.starts_with(kHalf) && text.ends_with(without_spaces(alone));
    if (splits || end - start > kLongestWindow) start = window;
    known = decoded(start, end);
  }
  return texts;
}

std::string_view last_letter(std::string_view text) { return text.substr(begin_of_last(text)); }

// Whether the letter belongs to a script that separates words by spaces.
bool is_spaced(std::string_view letter) {
  const std::uint32_t point = decode_utf8(letter).value;
  const bool is_letter = is_word(point) && !is_mark(point) && !is_punctuation(point) && !is_control(point);
  return point < kIdeographs && (is_letter || is_numeric(point));
}

std::string in_brackets(const std::string& name) {
  const bool has_own =
      (name.front() == '[' && name.back() == ']') || (name.front() == '<' && name.back() == '>');
  return has_own ? name : "⟨" + name + "⟩";
}

// Implements Tokenizer::shown. Every id must be a token.
std::vector<std::string> shown_tokens(const Tokenizer& tokenizer, std::span<const std::int64_t> ids) {
  const std::vector<TokenText> texts = texts_of(tokenizer, ids);
  std::vector<std::string> shown;
  std::string before;  // the last letter before the token
  for (std::size_t place = 0; place < ids.size(); ++place) {
    if (tokenizer.is_special(ids[place])) {
      shown.push_back(in_brackets(*tokenizer.token(ids[place])));
      before.clear();
      continue;
    }
    const auto& [text, n, of] = texts[place];
    std::string word(without_spaces(text));
    if (word.empty()) word = text;
    if (of > 1) word += " " + std::to_string(n + 1) + "/" + std::to_string(of);
    if (n == 0 && !before.empty() && !text.empty() && is_spaced(before) && is_spaced(text))
      word.insert(0, kContinues);
    if (!text.empty()) before = last_letter(text);
    shown.push_back(std::move(word));
  }
  return shown;
}

// Hashes eight bytes at a time. On a collision the later word takes the slot.
std::uint64_t hash_of(std::string_view word) {
  std::uint64_t hash = word.size();
  for (std::size_t at = 0; at < word.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t part = 0;
    std::memcpy(&part, word.data() + at, std::min(sizeof part, word.size() - at));
    hash = (std::rotl(hash, 23) ^ part) * 0x9E3779B97F4A7C15u;
  }
  return hash >> 32;
}

// For one thread and one text; the table's size depends on the text's. The model must outlive it.
class PieceCache {
 public:
  PieceCache(const TokenModel& model, std::size_t text_size)
      : model_(model), slots_(std::bit_ceil(std::clamp(text_size / 32, std::size_t{1}, kMaxSlots))) {}

  /// The result of model.cut(word), valid until the next call.
  [[nodiscard]] std::span<const TokenPiece> pieces_of(std::string_view word) {
    pieces_.clear();
    if (word.size() > kLongestWord) {
      model_.cut(word, pieces_);
      return pieces_;
    }
    Slot& slot = slots_[hash_of(word) & (slots_.size() - 1)];
    if (std::string_view(slot.word.data(), slot.size) != word) {
      model_.cut(word, pieces_);
      keep(word, slot);
      return pieces_;
    }
    for (std::size_t i = 0; i < slot.count; ++i)
      pieces_.push_back({slot.ids[i], slot.places[2 * i], slot.places[2 * i + 1]});
    return pieces_;
  }

 private:
  static constexpr std::size_t kLongestWord = 40;
  static constexpr std::size_t kMaxPieces = 8;
  static constexpr std::size_t kMaxSlots = std::size_t{1} << 13;

  struct Slot {
    std::uint8_t size = 0;  // of the word; 0: the slot is empty
    std::uint8_t count = 0;
    std::array<char, kLongestWord> word = {};
    std::array<std::uint8_t, 2 * kMaxPieces> places = {};  // begin and end of each piece
    std::array<std::int32_t, kMaxPieces> ids = {};
  };

  void keep(std::string_view word, Slot& slot) const {
    if (pieces_.size() > kMaxPieces) return;
    slot.size = static_cast<std::uint8_t>(word.size());
    slot.count = static_cast<std::uint8_t>(pieces_.size());
    std::copy(word.begin(), word.end(), slot.word.begin());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      slot.ids[i] = static_cast<std::int32_t>(pieces_[i].id);
      slot.places[2 * i] = static_cast<std::uint8_t>(pieces_[i].begin);
      slot.places[2 * i + 1] = static_cast<std::uint8_t>(pieces_[i].end);
    }
  }

  const TokenModel& model_;
  std::vector<Slot> slots_;  // their number is a power of two
  std::vector<TokenPiece> pieces_;
};

}  // namespace
}  // namespace heed::detail

namespace heed {

using namespace detail;
using nlohmann::json;

namespace {

// Real tokenizers with 300,000 tokens have files of 40 MB and two million values.
constexpr std::uintmax_t kMaxTokenizerMiB = 128;
constexpr detail::JsonLimits kTokenizerLimits = {.depth = 32, .members = 2'000'000, .values = 8'000'000};

void check_text(std::string_view text) {
  if (text.size() > std::numeric_limits<std::uint32_t>::max())
    refuse("text has ", text.size(), " bytes; fewer than 2^32 are expected");
  for (std::size_t at = 0; at < text.size();) {
    const auto point = decode_utf8(text.substr(at));
    if (!point.valid) refuse("text is not UTF-8 at byte ", at);
    at += point.length;
  }
}

// A part that may be missing or null.
template <typename Part>
Part part_of(const JsonPart& file, const char* member, const char* name, Part (*make)(const JsonPart& part)) {
  return file.has(member) ? make(JsonPart(file.at(member), file.file(), name)) : Part();
}

std::vector<JsonPart> added_tokens_of(const JsonPart& file) {
  if (!file.has("added_tokens")) return {};
  return file.parts("added_tokens", "an added token");
}

// Checks what is not read. Truncation and padding do nothing here: heed neither cuts nor fills texts. But a
// file in which one is wrong is no tokenizer.
void check_unread(const json& values, const JsonPart& file) {
  constexpr std::array<std::string_view, 9> kKnown{"version",        "truncation", "padding",
                                                   "added_tokens",   "normalizer", "pre_tokenizer",
                                                   "post_processor", "decoder",    "model"};
  for (const auto& [name, value] : values.items())
    if (std::ranges::find(kKnown, name) == kKnown.end())
      file.fail("with a member ", io::detail::printable(name), ", which heed does not know");
  if (file.has("truncation")) {
    const JsonPart part(file.at("truncation"), file.file(), "a truncation");
    for (const char* size : {"max_length", "stride"}) (void)part.integer(size, 0, INT64_MAX);
    (void)part.choice("strategy", {"LongestFirst", "OnlyFirst", "OnlySecond"});
    (void)part.choice("direction", {"Left", "Right"}, "Right");
  }
  if (file.has("padding")) {
    const JsonPart part(file.at("padding"), file.file(), "a padding");
    for (const char* id : {"pad_id", "pad_type_id"}) (void)part.integer(id, 0, UINT32_MAX);
    (void)part.integer("pad_to_multiple_of", 0, INT64_MAX, 0);
    (void)part.text("pad_token");
    (void)part.choice("direction", {"Left", "Right"});
    if (!part.at("strategy").is_object())
      (void)part.choice("strategy", {"BatchLongest"});
    else
      (void)JsonPart(part.at("strategy"), part.file(), "a strategy").integer("Fixed", 0, INT64_MAX);
  }
}

}  // namespace

struct HEED_HIDDEN Tokenizer::Impl {
  explicit Impl(const JsonPart& file)
      : normalizer(part_of(file, "normalizer", "a normalizer", normalizer_from)),
        pre_tokenizer(part_of(file, "pre_tokenizer", "a pre-tokenizer", pre_tokenizer_from)),
        post_processor(part_of(file, "post_processor", "a post-processor", post_processor_from)),
        decoder(part_of(file, "decoder", "a decoder", token_decoder_from)),
        vocabulary(token_model_from(file.at("model"), file.file()), added_tokens_of(file), normalizer),
        given(vocabulary, false),
        normalized(vocabulary, true) {}

  void encode_given(std::string_view text, std::size_t begin, PieceCache& cache,
                    std::vector<TextToken>& tokens) const;
  void encode_normalized(AlignedText text, PieceCache& cache, std::vector<TextToken>& tokens) const;
  [[nodiscard]] TextToken token_of(const FoundToken& found, Span span) const {
    return {found.id, span.begin, span.end, vocabulary.is_special(found.id)};
  }

  Normalizer normalizer;  // these may be empty
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  TokenDecoder decoder;
  TokenVocabulary vocabulary;
  AddedTokenFinder given;       // finds tokens in the text as given
  AddedTokenFinder normalized;  // finds tokens in the normalised text
};

// Encodes a part of the text between added tokens, which begins at byte `begin`.
void Tokenizer::Impl::encode_given(std::string_view text, std::size_t begin, PieceCache& cache,
                                   std::vector<TextToken>& tokens) const {
  AlignedText changed(text, begin);
  if (normalizer) normalizer(changed);
  const auto all = normalized.find(changed.text());
  if (all.empty()) return encode_normalized(std::move(changed), cache, tokens);
  std::size_t at = 0;
  for (const FoundToken& found : all) {
    if (at < found.begin) encode_normalized(changed.part(at, found.begin), cache, tokens);
    tokens.push_back(token_of(found, changed.span(found.begin, found.end)));
    at = found.end;
  }
  if (at < changed.size()) encode_normalized(changed.part(at, changed.size()), cache, tokens);
}

void Tokenizer::Impl::encode_normalized(AlignedText text, PieceCache& cache,
                                        std::vector<TextToken>& tokens) const {
  if (text.size() == 0) return;
  const std::size_t size = text.size();
  Words words{std::move(text), {{0, size}}};
  if (pre_tokenizer) pre_tokenizer(words);
  for (const auto& word : words.words) {
    const std::string_view bytes = std::string_view(words.text.text()).substr(0, word.end);
    for (std::size_t begin = word.begin, next = begin; begin < word.end; begin = next) {
      next = begin + vocabulary.model().separable(bytes.substr(begin));
      for (const TokenPiece& piece : cache.pieces_of(bytes.substr(begin, next - begin))) {
        const Span span = words.text.span(begin + piece.begin, begin + piece.end);
        tokens.push_back({piece.id, span.begin, span.end, vocabulary.is_special(piece.id)});
      }
    }
  }
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::string detail::TokenizerJson::bytes(const std::string& path) {
  return io::detail::bytes_in(path, kMaxTokenizerMiB);
}

json detail::TokenizerJson::values(std::string_view text, const std::string& subject) {
  io::detail::check_json(text, subject, kTokenizerLimits);
  return parsed(text);
}

Tokenizer detail::TokenizerJson::tokenizer(const json& values, const std::string& subject) {
  const JsonPart file(values, subject, "a value");
  if (file.text("version", "1.0") != "1.0") file.fail("whose version is not 1.0");
  check_unread(values, file);
  return Tokenizer(std::make_unique<const Tokenizer::Impl>(file));
}

Tokenizer Tokenizer::from_json(std::string_view text, const std::string& name) {
  const std::string subject = io::detail::subject_of(name);
  return TokenizerJson::tokenizer(TokenizerJson::values(text, subject), subject);
}

Tokenizer Tokenizer::from_file(const std::string& path) {
  return from_json(TokenizerJson::bytes(path), path);
}

std::vector<TextToken> Tokenizer::encode(std::string_view text, bool add_special) const {
  check_text(text);
  std::vector<TextToken> tokens;
  PieceCache cache(impl_->vocabulary.model(), text.size());
  std::size_t at = 0;
  for (const FoundToken& found : impl_->given.find(text)) {
    if (at < found.begin) impl_->encode_given(text.substr(at, found.begin - at), at, cache, tokens);
    tokens.push_back(impl_->token_of(
        found, {static_cast<std::uint32_t>(found.begin), static_cast<std::uint32_t>(found.end)}));
    at = found.end;
  }
  if (at < text.size()) impl_->encode_given(text.substr(at), at, cache, tokens);
  if (impl_->post_processor) impl_->post_processor(tokens, text, impl_->vocabulary, add_special);
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const std::int64_t id : ids) {
    const auto token = impl_->vocabulary.decoded(id);
    if (!token) refuse("ids has ", id, ", which is not a token");
    // Hugging Face's tokenizers keep a special token that the normaliser changes.
    const auto named = skip_special ? this->id(*token) : std::nullopt;
    if (!named || !is_special(*named)) tokens.emplace_back(*token);
  }
  if (impl_->decoder) impl_->decoder(tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += (impl_->decoder || i == 0 ? "" : " ") + tokens[i];
  return text;
}

std::int64_t Tokenizer::size() const noexcept { return impl_->vocabulary.size(); }
bool Tokenizer::is_special(std::int64_t id) const noexcept { return impl_->vocabulary.is_special(id); }
std::optional<std::int64_t> Tokenizer::id(std::string_view token) const {
  return impl_->vocabulary.id(token);
}
std::optional<std::string> Tokenizer::token(std::int64_t id) const {
  const auto token = impl_->vocabulary.token(id);
  return token ? std::optional<std::string>(*token) : std::nullopt;
}

std::vector<std::string> Tokenizer::shown(std::span<const std::int64_t> ids) const {
  for (const std::int64_t id : ids)
    if (!impl_->vocabulary.token(id)) refuse("ids has ", id, ", which is not a token");
  return shown_tokens(*this, ids);
}

}  // namespace heed
