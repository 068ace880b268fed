#include <algorithm>
#include <array>

#include "attention/masks/expression_nodes.hpp"
#include "attention/masks/expression_words.hpp"
#include "attention/problem/operands.hpp"

namespace heed::detail {
namespace {

struct BinaryOperator {
  std::string_view symbol;
  Op op;
  bool swapped;  // a > b is b < a
};

struct Level {
  std::span<const BinaryOperator> operators;
  ValueType operands;
};

constexpr BinaryOperator kEither[] = {{"||", Op::either, false}};
constexpr BinaryOperator kBoth[] = {{"&&", Op::both, false}};
constexpr BinaryOperator kEqual[] = {{"==", Op::equal, false}, {"!=", Op::not_equal, false}};
constexpr BinaryOperator kOrder[] = {{"<=", Op::less_equal, false},
                                     {"<", Op::less, false},
                                     {">=", Op::less_equal, true},
                                     {">", Op::less, true}};
constexpr BinaryOperator kSum[] = {{"+", Op::add, false}, {"-", Op::subtract, false}};
constexpr BinaryOperator kProduct[] = {{"*", Op::multiply, false},
                                       {"//", Op::floor_divide, false},
                                       {"/", Op::divide, false},
                                       {"%", Op::modulo, false}};
// From the loosest to the tightest binding.
constexpr std::array<Level, 6> kLevels{{{kEither, ValueType::condition},
                                        {kBoth, ValueType::condition},
                                        {kEqual, ValueType::number},
                                        {kOrder, ValueType::number},
                                        {kSum, ValueType::number},
                                        {kProduct, ValueType::number}}};
constexpr std::size_t kEqualLevel = 2;
constexpr std::size_t kOrderLevel = 3;

struct Function {
  std::string_view name;
  Op op;
  std::size_t operands;
};
constexpr Function kFunctions[] = {{"abs", Op::absolute, 1},     {"min", Op::minimum, 2},
                                   {"max", Op::maximum, 2},      {"floor", Op::floor, 1},
                                   {"sqrt", Op::square_root, 1}, {"exp", Op::exponential, 1},
                                   {"log", Op::logarithm, 1},    {"tanh", Op::hyperbolic_tangent, 1},
                                   {"where", Op::select, 3}};

constexpr std::string_view kVariables = "bhijs";

std::string_view name_of(ValueType type) { return type == ValueType::number ? "a number" : "a condition"; }
std::string_view plural_of(ValueType type) { return type == ValueType::number ? "numbers" : "conditions"; }

void check_arrays(ExpressionKind kind, NamedArrays arrays) {
  const auto what = std::string("array '");
  const std::string of = "' of a " + std::string(name_of(kind));
  for (std::size_t n = 0; n < arrays.size(); ++n) {
    const auto& [name, values] = arrays[n];
    if (!is_name(name))
      refuse("the name of array ", n, " of a ", name_of(kind),
             " must be letters, digits and _, no digit first");
    if (is_reserved(name)) refuse(what, name, of, " has a name that means something else in the language");
    for (std::size_t other = 0; other < n; ++other)
      if (arrays[other].first == name) refuse(what, name, of, " is given twice");
    if (values.rank() != 1) refuse(what, name, of, " has shape ", values.shape(), ", but must have one axis");
    check_memory(what + name + of, values);
  }
}

class Parser {
 public:
  Parser(Expression& expression, NamedArrays arrays)
      : expression_(expression),
        arrays_(arrays),
        words_(expression.kind, expression.text),
        nodes_(expression) {}

  void parse() {
    const int root = conditional();
    if (words_.now().kind != WordKind::end)
      fail(words_.now().begin, words_.unexpected(), "; an operator or the end is expected");
    check_root(nodes_[root].type);
  }

 private:
  // Counts one level of nesting for as long as it exists.
  class Nest {
   public:
    explicit Nest(Parser& parser) : depth_(parser.depth_) {
      if (++depth_ > kDeepestExpression) {
        --depth_;
        const std::size_t place = parser.words_.now().begin;
        parser.fail(place, "nested deeper than ", kDeepestExpression, " ", Words::at(place));
      }
    }
    ~Nest() { --depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    int& depth_;
  };

  template <class... Parts>
  [[noreturn]] void fail(std::size_t place, const Parts&... parts) const {
    words_.fail(place, parts...);
  }

  void check_root(ValueType type) const {
    if (expression_.kind == ExpressionKind::mask && type == ValueType::number)
      fail(0, "the expression is a number, but a mask must be a condition");
    if (expression_.kind == ExpressionKind::score && type == ValueType::condition)
      fail(0,
           "the expression is a condition, but a score must be a number, such as where(condition, s, -inf)");
  }

  // Checks the number of nodes after one was added.
  int counted(int node) const {
    if (nodes_.made() > kMaxExpressionNodes)
      fail(nodes_[node].begin, "more than ", kMaxExpressionNodes, " values and operators ",
           Words::at(nodes_[node].begin));
    return node;
  }
  int operation(Op op, std::size_t begin, int a, int b = -1, int c = -1) {
    return counted(nodes_.operation(op, begin, words_.previous_end(), a, b, c));
  }

  int conditional() {
    const Nest nest(*this);
    const std::size_t begin = words_.now().begin;
    const int condition = binary(0);
    const std::size_t mark = words_.now().begin;
    if (!words_.take("?")) return condition;
    if (nodes_[condition].type != ValueType::condition)
      fail(mark, "'?' ", Words::at(mark), " needs a condition before it, but has a number");
    const int yes = conditional();
    expect(":");
    const int no = conditional();
    if (nodes_[yes].type != nodes_[no].type)
      fail(mark, "'?' ", Words::at(mark), " chooses between ", name_of(nodes_[yes].type), " and ",
           name_of(nodes_[no].type));
    return operation(Op::select, begin, condition, yes, no);
  }

  int binary(std::size_t level) {
    if (level == kLevels.size()) return unary();
    if (level == kEqualLevel && words_.now().is("not")) return prefixed(ValueType::condition, level);
    const std::size_t begin = words_.now().begin;
    const bool compares = level == kEqualLevel || level == kOrderLevel;
    int left = binary(level + 1);
    std::string_view pair, last;  // the text of the comparison so far, and of its right side
    while (const BinaryOperator* found = operator_of(level)) {
      const std::size_t place = words_.now().begin;
      words_.advance();
      const std::size_t right_begin = words_.now().begin;
      const int right = binary(level + 1);
      if (!pair.empty())
        fail(place, "comparisons do not chain ", Words::at(place), "; write ", shown(pair), " && ",
             shown(last), " ", found->symbol, " ", shown(text_from(right_begin)));
      check_operands(level, *found, place, left, right);
      if (compares) pair = text_from(begin);
      last = text_from(right_begin);
      left = found->swapped ? operation(found->op, begin, right, left)
                            : operation(found->op, begin, left, right);
    }
    return left;
  }

  const BinaryOperator* operator_of(std::size_t level) const {
    for (const BinaryOperator& one : kLevels[level].operators)
      if (words_.now().is(one.symbol)) return &one;
    return nullptr;
  }

  // The text from `begin` to the end of the last word passed.
  std::string_view text_from(std::size_t begin) const {
    return words_.text().substr(begin, words_.previous_end() - begin);
  }

  void check_operands(std::size_t level, const BinaryOperator& of, std::size_t place, int left,
                      int right) const {
    const ValueType a = nodes_[left].type, b = nodes_[right].type;
    if (level == kEqualLevel) {
      if (a != b)
        fail(place, "'", of.symbol, "' ", Words::at(place), " compares ", name_of(a), " with ", name_of(b));
      return;
    }
    const ValueType wanted = kLevels[level].operands;
    if (a != wanted || b != wanted)
      fail(place, "'", of.symbol, "' ", Words::at(place), " needs ", plural_of(wanted), ", but its ",
           a != wanted ? "left" : "right", " side is ", name_of(a != wanted ? a : b));
  }

  int unary() {
    const Word& word = words_.now();
    if (word.is("-")) return prefixed(ValueType::number, kLevels.size());
    if (word.is("!") || word.is("not")) return prefixed(ValueType::condition, kLevels.size());
    return primary();
  }

  // Parses -, ! or not before an operand that binds as tightly as `level`. The operand of `not` is a
  // comparison.
  int prefixed(ValueType wanted, std::size_t level) {
    const Nest nest(*this);
    const Word word = words_.now();
    words_.advance();
    const int operand = binary(level);
    if (nodes_[operand].type != wanted)
      fail(word.begin, "'", word.text, "' ", Words::at(word.begin), " needs ", name_of(wanted), ", but has ",
           name_of(nodes_[operand].type));
    return operation(wanted == ValueType::number ? Op::negate : Op::invert, word.begin, operand);
  }

  int primary() {
    const Word word = words_.now();
    if (word.kind == WordKind::number) {
      words_.advance();
      return counted(nodes_.number(word.value, ValueType::number, word.begin, words_.previous_end()));
    }
    if (word.kind == WordKind::name) return named(word);
    if (words_.take("(")) {
      const int inside = conditional();
      expect(")");
      return inside;
    }
    fail(word.begin, words_.unexpected(), "; a value is expected");
  }

  int named(const Word& word) {
    words_.advance();
    const auto constant = [&](double value, ValueType type) {
      return counted(nodes_.number(value, type, word.begin, words_.previous_end()));
    };
    if (word.text == "true") return constant(1, ValueType::condition);
    if (word.text == "false") return constant(0, ValueType::condition);
    if (word.text == "inf") return constant(kInfinity, ValueType::number);
    if (word.text.size() == 1 && kVariables.find(word.text[0]) != std::string_view::npos)
      return variable(word);
    for (const Function& function : kFunctions)
      if (word.text == function.name) return call(word, function);
    for (const auto& [name, values] : arrays_)
      if (word.text == name) return read(word, values);
    fail(word.begin, "unknown name '", shown(word.text), "' ", Words::at(word.begin), "; ", known_names(),
         " is expected");
  }

  int variable(const Word& word) {
    const auto which = static_cast<Variable>(kVariables.find(word.text[0]));
    if (which == Variable::s && expression_.kind == ExpressionKind::mask)
      fail(word.begin, "s ", Words::at(word.begin), " is the score, which masks do not see");
    return counted(nodes_.variable(which, word.begin, words_.previous_end()));
  }

  // Returns "b, h, i, j or an array (doc, len)", for example.
  std::string known_names() const {
    const bool score = expression_.kind == ExpressionKind::score;
    if (arrays_.empty()) return score ? "b, h, i, j or s" : "b, h, i or j";
    std::string names = score ? "b, h, i, j, s or an array (" : "b, h, i, j or an array (";
    constexpr std::size_t kListed = 8;
    for (std::size_t n = 0; n < arrays_.size() && n < kListed; ++n)
      names += (n > 0 ? ", " : "") + shown(arrays_[n].first);
    return names + (arrays_.size() > kListed ? ", ...)" : ")");
  }

  int call(const Word& word, const Function& function) {
    if (!words_.take("("))
      fail(words_.now().begin, words_.unexpected(), "; ( is expected after ", function.name);
    std::array<int, 3> operands{-1, -1, -1};
    std::size_t count = 0;
    do {
      const int operand = conditional();
      if (count < function.operands) operands[count] = operand;
      ++count;
    } while (words_.take(","));
    expect(")");
    if (count != function.operands)
      fail(word.begin, function.name, " ", Words::at(word.begin), " takes ",
           detail::counted(function.operands, "value"), ", but has ", count);
    check_arguments(word, function, operands);
    return operation(function.op, word.begin, operands[0], operands[1], operands[2]);
  }

  void check_arguments(const Word& word, const Function& function, const std::array<int, 3>& operands) const {
    const bool chooses = function.op == Op::select;
    for (std::size_t n = 0; n < function.operands; ++n) {
      const ValueType type = nodes_[operands[n]].type;
      const ValueType wanted = !chooses ? ValueType::number
                               : n == 0 ? ValueType::condition
                                        : nodes_[operands[1]].type;
      if (type != wanted)
        fail(word.begin, "value ", n + 1, " of ", function.name, " ", Words::at(word.begin), " is ",
             name_of(type), ", but must be ", name_of(wanted));
    }
  }

  int read(const Word& word, const TensorView& values) {
    if (!words_.take("[")) fail(words_.now().begin, words_.unexpected(), "; [ is expected after ", word.text);
    const int index = conditional();
    expect("]");
    const ExpressionNode& node = nodes_[index];
    const auto place = [&] { return std::string(word.text) + "[...] " + Words::at(word.begin); };
    if (node.type != ValueType::number) fail(word.begin, "the index of ", place(), " is a condition");
    if ((node.needs & bit_of(Variable::s)) != 0)
      fail(word.begin, "the index of ", place(), " uses s, whose bounds are unknown");
    if (!node.whole)
      fail(word.begin, "the index of ", place(), " may not be a whole number; // divides to a whole number");
    return counted(nodes_.read(array_of(word.text, values), index, word.begin, words_.previous_end()));
  }

  int array_of(std::string_view name, const TensorView& values) {
    auto& arrays = expression_.arrays;
    const auto known =
        std::ranges::find_if(arrays, [&](const ExpressionArray& array) { return array.name() == name; });
    const auto place = known - arrays.begin();
    if (known == arrays.end()) arrays.emplace_back(std::string(name), values);
    return static_cast<int>(place);
  }

  void expect(std::string_view symbol) {
    if (!words_.take(symbol))
      fail(words_.now().begin, words_.unexpected(), "; an operator or ", symbol, " is expected");
  }

  Expression& expression_;
  NamedArrays arrays_;
  Words words_;
  ExpressionNodes nodes_;
  int depth_ = -1;  // 0 outside of brackets
};

}  // namespace

std::size_t Expression::bytes() const {
  std::size_t bytes = sizeof *this + text.capacity() + nodes.capacity() * sizeof(ExpressionNode);
  for (const ExpressionArray& array : arrays) bytes += array.bytes();
  return bytes;
}

Expression parse_expression(ExpressionKind kind, std::string_view text, NamedArrays arrays) {
  if (text.size() > kLongestExpression)
    refuse(name_of(kind), " has ", text.size(), " bytes, but at most ", kLongestExpression, " are allowed");
  check_arrays(kind, arrays);
  Expression expression{kind, std::string(text), {}, {}};
  Parser(expression, arrays).parse();
  expression.nodes.shrink_to_fit();
  return expression;
}

}  // namespace heed::detail
