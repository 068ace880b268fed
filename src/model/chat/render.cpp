#include "model/chat/render.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "core/message.hpp"
#include "io/fault.hpp"
#include "model/chat/functions.hpp"
#include "model/chat/lexer.hpp"
#include "model/chat/syntax.hpp"

namespace heed::detail::chat {
namespace {

using io::detail::printable;
using Scope = std::map<std::string, Value, std::less<>>;
using Statements = std::vector<Statement>;

constexpr int kDeepestStep = 400;   // of statements, expressions and macros in each other
constexpr std::size_t kStep = 256;  // what a statement or an expression costs, in bytes of text

/// Where a statement leads: to the next one, or to the end of a loop or of its round.
enum class Flow { next, leave, proceed };

// The positions that [begin:end:step] takes of a list, as in Python.
std::vector<std::size_t> sliced(std::int64_t length, const Value& begin, const Value& end, const Value& by) {
  const auto bound = [](const Value& value, std::int64_t fallback) {
    return value.is<None>() ? fallback : integer_of(value, fallback);
  };
  const std::int64_t step = bound(by, 1);
  constexpr std::int64_t kFar = std::int64_t{1} << 40;
  if (step == 0 || std::abs(step) > kFar) refuse("takes a slice with the step ", step);
  const std::int64_t least = step > 0 ? 0 : -1, most = step > 0 ? length : length - 1;
  const auto place = [&](const Value& value, std::int64_t fallback) {
    std::int64_t at = bound(value, fallback);
    if (value.is<None>()) return at;
    if (at < 0) at = at < -length ? least : at + length;
    return std::clamp(at, least, most);
  };
  const std::int64_t first = place(begin, step > 0 ? 0 : length - 1),
                     last = place(end, step > 0 ? length : -1);
  std::vector<std::size_t> all;
  for (std::int64_t at = first; step > 0 ? at < last : at > last; at += step)
    all.push_back(static_cast<std::size_t>(at));
  return all;
}

class Renderer {
 public:
  explicit Renderer(Scope variables) { open_scope(), names() = std::move(variables); }

  Flow run(const Statements& statements, std::string& out) {
    for (const Statement& one : statements)
      if (const Flow flow = run(one, out); flow != Flow::next) return flow;
    return Flow::next;
  }

 private:
  // Macros see the names around their definition, and other blocks those around them.
  struct Level {
    Scope names{};
    std::size_t outer = 0;
  };

  Scope& names() { return scopes_.back().names; }
  void open_scope() { scopes_.push_back({.outer = scopes_.size() - 1}); }

  // Names the line of the innermost statement or expression that fails.
  template <class Act>
  auto at_line(int line, const Act& act) {
    try {
      if (++depth_ > kDeepestStep)
        refuse("nests blocks, expressions and macros more than ", kDeepestStep, " deep");
      work_.spend(kStep);
      const auto made = act();
      --depth_;
      return made;
    } catch (const Error& error) {
      if (std::exchange(has_line_, true)) throw;
      refuse_at(line, error.what());
    }
  }

  Flow run(const Statement& one, std::string& out) {
    return at_line(one.line, [&] {
      switch (one.kind) {
        case StatementKind::text:
          return write(one.text, out);
        case StatementKind::print:
          return write(printed(value_of(one.value)), out);
        case StatementKind::branch:
          return run(value_of(one.value).truth() ? one.body : one.otherwise, out);
        case StatementKind::loop:
          return loop(one, out);
        case StatementKind::assign:
          assign(one, value_of(one.value));
          return Flow::next;
        case StatementKind::capture:
          assign(one, output_of(one.body));
          return Flow::next;
        case StatementKind::macro:
          names().insert_or_assign(one.text, Callable{&one, {}, scopes_.size() - 1});
          return Flow::next;
        case StatementKind::scope:
          return write(output_of(one.body), out);
        case StatementKind::leave:
          return Flow::leave;
        case StatementKind::proceed:
          break;
      }
      return Flow::proceed;
    });
  }

  Flow write(std::string_view text, std::string& out) {
    work_.spend(text.size());
    out += text;
    return Flow::next;
  }

  // In a scope of its own.
  std::string output_of(const Statements& body) {
    std::string out;
    open_scope();
    run(body, out);
    scopes_.pop_back();
    return out;
  }

  void assign(const Statement& one, const Value& value) {
    if (one.targets.size() == 1) return assign(one.targets.front(), value);
    const std::vector<Value> items = items_of(value, work_);
    if (items.size() != one.targets.size())
      refuse("assigns ", counted(items.size(), "value"), " to ", counted(one.targets.size(), "name"));
    for (std::size_t i = 0; i < items.size(); ++i) assign(one.targets[i], items[i]);
  }

  void assign(const Target& target, const Value& value) {
    if (target.member.empty()) {
      names().insert_or_assign(target.name, value);
      return;
    }
    if (target.name == "loop") refuse("sets a member of the variable 'loop'; a namespace is expected");
    const Value space = named(target.name);
    if (!space.is<Namespace>()) refuse("sets a member of ", space.kind(), "; a namespace is expected");
    if (target.member.starts_with('_'))
      refuse("sets the member ", printable(target.member), " of a namespace");
    (*space.get<Namespace>())
        ->members.insert_or_assign(target.member, list_of({value}).list()->items.front());
  }

  Flow loop(const Statement& one, std::string& out) {
    std::vector<Value> items = items_of(value_of(one.value), work_);
    if (!one.condition.empty()) {
      std::erase_if(items, [&](const Value& item) {
        open_scope();
        assign(one, item);
        const bool kept = value_of(one.condition.front()).truth();
        scopes_.pop_back();
        return !kept;
      });
    }
    bool ended = false;  // whether a round went to its end
    for (std::size_t i = 0; i < items.size(); ++i) {
      open_scope();
      assign(one, items[i]);
      names().insert_or_assign("loop", state_of_loop(items, i));
      const Flow flow = run(one.body, out);
      scopes_.pop_back();
      ended |= flow == Flow::next;
      if (flow == Flow::leave) break;
    }
    if (ended) return Flow::next;
    open_scope();
    const Flow flow = run(one.otherwise, out);
    scopes_.pop_back();
    return flow;
  }

  Value state_of_loop(const std::vector<Value>& items, std::size_t i) {
    const auto at = static_cast<std::int64_t>(i), count = std::ssize(items);
    work_.spend(16);
    auto state = std::make_shared<NamespaceValue>();
    state->members = {{"index", at + 1},           {"index0", at},
                      {"revindex", count - at},    {"revindex0", count - at - 1},
                      {"first", Value(i == 0)},    {"last", Value(at + 1 == count)},
                      {"length", count},           {"depth", std::int64_t{1}},
                      {"depth0", std::int64_t{0}}, {"cycle", Callable{nullptr, "cycle", i}}};
    if (i > 0) state->members.emplace("previtem", items[i - 1]);
    if (at + 1 < count) state->members.emplace("nextitem", items[i + 1]);
    return state;
  }

  Value named(const std::string& name) const {
    for (std::size_t i = scopes_.size() - 1; i < scopes_.size(); i = scopes_[i].outer)
      if (const auto found = scopes_[i].names.find(name); found != scopes_[i].names.end())
        return found->second;
    if (const std::string_view function = function_named(name); !function.empty())
      return Callable{nullptr, function, 0};
    for (const std::string_view known : {"cycler", "joiner", "lipsum", "self"})  // defined in Jinja
      if (name == known) refuse("uses ", printable(name), ", which heed does not know");
    return Undefined{name};
  }

  Value value_of(const Expression& one) {
    return at_line(one.line, [&] { return value_of_kind(one); });
  }
  Value value_of_kind(const Expression& one) {
    switch (one.kind) {
      case ExpressionKind::constant:
        return one.value;
      case ExpressionKind::name:
        return named(one.text);
      case ExpressionKind::list:
        return list_of(values_of(one, 0));
      case ExpressionKind::tuple:
        return list_of(values_of(one, 0), ListKind::tuple);
      case ExpressionKind::dict:
        return dict(one);
      case ExpressionKind::attribute:
        return attribute(value_of(one.parts[0]), one.text);
      case ExpressionKind::subscript:
        return subscript(value_of(one.parts[0]), value_of(one.parts[1]), work_);
      case ExpressionKind::slice:
        return slice(one);
      case ExpressionKind::call:
        return call(one);
      case ExpressionKind::filter:
        return filtered(one.text, value_of(one.parts[0]), given_to(one), work_);
      case ExpressionKind::test:
        return passes_test(one.text, value_of(one.parts[0]), given_to(one), work_);
      case ExpressionKind::unary:
        return unary(one);
      case ExpressionKind::binary:
        return binary(one);
      case ExpressionKind::comparison:
        return comparison(one);
      case ExpressionKind::conditional:
        break;
    }
    if (value_of(one.parts[0]).truth()) return value_of(one.parts[1]);
    return one.parts.size() > 2 ? value_of(one.parts[2]) : Value(Undefined{"an if without an else"});
  }

  std::vector<Value> values_of(const Expression& one, std::size_t from) {
    std::vector<Value> all;
    for (std::size_t i = from; i < one.parts.size(); ++i) all.push_back(value_of(one.parts[i]));
    work_.spend(all.size() * sizeof(Value));
    return all;
  }

  Given given_to(const Expression& one) {
    Given given{values_of(one, 1), {}};
    for (const auto& [name, argument] : one.named) given.named.emplace_back(name, value_of(argument));
    return given;
  }

  Value dict(const Expression& one) {
    Given given;
    for (std::size_t i = 0; i < one.parts.size(); i += 2) {
      const Value name = value_of(one.parts[i]);
      if (name.text() == nullptr) refuse("has ", name.kind(), " as a key of a dict; a text is expected");
      given.named.emplace_back(*name.text(), value_of(one.parts[i + 1]));
    }
    return call_function("dict", given, work_);
  }

  Value slice(const Expression& one) {
    const Value value = value_of(one.parts[0]);
    if (value.text() == nullptr && (value.list() == nullptr || value.list()->kind == ListKind::view))
      refuse("takes a slice of ", value.kind());
    const std::vector<Value> items = items_of(value, work_);
    std::vector<Value> taken;
    for (const std::size_t at :
         sliced(std::ssize(items), value_of(one.parts[1]), value_of(one.parts[2]), value_of(one.parts[3])))
      taken.push_back(items[at]);
    if (value.list()) return list_of(std::move(taken), value.list()->kind);
    std::string text;
    for (const Value& character : taken) text += *character.text();
    return text;
  }

  Value call(const Expression& one) {
    const Expression& callee = one.parts[0];
    if (callee.kind == ExpressionKind::attribute) {
      const Value subject = value_of(callee.parts[0]);
      if (has_method(subject, callee.text)) return call_method(callee.text, subject, given_to(one), work_);
    }
    const Value function = value_of(callee);
    const Callable* callable = function.get<Callable>();
    if (callable == nullptr)
      refuse("calls ", function.kind(), callee.text.empty() ? "" : ", " + printable(callee.text));
    const Given given = given_to(one);
    if (callable->function == "cycle") return cycled(given, callable->scope);
    return callable->macro ? call_macro(*callable, given) : call_function(callable->function, given, work_);
  }

  static Value cycled(const Given& given, std::size_t round) {
    if (given.values.empty() || !given.named.empty()) refuse("calls loop.cycle() with other than values");
    return given.values[round % given.values.size()];
  }

  Value call_macro(const Callable& callable, const Given& given) {
    const Statement& macro = *callable.macro;
    if (given.values.size() > macro.parameters.size())
      refuse("gives the macro ", printable(macro.text), " ", counted(given.values.size(), "argument"),
             "; at most ", macro.parameters.size(), " are expected");
    scopes_.push_back({.outer = callable.scope});
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const Parameter& parameter = macro.parameters[i];
      const auto named_one =
          std::ranges::find_if(given.named, [&](const auto& one) { return one.first == parameter.name; });
      const bool by_name = named_one != given.named.end();
      if (i < given.values.size() && by_name) refuse("gives a macro ", printable(parameter.name), " twice");
      names().insert_or_assign(parameter.name, i < given.values.size() ? given.values[i]
                                               : by_name               ? named_one->second
                                               : parameter.has_default ? value_of(parameter.fallback)
                                                                       : Value(Undefined{parameter.name}));
    }
    for (const auto& [name, value] : given.named)
      if (!names().contains(name)) refuse("gives a macro the unknown argument ", printable(name));
    names().insert({{"kwargs", dict_of({})}, {"varargs", list_of({}, ListKind::tuple)}});  // none is passed
    std::string out;
    run(macro.body, out);
    scopes_.pop_back();
    return out;
  }

  Value unary(const Expression& one) {
    const Value value = value_of(one.parts[0]);
    if (one.text == "not") return !value.truth();
    if (const double* real = value.get<double>()) return one.text == "-" ? -*real : *real;
    return calculated(one.text, std::int64_t{0}, value, work_);
  }

  Value binary(const Expression& one) {
    Value left = value_of(one.parts[0]);
    if (one.text == "and" || one.text == "or")
      return left.truth() == (one.text == "or") ? left : value_of(one.parts[1]);
    const Value right = value_of(one.parts[1]);
    if (one.text != "~") return calculated(one.text, left, right, work_);
    std::string text = printed(left) + printed(right);
    work_.spend(text.size());
    return text;
  }

  Value comparison(const Expression& one) {
    Value left = value_of(one.parts[0]);
    for (const auto& [name, expression] : one.named) {
      Value right = value_of(expression);
      if (!holds(name, left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  bool holds(std::string_view name, const Value& a, const Value& b) {
    if (name == "==") return equal(a, b, work_);
    if (name == "!=") return !equal(a, b, work_);
    if (name == "in") return contains(b, a, work_);
    if (name == "not in") return !contains(b, a, work_);
    if (name == "<") return less(a, b);
    if (name == ">") return less(b, a);
    return name == "<=" ? !less(b, a) : !less(a, b);
  }

  Work work_;
  std::vector<Level> scopes_;
  int depth_ = 0;
  bool has_line_ = false;
};

}  // namespace

std::string rendered(std::string_view source, std::vector<std::pair<std::string, Value>> variables) {
  const Statements statements = parsed(source);
  Scope scope;
  for (auto& [name, value] : variables) scope.insert_or_assign(std::move(name), std::move(value));
  std::string out;
  Renderer(std::move(scope)).run(statements, out);
  return out;
}

}  // namespace heed::detail::chat
