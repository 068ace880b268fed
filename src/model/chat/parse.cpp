// Statements of a chat template.
#include <utility>

#include "io/fault.hpp"
#include "model/chat/parse_expression.hpp"

namespace heed::detail::chat {
namespace {

using io::detail::printable;
using Statements = std::vector<Statement>;

constexpr int kDeepestBlock = 50;

class StatementParser {
 public:
  explicit StatementParser(std::string_view source) : in_(tokens_of(source)) {}

  Statements run() { return until_tag({}); }

 private:
  // Statements up to a tag with one of these names, which is taken as far as its name; without names: to the
  // end.
  Statements until_tag(std::vector<std::string_view> ends) {
    if (++depth_ > kDeepestBlock) refuse_at(in_.peek().line, "nests blocks more than 50 deep");
    Statements all;
    while (in_.peek().kind != TokenKind::end) {
      const Token token = in_.next();
      if (token.kind == TokenKind::text) {
        all.push_back({.kind = StatementKind::text, .line = token.line, .text = token.text});
      } else if (token.kind == TokenKind::begin_print) {
        all.push_back({.kind = StatementKind::print, .line = token.line, .value = in_.tuple()});
        in_.expect(TokenKind::end_print, "'}}'");
      } else {
        for (const std::string_view end : ends)
          if (in_.is_name(end)) return --depth_, all;
        all.push_back(block(token.line));
      }
    }
    if (!ends.empty()) in_.refuse_next("'" + std::string(ends.back()) + "'");
    --depth_;
    return all;
  }

  Statement block(int line) {
    const std::string name = in_.expect_name();
    if (name == "if") return branch(line);
    if (name == "for") return loop(line);
    if (name == "set") return assign(line);
    if (name == "macro") return macro(line);
    if (name == "generation") return generation(line);
    if (name == "break" || name == "continue") {
      if (loops_ == 0) refuse_at(line, "has " + name + " outside of a loop");
      end_block();
      return {.kind = name == "break" ? StatementKind::leave : StatementKind::proceed, .line = line};
    }
    refuse_at(line, "uses the block " + printable(name) + ", which heed does not know");
  }

  void end_block() { in_.expect(TokenKind::end_block, "'%}'"); }
  // until_tag() has stopped before the name of the end.
  void end() {
    in_.next();
    end_block();
  }

  Statement branch(int line) {
    Statement made{.kind = StatementKind::branch, .line = line, .value = in_.without_condition()};
    end_block();
    made.body = until_tag({"elif", "else", "endif"});
    const int next_line = in_.peek().line;
    if (in_.take_name("elif")) {  // its endif is this one's, too
      ++depth_;
      made.otherwise.push_back(branch(next_line));
      --depth_;
      return made;
    }
    if (in_.take_name("else")) {
      end_block();
      made.otherwise = until_tag({"endif"});
    }
    end();
    return made;
  }

  std::vector<Target> targets() {
    std::vector<Target> all;
    const bool bracketed = in_.take_sign("(");
    do {
      Target target{.name = in_.expect_name()};
      if (in_.take_sign(".")) target.member = in_.expect_name();
      all.push_back(std::move(target));
    } while (in_.take_sign(","));
    if (bracketed) in_.expect_sign(")");
    return all;
  }

  Statement loop(int line) {
    Statement made{.kind = StatementKind::loop, .line = line};
    made.targets = targets();
    if (!in_.take_name("in")) in_.refuse_next("'in'");
    made.value = in_.without_condition();
    if (in_.take_name("if")) made.condition.push_back(in_.expression());
    if (in_.is_name("recursive")) refuse_at(line, "has a recursive loop, which heed does not know");
    end_block();
    ++loops_;
    made.body = until_tag({"else", "endfor"});
    --loops_;
    if (in_.take_name("else")) {
      end_block();
      made.otherwise = until_tag({"endfor"});
    }
    end();
    return made;
  }

  Statement assign(int line) {
    Statement made{.kind = StatementKind::assign, .line = line};
    made.targets = targets();
    if (in_.take_sign("=")) {
      made.value = in_.tuple();
      end_block();
      return made;
    }
    if (in_.is_sign("|")) refuse_at(line, "filters a block of set, which heed does not know");
    made.kind = StatementKind::capture;
    end_block();
    made.body = outside_loops("endset");
    return made;
  }

  // break and continue do not leave these bodies.
  Statements outside_loops(std::string_view name) {
    const int loops = std::exchange(loops_, 0);
    Statements body = until_tag({name});
    loops_ = loops;
    end();
    return body;
  }

  Statement macro(int line) {
    Statement made{.kind = StatementKind::macro, .line = line, .text = in_.expect_name()};
    in_.expect_sign("(");
    while (!in_.take_sign(")")) {
      if (!made.parameters.empty()) in_.expect_sign(",");
      Parameter parameter{.name = in_.expect_name()};
      for (const Parameter& other : made.parameters)
        if (other.name == parameter.name)
          refuse_at(line, "has a macro with two parameters " + printable(other.name));
      parameter.has_default = in_.take_sign("=");
      if (parameter.has_default)
        parameter.fallback = in_.expression();
      else if (!made.parameters.empty() && made.parameters.back().has_default)
        refuse_at(line, "has a macro whose parameter " + printable(parameter.name) +
                            " without a default follows one with a default");
      made.parameters.push_back(std::move(parameter));
    }
    end_block();
    made.body = outside_loops("endmacro");
    return made;
  }

  Statement generation(int line) {
    end_block();
    return {.kind = StatementKind::scope, .line = line, .body = outside_loops("endgeneration")};
  }

  ExpressionParser in_;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

std::vector<Statement> parsed(std::string_view source) { return StatementParser(source).run(); }

}  // namespace heed::detail::chat
