// The filters, tests, methods and functions of chat templates.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/value.hpp"

namespace heed::detail::chat {

/// The arguments of a call, evaluated.
struct Given {
  std::vector<Value> values{};
  std::vector<std::pair<std::string, Value>> named{};
};

/// The arguments in the order of the parameters.
using Bound = std::array<std::optional<Value>, 4>;

struct Function {
  std::string_view name;
  std::array<std::string_view, 4> parameters;  ///< unused ones are empty
  std::size_t required;                        ///< how many of them must be given
  Value (*call)(const Value& subject, const Bound& given, Work& work);
};

/// Calls the function of that name with bound arguments. Throws Error (invalid_argument) for a name that is
/// not in the table ("uses the filter 'xmlattr', which heed does not know"), and for arguments that do not
/// fit.
[[nodiscard]] Value call_in(std::span<const Function> table, std::string_view what, std::string_view name,
                            const Value& subject, const Given& given, Work& work);

[[nodiscard]] Value filtered(std::string_view name, const Value& subject, const Given& given, Work& work);
[[nodiscard]] bool passes_test(std::string_view name, const Value& subject, const Given& given, Work& work);
[[nodiscard]] Value call_method(std::string_view name, const Value& subject, const Given& given, Work& work);
/// raise_exception() throws Error with the template's own words.
[[nodiscard]] Value call_function(std::string_view name, const Given& given, Work& work);
/// Empty if heed has no function of that name.
[[nodiscard]] std::string_view function_named(std::string_view name);
/// Whether values of this type have such a method in Python, known to heed or not.
[[nodiscard]] bool has_method(const Value& subject, std::string_view name);

/// a.name and a['name']; undefined if there is none.
[[nodiscard]] Value member_of(const Value& value, std::string_view name);
/// a.name, rather refused than guessed where a method hides the member.
[[nodiscard]] Value attribute(const Value& value, const std::string& name);
/// a[key]
[[nodiscard]] Value subscript(const Value& value, const Value& key, Work& work);
/// The items of a list, the names of a dict, the characters of a text; none of an undefined value.
[[nodiscard]] std::vector<Value> items_of(const Value& value, Work& work);
[[nodiscard]] bool contains(const Value& container, const Value& value, Work& work);
/// a < b of texts and of numbers.
[[nodiscard]] bool less(const Value& a, const Value& b);
/// a + b and the like of numbers, and what Python knows of texts and lists.
[[nodiscard]] Value calculated(std::string_view operation, const Value& a, const Value& b, Work& work);

/// An argument of a type, or the fallback if it is not given.
[[nodiscard]] std::int64_t integer_of(const std::optional<Value>& given, std::int64_t fallback);
[[nodiscard]] std::string text_of_argument(const std::optional<Value>& given, std::string_view fallback);

}  // namespace heed::detail::chat
