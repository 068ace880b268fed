// A parsed chat template.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/value.hpp"

namespace heed::detail::chat {

enum class ExpressionKind {
  constant,     ///< value
  name,         ///< text
  list,         ///< parts
  tuple,        ///< parts
  dict,         ///< parts: name, value, name, value, …
  attribute,    ///< parts[0].text
  subscript,    ///< parts[0][parts[1]]
  slice,        ///< parts[0][parts[1]:parts[2]:parts[3]]; a missing bound is none
  call,         ///< parts[0](parts[1], …, named)
  filter,       ///< parts[0] | text(parts[1], …, named)
  test,         ///< parts[0] is text(parts[1], …, named)
  unary,        ///< text parts[0]: not, -, +
  binary,       ///< parts[0] text parts[1]: +, -, *, /, //, %, ~, and, or
  comparison,   ///< parts[0] names[0] parts[1] names[1] …: ==, <, in, not in, …
  conditional,  ///< parts[1] if parts[0] else parts[2]
};

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  int line = 1;
  int depth = 1;
  std::string text{};
  Value value{};
  std::vector<Expression> parts{};
  /// Arguments with names; for a comparison, the names of its operators.
  std::vector<std::pair<std::string, Expression>> named{};
};

enum class StatementKind {
  text,     ///< text
  print,    ///< value
  branch,   ///< if value: body, else otherwise
  loop,     ///< for targets in value if condition: body, else otherwise
  assign,   ///< set targets = value
  capture,  ///< set targets: the output of body
  macro,    ///< text: its name; parameters
  scope,    ///< generation: body
  leave,    ///< break
  proceed,  ///< continue
};

/// The place that an assignment sets: a name, or a member of a namespace.
struct Target {
  std::string name;
  std::string member{};
};

struct Parameter {
  std::string name;
  bool has_default = false;
  Expression fallback{};
};

struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 1;
  std::string text{};
  Expression value{};
  std::vector<Expression> condition{};  ///< none or one
  std::vector<Target> targets{};        ///< several take the items of a list
  std::vector<Parameter> parameters{};
  std::vector<Statement> body{}, otherwise{};
};

/// Throws Error (invalid_argument), with the line, for what is no Jinja, and for Jinja that heed does not
/// know.
[[nodiscard]] std::vector<Statement> parsed(std::string_view source);

}  // namespace heed::detail::chat
