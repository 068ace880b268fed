#include "model/chat/parse_expression.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "io/fault.hpp"

namespace heed::detail::chat {
namespace {

using io::detail::printable;

constexpr int kDeepestExpression = 100;

/// Counts the depth of nesting while it lives.
class Deeper {
 public:
  Deeper(int& depth, int line) : depth_(depth) {
    if (++depth_ > kDeepestExpression) refuse_at(line, "nests expressions more than 100 deep");
  }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& depth_;
};

template <class Number>
Value number_of(const Token& token) {
  Number number = 0;
  const char* end = token.text.data() + token.text.size();
  if (std::from_chars(token.text.data(), end, number).ec != std::errc())
    refuse_at(token.line, "has the number " + printable(token.text) + ", which heed does not know");
  return number;
}

}  // namespace

Token ExpressionParser::next() {
  Token token = tokens_[at_++];
  line_ = token.line;
  return token;
}

bool ExpressionParser::is(TokenKind kind, std::string_view text) const {
  return peek().kind == kind && peek().text == text;
}

bool ExpressionParser::take(TokenKind kind, std::string_view text) {
  const bool found = is(kind, text);
  if (found) next();
  return found;
}

void ExpressionParser::refuse_next(std::string_view expected) const {
  const bool ends = peek().kind == TokenKind::end,
             closes = peek().text.empty() && peek().kind != TokenKind::string;
  const std::string found = ends ? "its end" : closes ? "the end of a tag" : printable(peek().text);
  refuse_at(peek().line, "has " + found + " where " + std::string(expected) + " is expected");
}

void ExpressionParser::expect_sign(std::string_view text) {
  if (!take_sign(text)) refuse_next("'" + std::string(text) + "'");
}

std::string ExpressionParser::expect_name() {
  if (peek().kind != TokenKind::name) refuse_next("a name");
  return next().text;
}

// Names of filters and tests may have dots. None that heed knows has.
std::string ExpressionParser::dotted_name() {
  std::string name = expect_name();
  while (take_sign(".")) name += "." + expect_name();
  return name;
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) refuse_next(what);
  next();
}

Expression ExpressionParser::made(ExpressionKind kind, std::string text,
                                  std::vector<Expression> parts) const {
  Expression whole{.kind = kind, .line = line_, .text = std::move(text)};
  for (Expression& part : parts) add_part(whole, std::move(part));
  return whole;
}

Expression ExpressionParser::around(Expression part, ExpressionKind kind, std::string text) const {
  Expression whole = made(kind, std::move(text), {});
  add_part(whole, std::move(part));
  return whole;
}

// Whoever evaluates or frees an expression recurses as deep as it is.
void ExpressionParser::add_part(Expression& whole, Expression part) const {
  whole.depth = std::max(whole.depth, part.depth + 1);
  if (whole.depth > kDeepestExpression) refuse_at(line_, "nests expressions more than 100 deep");
  whole.parts.push_back(std::move(part));
}

void ExpressionParser::add_named(Expression& whole, std::string name, Expression part) const {
  add_part(whole, std::move(part));
  whole.named.emplace_back(std::move(name), std::move(whole.parts.back()));
  whole.parts.pop_back();
}

Expression ExpressionParser::tuple() {
  Expression first = expression();
  if (!is_sign(",")) return first;
  Expression all = made(ExpressionKind::tuple);
  add_part(all, std::move(first));
  while (take_sign(",")) {
    const TokenKind kind = peek().kind;
    if (kind == TokenKind::end_block || kind == TokenKind::end_print || is_sign(")")) break;
    add_part(all, expression());
  }
  return all;
}

Expression ExpressionParser::conditional() {
  const Deeper deeper(depth_, peek().line);
  Expression value = disjunction();
  while (take_name("if")) {
    std::vector<Expression> parts;
    parts.push_back(disjunction());
    parts.push_back(std::move(value));
    if (take_name("else")) parts.push_back(conditional());
    value = made(ExpressionKind::conditional, "", std::move(parts));
  }
  return value;
}

Expression ExpressionParser::left_to_right(Part part, std::vector<std::string_view> operators,
                                           bool are_names) {
  Expression left = (this->*part)();
  while (true) {
    const auto found =
        std::ranges::find_if(operators, [&](auto text) { return are_names ? is_name(text) : is_sign(text); });
    if (found == operators.end()) return left;
    next();
    std::vector<Expression> parts;
    parts.push_back(std::move(left));
    parts.push_back((this->*part)());
    left = made(ExpressionKind::binary, std::string(*found), std::move(parts));
  }
}

Expression ExpressionParser::disjunction() {
  return left_to_right(&ExpressionParser::conjunction, {"or"}, true);
}
Expression ExpressionParser::conjunction() {
  return left_to_right(&ExpressionParser::negation, {"and"}, true);
}

Expression ExpressionParser::negation() {
  if (!take_name("not")) return comparison();
  const Deeper deeper(depth_, peek().line);
  return around(negation(), ExpressionKind::unary, "not");
}

Expression ExpressionParser::comparison() {
  constexpr std::string_view kSigns[] = {"==", "!=", "<=", ">=", "<", ">"};
  Expression first = sum();
  Expression all = made(ExpressionKind::comparison);
  while (true) {
    std::string name;
    for (const std::string_view sign : kSigns)
      if (name.empty() && take_sign(sign)) name = sign;
    if (name.empty() && take_name("in")) name = "in";
    if (name.empty() && is_name("not") && tokens_[at_ + 1].kind == TokenKind::name &&
        tokens_[at_ + 1].text == "in") {
      next(), next();
      name = "not in";
    }
    if (name.empty()) break;
    add_named(all, std::move(name), sum());
  }
  if (all.named.empty()) return first;
  add_part(all, std::move(first));
  return all;
}

Expression ExpressionParser::sum() {
  return left_to_right(&ExpressionParser::concatenation, {"+", "-"}, false);
}
Expression ExpressionParser::concatenation() {
  return left_to_right(&ExpressionParser::product, {"~"}, false);
}
Expression ExpressionParser::product() {
  return left_to_right(&ExpressionParser::filtered, {"*", "/", "//", "%"}, false);
}

Expression ExpressionParser::filtered() {
  Expression value = with_filters(signed_value());
  if (is_sign("**")) refuse_at(peek().line, "has '**', which heed does not know");
  return value;
}

Expression ExpressionParser::signed_value() {
  const Deeper deeper(depth_, peek().line);
  if (!is_sign("-") && !is_sign("+")) return with_postfix(primary());
  std::string sign = next().text;
  return around(signed_value(), ExpressionKind::unary, std::move(sign));
}

Expression ExpressionParser::primary() {
  const Token& token = peek();
  if (token.kind == TokenKind::name) return named_value();
  if (token.kind == TokenKind::string) return strings();
  if (token.kind == TokenKind::integer || token.kind == TokenKind::real) {
    const Token number = next();
    Expression value = made(ExpressionKind::constant);
    value.value =
        number.kind == TokenKind::integer ? number_of<std::int64_t>(number) : number_of<double>(number);
    return value;
  }
  if (is_sign("(")) return bracketed();
  if (is_sign("[")) return list();
  if (is_sign("{")) return dict();
  refuse_next("a value");
}

Expression ExpressionParser::named_value() {
  const std::string name = next().text;
  Expression value = made(ExpressionKind::constant);
  if (name == "true" || name == "True" || name == "false" || name == "False")
    value.value = name == "true" || name == "True";
  else if (name == "none" || name == "None")
    value.value = None{};
  else
    value = made(ExpressionKind::name, name, {});
  return value;
}

// Strings beside each other are one.
Expression ExpressionParser::strings() {
  std::string text;
  while (peek().kind == TokenKind::string) text += next().text;
  Expression value = made(ExpressionKind::constant);
  value.value = std::move(text);
  return value;
}

Expression ExpressionParser::bracketed() {
  next();
  if (take_sign(")")) return made(ExpressionKind::tuple);
  Expression value = tuple();
  expect_sign(")");
  return value;
}

Expression ExpressionParser::list() {
  next();
  Expression value = made(ExpressionKind::list);
  while (!take_sign("]")) {
    add_part(value, expression());
    if (!is_sign("]")) expect_sign(",");
  }
  return value;
}

Expression ExpressionParser::dict() {
  next();
  Expression value = made(ExpressionKind::dict);
  while (!take_sign("}")) {
    add_part(value, expression());
    expect_sign(":");
    add_part(value, expression());
    if (!is_sign("}")) expect_sign(",");
  }
  return value;
}

Expression ExpressionParser::with_postfix(Expression value) {
  while (true) {
    if (take_sign(".")) {
      std::string name = expect_name();
      value = around(std::move(value), ExpressionKind::attribute, std::move(name));
    } else if (is_sign("[")) {
      value = subscript(std::move(value));
    } else if (is_sign("(")) {
      value = called(std::move(value));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::called(Expression function) {
  Expression call = around(std::move(function), ExpressionKind::call);
  arguments(call);
  return call;
}

Expression ExpressionParser::subscript(Expression value) {
  next();
  std::vector<Expression> parts;
  parts.push_back(std::move(value));
  Expression none = made(ExpressionKind::constant);
  none.value = None{};
  bool slices = false;
  parts.push_back(is_sign(":") ? none : expression());
  while (parts.size() < 4 && take_sign(":")) {
    slices = true;
    parts.push_back(is_sign(":") || is_sign("]") ? none : expression());
  }
  expect_sign("]");
  if (slices) parts.resize(4, none);
  return made(slices ? ExpressionKind::slice : ExpressionKind::subscript, "", std::move(parts));
}

void ExpressionParser::arguments(Expression& call) {
  expect_sign("(");
  while (!take_sign(")")) {
    const Token& after = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    const bool has_name =
        peek().kind == TokenKind::name && after.kind == TokenKind::sign && after.text == "=";
    if (has_name) {
      std::string name = next().text;
      next();
      for (const auto& [given, value] : call.named)
        if (given == name) refuse_at(peek().line, "gives the argument " + printable(name) + " twice");
      add_named(call, std::move(name), expression());
    } else {
      if (!call.named.empty()) refuse_next("an argument with a name");
      add_part(call, expression());
    }
    if (!is_sign(")")) expect_sign(",");
  }
}

Expression ExpressionParser::with_filters(Expression value) {
  while (true) {
    if (take_sign("|")) {
      std::string name = dotted_name();
      value = around(std::move(value), ExpressionKind::filter, std::move(name));
      if (is_sign("(")) arguments(value);
    } else if (take_name("is")) {
      value = test(std::move(value));
    } else if (is_sign("(")) {
      value = called(std::move(value));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::test(Expression value) {
  const bool negated = take_name("not");
  std::string name = dotted_name();
  Expression made_test = around(std::move(value), ExpressionKind::test, std::move(name));
  test_arguments(made_test);
  return negated ? around(std::move(made_test), ExpressionKind::unary, "not") : made_test;
}

// In brackets, or one value behind the name: `is divisibleby 3`.
void ExpressionParser::test_arguments(Expression& test) {
  if (is_sign("(")) return arguments(test);
  const TokenKind kind = peek().kind;
  const bool is_value = kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::real ||
                        is_sign("[") || is_sign("{");
  const bool is_word = kind == TokenKind::name && !is_name("else") && !is_name("or") && !is_name("and");
  if (is_word && is_name("is")) refuse_next("no second test of the same value");
  if (is_value || is_word) add_part(test, with_postfix(primary()));
}

}  // namespace heed::detail::chat
