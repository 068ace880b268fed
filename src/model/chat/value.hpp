// Values of a chat template: Jinja's, immutable, and nested to a bounded depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heed::detail::chat {

constexpr std::size_t kMaxWork = std::size_t{1} << 26;

/// The work of one rendering, up to kMaxWork. Templates are hostile: each value is counted before it is made.
class Work {
 public:
  /// Counts bytes of text that is made, and steps. Throws Error (invalid_argument) past the limit.
  void spend(std::size_t amount);

 private:
  std::size_t left_ = kMaxWork;
};

struct Statement;
struct ListValue;
struct DictValue;
struct NamespaceValue;
struct GeneratorValue;

/// A name or member without a value.
struct Undefined {
  std::string name;
};
struct None {};
/// A macro of the template, or a function of heed.
struct Callable {
  const Statement* macro = nullptr;
  std::string_view function;
  std::size_t scope = 0;  ///< where the macro is defined; of loop.cycle(), the loop's round
};

using Text = std::shared_ptr<const std::string>;
using List = std::shared_ptr<const ListValue>;
using Dict = std::shared_ptr<const DictValue>;
using Namespace = std::shared_ptr<NamespaceValue>;
using Generator = std::shared_ptr<GeneratorValue>;

class Value {
 public:
  Value() : held_(Undefined{}) {}
  Value(Undefined value) : held_(std::move(value)) {}
  Value(None value) : held_(value) {}
  Value(bool value) : held_(value) {}
  Value(std::int64_t value) : held_(value) {}
  Value(double value) : held_(value) {}
  Value(std::string value) : held_(std::make_shared<const std::string>(std::move(value))) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(List value) : held_(std::move(value)) {}
  Value(Dict value) : held_(std::move(value)) {}
  Value(Namespace value) : held_(std::move(value)) {}
  Value(Generator value) : held_(std::move(value)) {}
  Value(Callable value) : held_(value) {}

  template <class T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<T>(held_);
  }
  /// nullptr for a value of another type.
  template <class T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&held_);
  }
  [[nodiscard]] const std::string* text() const;
  [[nodiscard]] const ListValue* list() const;
  [[nodiscard]] const DictValue* dict() const;
  /// The number of an integer or a bool; returns false for other values.
  [[nodiscard]] bool integer(std::int64_t& number) const;
  /// The number of a float, an integer or a bool, likewise.
  [[nodiscard]] bool real(double& number) const;
  [[nodiscard]] bool truth() const;
  /// Its type in messages: "a list".
  [[nodiscard]] std::string_view kind() const;

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, Text, List, Dict, Namespace, Callable, Generator>
      held_;
};

/// Lists of different kinds are never equal. A view is the keys, values or items of a dict.
enum class ListKind { list, tuple, range, view };
struct ListValue {
  std::vector<Value> items;
  int depth = 1;
  ListKind kind = ListKind::list;
};
/// In the order of insertion.
struct DictValue {
  std::vector<std::pair<std::string, Value>> members;
  int depth = 1;
  [[nodiscard]] const Value* find(std::string_view name) const;
};
struct NamespaceValue {
  std::map<std::string, Value, std::less<>> members;
};
/// The result of a filter that Jinja computes item by item. It is true, has no length, and is used once.
struct GeneratorValue {
  std::vector<Value> items;
  bool used = false;
};

/// Throws Error (invalid_argument) for values that cannot be inside others: too deep, namespaces, functions,
/// generators.
[[nodiscard]] Value list_of(std::vector<Value> items, ListKind kind = ListKind::list);
[[nodiscard]] Value dict_of(std::vector<std::pair<std::string, Value>> members);

/// == of Python.
[[nodiscard]] bool equal(const Value& a, const Value& b, Work& work);
/// The text that a value becomes in the output. Lists and dicts, whose text is Python's, throw Error.
[[nodiscard]] std::string printed(const Value& value);
/// json.dumps(ensure_ascii=False, indent=indent); indent < 0: on one line.
[[nodiscard]] std::string json_of(const Value& value, std::int64_t indent, Work& work);

}  // namespace heed::detail::chat
