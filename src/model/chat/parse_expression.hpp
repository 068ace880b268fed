// Expressions of a chat template.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/lexer.hpp"
#include "model/chat/syntax.hpp"

namespace heed::detail::chat {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// An expression, with `a if b else c` or without.
  Expression expression() { return conditional(); }
  Expression without_condition() { return disjunction(); }
  /// An expression, or several with commas: a tuple.
  Expression tuple();

  [[nodiscard]] const Token& peek() const { return tokens_[at_]; }
  Token next();
  [[nodiscard]] bool is(TokenKind kind, std::string_view text) const;
  [[nodiscard]] bool is_sign(std::string_view text) const { return is(TokenKind::sign, text); }
  [[nodiscard]] bool is_name(std::string_view text) const { return is(TokenKind::name, text); }
  bool take_sign(std::string_view text) { return take(TokenKind::sign, text); }
  bool take_name(std::string_view text) { return take(TokenKind::name, text); }
  void expect_sign(std::string_view text);
  std::string expect_name();
  void expect(TokenKind kind, std::string_view what);
  [[noreturn]] void refuse_next(std::string_view expected) const;

 private:
  using Part = Expression (ExpressionParser::*)();

  std::string dotted_name();
  bool take(TokenKind kind, std::string_view text);
  [[nodiscard]] Expression made(ExpressionKind kind, std::string text = "",
                                std::vector<Expression> parts = {}) const;
  [[nodiscard]] Expression around(Expression part, ExpressionKind kind, std::string text = "") const;
  Expression called(Expression function);
  void add_part(Expression& whole, Expression part) const;
  void add_named(Expression& whole, std::string name, Expression part) const;
  Expression left_to_right(Part part, std::vector<std::string_view> operators, bool are_names);

  Expression conditional();
  Expression disjunction();
  Expression conjunction();
  Expression negation();
  Expression comparison();
  Expression sum();
  Expression concatenation();
  Expression product();
  Expression filtered();
  Expression signed_value();
  Expression with_postfix(Expression value);
  Expression with_filters(Expression value);
  Expression primary();
  Expression named_value();
  Expression strings();
  Expression bracketed();
  Expression list();
  Expression dict();
  Expression subscript(Expression value);
  Expression test(Expression value);
  void arguments(Expression& call);
  void test_arguments(Expression& test);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int line_ = 1;
};

}  // namespace heed::detail::chat
