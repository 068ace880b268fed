#include "text/token_decoder.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "core/utf8.hpp"
#include "text/byte_level.hpp"
#include "text/pattern.hpp"

namespace heed::detail {
namespace {

using Tokens = std::vector<std::string>;

bool can_be_second(unsigned lead, unsigned byte) {
  const unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return byte >= least && byte <= most;
}

// The length of a maximal part of a broken letter: its lead byte and valid continuations.
std::size_t length_of_subpart(std::string_view bytes) {
  const auto byte = [&](std::size_t at) {
    return static_cast<unsigned>(static_cast<unsigned char>(bytes[at]));
  };
  const unsigned lead = byte(0);
  const std::size_t whole = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 1;
  std::size_t length = 1;
  while (length < std::min(whole, bytes.size())) {
    const bool fits = length == 1 ? can_be_second(lead, byte(1)) : (byte(length) & 0xC0u) == 0x80u;
    if (!fits) break;
    ++length;
  }
  return length;
}

// Replaces each maximal part of a broken letter, and each byte that cannot begin one, by U+FFFD (the Unicode
// Standard, 3.9, "Substitution of Maximal Subparts").
std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const CodePoint point = decode_utf8(bytes);
    const std::size_t length = point.valid ? point.length : length_of_subpart(bytes);
    text += point.valid ? bytes.substr(0, length) : std::string_view("\uFFFD");
    bytes.remove_prefix(length);
  }
  return text;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (text.find(from) == std::string::npos) return;
  std::string changed;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(from, at)) != std::string::npos; at = found + from.size())
    changed.append(text, at, found - at).append(to);
  text = changed.append(text, at);
}

// Each letter of a token stands for a byte. Added tokens, which have other letters, stay as they are.
class ByteLevelDecoder {
 public:
  ByteLevelDecoder() {
    bytes_.fill(-1);
    for (std::int16_t byte = 0; byte < 256; ++byte)
      bytes_[byte_letters()[static_cast<std::size_t>(byte)]] = byte;
  }
  void operator()(Tokens& tokens) const {
    std::string text;
    for (const std::string& token : tokens) text += bytes_of(token).value_or(token);
    tokens = {lossy_utf8(text)};
  }

 private:
  std::optional<std::string> bytes_of(std::string_view token) const {
    std::string bytes;
    while (!token.empty()) {
      const CodePoint letter = decode_utf8(token);
      if (letter.value >= bytes_.size() || bytes_[letter.value] < 0) return std::nullopt;
      bytes += static_cast<char>(bytes_[letter.value]);
      token.remove_prefix(letter.length);
    }
    return bytes;
  }

  std::array<std::int16_t, 0x144> bytes_;  // of each letter, or -1
};

void clean_spaces(std::string& token) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kClean = {{{" .", "."},
                                                                                     {" ?", "?"},
                                                                                     {" !", "!"},
                                                                                     {" ,", ","},
                                                                                     {" ' ", "'"},
                                                                                     {" n't", "n't"},
                                                                                     {" 'm", "'m"},
                                                                                     {" do not", " don't"},
                                                                                     {" 's", "'s"},
                                                                                     {" 've", "'ve"},
                                                                                     {" 're", "'re"}}};
  for (const auto& [from, to] : kClean) replace_all(token, from, to);
}

// Removes "##", and puts a space before other tokens, except before punctuation.
TokenDecoder word_piece_decoder(const JsonPart& part) {
  return [prefix = part.text("prefix", "##"), cleanup = part.flag("cleanup", true)](Tokens& tokens) {
    bool is_first = true;
    for (std::string& token : tokens) {
      if (!is_first) token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
      is_first = false;
      if (cleanup) clean_spaces(token);
    }
  };
}

// The replacement stands for a space, except at the beginning, where the tokenizer added it.
TokenDecoder metaspace_decoder(const JsonPart& part) {
  const std::string replacement = part.text("replacement", "▁");
  const bool prepended = part.choice("prepend_scheme", {"always", "first", "never"}, "always") != 2 &&
                         part.flag("add_prefix_space", true);
  if (replacement.empty()) part.fail("whose replacement is empty");
  return [=](Tokens& tokens) {
    for (std::size_t n = 0; n < tokens.size(); ++n)
      replace_all(tokens[n], replacement, n == 0 && prepended ? "" : " ");
  };
}

// The suffix marks the end of a word.
TokenDecoder suffix_decoder(const JsonPart& part) {
  const std::string suffix = part.text("suffix", "</w>");
  if (suffix.empty()) part.fail("whose suffix is empty");
  return [suffix](Tokens& tokens) {
    for (std::size_t n = 0; n < tokens.size(); ++n)
      replace_all(tokens[n], suffix, n + 1 == tokens.size() ? "" : " ");
  };
}

int hexadecimal_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::optional<char> byte_named(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = hexadecimal_digit(token[3]), low = hexadecimal_digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

// "<0xE2>" stands for a byte. Each byte of a run that is not UTF-8 becomes U+FFFD.
void fall_back_to_bytes(Tokens& tokens) {
  Tokens made;
  std::string bytes;
  const auto flush = [&] {
    if (is_utf8(bytes)) {
      if (!bytes.empty()) made.push_back(bytes);
    } else {
      made.insert(made.end(), bytes.size(), "\uFFFD");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_named(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    made.push_back(std::move(token));
  }
  flush();
  tokens = std::move(made);
}

void fuse(Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  tokens = {std::move(text)};
}

// Removes a letter before and after each token, up to a given number of times.
TokenDecoder strip_decoder(const JsonPart& part) {
  constexpr std::int64_t kMax = 1 << 30;
  const std::string letter = part.text("content");
  const std::int64_t before = part.integer("start", 0, kMax), after = part.integer("stop", 0, kMax);
  if (letter.empty()) part.fail("whose content is empty");
  return [=](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::int64_t n = 0; n < before && rest.starts_with(letter); ++n) rest.remove_prefix(letter.size());
      for (std::int64_t n = 0; n < after && rest.ends_with(letter); ++n) rest.remove_suffix(letter.size());
      token = std::string(rest);
    }
  };
}

TokenDecoder replace_decoder(const JsonPart& part) {
  return [pattern = pattern_from(part), content = part.text("content")](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string changed;
      std::size_t at = 0;
      for (const TextRange& match : pattern(token)) {
        changed.append(token, at, match.begin - at).append(content);
        at = match.end;
      }
      token = changed.append(token, at);
    }
  };
}

TokenDecoder decoder_sequence(const JsonPart& part) {
  std::vector<TokenDecoder> all;
  for (const JsonPart& one : part.parts("decoders")) all.push_back(token_decoder_from(one));
  return [all](Tokens& tokens) {
    for (const TokenDecoder& one : all) one(tokens);
  };
}

}  // namespace

TokenDecoder token_decoder_from(const JsonPart& part) {
  const std::string& type = part.type();
  if (type == "ByteLevel") return ByteLevelDecoder();
  if (type == "WordPiece") return word_piece_decoder(part);
  if (type == "Metaspace") return metaspace_decoder(part);
  if (type == "BPEDecoder") return suffix_decoder(part);
  if (type == "ByteFallback") return fall_back_to_bytes;
  if (type == "Fuse") return fuse;
  if (type == "Strip") return strip_decoder(part);
  if (type == "Replace") return replace_decoder(part);
  if (type == "Sequence") return decoder_sequence(part);
  part.fail_type();
}

}  // namespace heed::detail
