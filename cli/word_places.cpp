#include "word_places.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

#include "command.hpp"
#include "core/utf8.hpp"
#include "draw/lettering.hpp"
#include "heed/inspect/reports.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using Places = std::vector<std::int64_t>;

constexpr int kShownText = 60;  // columns of the text in a refusal

// Marks that tokenizers put before a word: a space, U+0120, U+2581.
constexpr std::array<std::string_view, 3> kMarks = {" ", "\xC4\xA0", "\xE2\x96\x81"};

// Marks that Tokenizer::shown() and WordPiece put before a piece that continues a word.
constexpr std::array<std::string_view, 2> kContinues = {"·", "##"};

constexpr std::size_t kMaxCompared = 10000;  // most tokens considered for a spelling suggestion

std::string plain_word(std::string_view token) {
  for (const std::string_view mark : kMarks)
    if (token.size() > mark.size() && token.starts_with(mark)) token.remove_prefix(mark.size());
  std::string word(token);
  std::ranges::transform(word, word.begin(), detail::ascii_lower);
  return word;
}

// A word of the text: its lower-case letters and the tokens [begin, end) that spell it.
struct Word {
  std::string text;
  std::int64_t begin, end;
};

bool is_letter(unsigned char byte) { return std::isalnum(byte) != 0 || byte >= 0x80; }

// The text of a token, and whether it continues the word before it: "·urs", "##urs", "😀 2/2".
struct Piece {
  std::string_view text;
  bool continues = false;
};

// Tokenizer::shown() numbers the tokens that spell a character together. The first one stands for it.
Piece piece_of(std::string_view token) {
  Piece piece{token};
  for (const std::string_view mark : kContinues)
    if (token.size() > mark.size() && token.starts_with(mark)) piece = {token.substr(mark.size()), true};
  const std::string_view character = piece.text.substr(0, piece.text.rfind(' '));
  const bool is_ascii = std::ranges::all_of(character, [](char c) { return (c & 0x80) == 0; });
  if (is_ascii || character.size() == piece.text.size()) return piece;
  const std::vector<std::string> parts = split(piece.text.substr(character.size() + 1), '/');
  const auto n = whole_number(parts.front()), of = whole_number(parts.back());
  if (parts.size() != 2 || !n || !of || *n < 1 || *n > *of) return piece;
  return *n > 1 ? Piece{"", true} : Piece{character, piece.continues};
}

// Joins the pieces of words. If each token is one character, letters side by side are a word.
std::vector<Word> words_of(const std::vector<std::string>& tokens) {
  const bool spelled =
      std::ranges::all_of(tokens, [](const std::string& token) { return characters(token).size() == 1; });
  const auto letter = [&](std::size_t i) { return is_letter(static_cast<unsigned char>(tokens[i][0])); };
  std::vector<Word> words;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Piece piece = piece_of(tokens[i]);
    if (spelled && i > 0 && letter(i) && letter(i - 1)) piece.continues = true;
    if (!piece.text.empty() && !is_letter(static_cast<unsigned char>(piece.text[0]))) piece = {tokens[i]};
    if (!piece.continues || words.empty())
      words.push_back({plain_word(piece.text), static_cast<std::int64_t>(i), 0});
    else
      words.back().text += plain_word(piece.text);
    words.back().end = static_cast<std::int64_t>(i) + 1;
  }
  return words;
}

// The occurrences of a word: one token each or, if no token is the word, the tokens that spell it.
std::vector<Places> occurrences(const std::string& word, const std::vector<std::string>& tokens) {
  std::vector<Places> exact, near, in_pieces;
  const std::string plain = plain_word(word);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == word) exact.push_back({static_cast<std::int64_t>(i)});
    if (plain_word(tokens[i]) == plain) near.push_back({static_cast<std::int64_t>(i)});
  }
  if (!exact.empty() || !near.empty()) return exact.empty() ? near : exact;
  for (const Word& one : words_of(tokens)) {
    if (one.text != plain) continue;
    in_pieces.emplace_back(static_cast<std::size_t>(one.end - one.begin));
    std::iota(in_pieces.back().begin(), in_pieces.back().end(), one.begin);
  }
  return in_pieces;
}

Places joined(const std::vector<Places>& occurrences) {
  Places all;
  for (const Places& places : occurrences) all.insert(all.end(), places.begin(), places.end());
  return all;
}

std::string all_places(std::int64_t count) {
  return "#0 to #" + std::to_string(count - 1) + ", the places of the text,";
}

Places numbered_place(const std::string& argument, const std::string& asked, std::int64_t count) {
  const std::optional<std::int64_t> place = whole_number(std::string_view(asked).substr(1));
  if (!place || *place < 0 || *place >= count)
    refuse_usage(argument, " is '", asked, "'; ", all_places(count), " are expected");
  return {*place};
}

[[noreturn]] void refuse(const std::string& argument, const std::string& asked,
                         const std::vector<std::string>& tokens, std::int64_t count,
                         const std::string& hint) {
  if (tokens.empty())
    refuse_usage(argument, " is '", asked, "', but the document has no words; ", all_places(count),
                 " are expected");
  std::vector<std::string> known;
  for (const Word& word : words_of(tokens))
    if (known.size() < kMaxCompared) known.push_back(word.text);
  const std::optional<std::string> meant = nearest(plain_word(asked), known);
  refuse_usage(argument, " is '", asked, "', which is not a word of the text",
               meant ? "; did you mean '" + *meant + "'?" : ", " + text_of(tokens, kShownText) + hint);
}

// Whether a tokenizer puts such tokens around a text: "[CLS]", "<s>", "<|im_end|>". "<div>" is a word.
bool is_special(std::string_view token) {
  const bool has_letter = std::ranges::any_of(token, [](unsigned char c) { return std::isalpha(c) != 0; });
  return has_letter && is_separator(token);
}

}  // namespace

ModelHead head_named(const std::string& option, const std::string& text) {
  const auto [layer, head] = integer_pair(option, text, '.', 0, "a layer and a head, such as 1.3,");
  return {layer, head};
}

void check_head(const std::string& option, const ModelHead& head, const ModelInfo& info) {
  if (head.layer >= info.layers || head.head >= info.heads)
    refuse_usage(option, " is '", head.layer, ".", head.head, "'; layers 0 to ", info.layers - 1,
                 " with heads 0 to ", info.heads - 1, " are expected");
}

std::string_view without_continuation(std::string_view token) { return piece_of(token).text; }

Places word_places(const std::string& argument, const std::string& asked,
                   const std::vector<std::string>& tokens, std::int64_t count, const std::string& hint) {
  const bool is_place = asked.size() > 1 && asked[0] == '#';
  if (is_place && whole_number(std::string_view(asked).substr(1)))
    return numbered_place(argument, asked, count);
  std::vector<Places> places = occurrences(asked, tokens);
  if (!places.empty()) return joined(places);
  const std::size_t colon = asked.rfind(':');
  places = occurrences(asked.substr(0, colon), tokens);
  if (is_place && places.empty()) return numbered_place(argument, asked, count);
  if (colon == std::string::npos || places.empty()) refuse(argument, asked, tokens, count, hint);
  const std::optional<std::int64_t> number = whole_number(std::string_view(asked).substr(colon + 1));
  if (!number || *number < 1 || *number > std::ssize(places))
    refuse_usage(argument, " is '", asked, "', but the text has '", asked.substr(0, colon), "' ",
                 counted(places.size(), "time"));
  return places[static_cast<std::size_t>(*number - 1)];
}

std::string word_with_place(const std::vector<std::string>& tokens, std::int64_t place) {
  const std::string number = std::to_string(place);
  return tokens.empty() ? number : token_text(tokens[static_cast<std::size_t>(place)]) + " (" + number + ")";
}

std::string text_of(const std::vector<std::string>& tokens, int columns) {
  if (tokens.empty()) return "";
  const auto most = static_cast<std::size_t>(std::max(columns, 1)) + 2;
  auto begin = tokens.begin();
  auto end = begin + static_cast<std::ptrdiff_t>(std::min(tokens.size(), most));
  // A text of single letters without a space is one of words, except in scripts that are written without.
  const auto is_letter_of_word = [](const std::string& token) {
    return token.empty() || (static_cast<unsigned char>(token[0]) < 0xE2 && token.find_first_of(" \n") != 0);
  };
  const bool words =
      std::all_of(begin, end, is_letter_of_word) ||
      std::any_of(begin, end, [](const std::string& token) { return characters(token).size() > 1; });
  const bool has_inner = end - begin > 2;
  if (has_inner && end == tokens.end() && is_special(*(end - 1))) --end;
  if (has_inner && is_special(*begin)) ++begin;
  return quoted_text(joined_tokens({begin, end}, words), columns);
}

std::string joined_tokens(std::span<const std::string> tokens, bool words) {
  std::string text;
  for (const std::string& token : tokens) {
    const auto [rest, continues] = piece_of(token);
    if (words && !continues && !text.empty()) text += ' ';
    if (!words || !rest.empty()) text += words ? token_text(rest) : printable(token);
  }
  return text;
}

std::string quoted_text(const std::string& text, int columns) {
  return text.empty() ? "" : "“" + shortened(printable(text), columns) + "”";
}

}  // namespace heed::cli
