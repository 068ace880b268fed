#include "attention/masks/expression_words.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace heed::detail {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return starts_name(c) || is_digit(c); }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Longer symbols come before their prefixes.
constexpr std::string_view kSymbols[] = {"<=", ">=", "==", "!=", "&&", "||", "//", "<", ">", "!", "+", "-",
                                         "*",  "/",  "%",  "?",  ":",  "(",  ")",  "[", "]", ",", "=", "&"};

constexpr std::array<std::string_view, 20> kReserved{"b",    "h",     "i",   "j",   "s",    "true", "false",
                                                     "and",  "or",    "not", "inf", "abs",  "min",  "max",
                                                     "sqrt", "floor", "exp", "log", "tanh", "where"};

}  // namespace

std::string shown(std::string_view text, std::size_t most) {
  std::string clean(text.substr(0, most));
  for (char& c : clean)
    if (c < ' ' || c > '~') c = is_space(c) ? ' ' : '?';
  return clean;
}

std::string_view name_of(ExpressionKind kind) {
  return kind == ExpressionKind::mask ? "mask expression" : "score expression";
}

std::string quote_of(ExpressionKind kind, std::string_view text, std::size_t place) {
  constexpr std::size_t kShown = 100;
  std::size_t begin = 0, length = text.size();
  if (length > kShown) {
    begin = place < kShown / 2 ? 0 : std::min(place - kShown / 2, text.size() - kShown);
    length = kShown;
  }
  return std::string(name_of(kind)) + " \"" + (begin > 0 ? "..." : "") + shown(text.substr(begin), length) +
         (begin + length < text.size() ? "..." : "") + "\": ";
}

bool is_name(std::string_view text) {
  return !text.empty() && starts_name(text[0]) && std::ranges::all_of(text, continues_name);
}

bool is_reserved(std::string_view name) { return std::ranges::find(kReserved, name) != kReserved.end(); }

std::string Words::unexpected() const {
  if (now_.kind == WordKind::end) return "unexpected end " + at(now_.begin);
  return "unexpected '" + shown(now_.text) + "' " + at(now_.begin);
}

void Words::advance() {
  previous_end_ = place_;
  while (place_ < text_.size() && is_space(text_[place_])) ++place_;
  now_ = {WordKind::end, {}, place_, 0};
  if (place_ == text_.size()) return;
  const char c = text_[place_];
  if (is_digit(c) || (c == '.' && place_ + 1 < text_.size() && is_digit(text_[place_ + 1]))) {
    read_number();
  } else if (starts_name(c)) {
    std::size_t end = place_;
    while (end < text_.size() && continues_name(text_[end])) ++end;
    now_.kind = WordKind::name;
    now_.text = text_.substr(place_, end - place_);
    const std::string_view symbol = now_.text == "and"   ? "&&"
                                    : now_.text == "or"  ? "||"
                                    : now_.text == "not" ? "not"
                                                         : "";
    place_ = end;
    if (!symbol.empty()) {
      now_.kind = WordKind::symbol;
      now_.text = symbol;
    }
  } else {
    read_symbol();
  }
}

void Words::read_number() {
  const char* begin = text_.data() + place_;
  const char* end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(begin, end, now_.value);
  const char* last = stop;
  while (last != end && (continues_name(*last) || *last == '.')) ++last;
  now_.kind = WordKind::number;
  now_.text = text_.substr(place_, static_cast<std::size_t>(last - begin));
  if (last != stop)
    fail(place_, "'", shown(now_.text), "' ", at(place_), " is not a number; a product needs *");
  if (error != std::errc())
    fail(place_, "'", shown(now_.text), "' ", at(place_), " is out of double's range");
  place_ += now_.text.size();
}

void Words::read_symbol() {
  const std::string_view rest = text_.substr(place_);
  for (const std::string_view symbol : kSymbols)
    if (rest.starts_with(symbol)) {
      if (symbol == "=") fail(place_, "'=' ", at(place_), " is not an operator; equality is ==");
      if (symbol == "&") fail(place_, "'&' ", at(place_), " is not an operator; a conjunction is &&");
      now_.kind = WordKind::symbol;
      now_.text = rest.substr(0, symbol.size());
      place_ += symbol.size();
      return;
    }
  if (rest[0] == '|') fail(place_, "'|' ", at(place_), " is not an operator; a disjunction is ||");
  fail(place_, "'", shown(rest.substr(0, 1)), "' ", at(place_), " is not part of the language");
}

bool Words::take(std::string_view symbol) {
  if (!now_.is(symbol)) return false;
  advance();
  return true;
}

}  // namespace heed::detail
