// Filters and tests of Jinja, as transformers sets it up.
#include <algorithm>
#include <charconv>

#include "core/message.hpp"
#include "core/utf8.hpp"
#include "model/chat/functions.hpp"
#include "model/chat/texts.hpp"

namespace heed::detail::chat {
namespace {

bool is_true(const std::optional<Value>& given) { return given && given->truth(); }

Value trim(const Value& subject, const Bound& given, Work& work) {
  std::optional<std::string> characters;
  if (given[0] && !given[0]->is<None>()) characters = text_of_argument(given[0], "");
  return stripped(printed(subject), characters, Side::both, work);
}

Value length(const Value& subject, const Bound&, Work& work) {
  if (const std::string* text = subject.text()) {
    work.spend(text->size());
    return static_cast<std::int64_t>(letters_in(*text));
  }
  if (const ListValue* list = subject.list()) return std::ssize(list->items);
  if (const DictValue* dict = subject.dict()) return std::ssize(dict->members);
  if (subject.is<Undefined>()) return std::int64_t{0};
  refuse("asks for the length of ", subject.kind());
}

Value to_json(const Value& subject, const Bound& given, Work& work) {
  if (is_true(given[0])) refuse("writes JSON with ensure_ascii, which heed does not know");
  const bool on_lines = given[1] && !given[1]->is<None>();
  const std::int64_t indent = on_lines ? std::max<std::int64_t>(integer_of(given[1], 0), 0) : -1;
  if (indent > 16) refuse("indents JSON by more than 16");
  return json_of(subject, indent, work);
}

template <Case wanted>
Value cased(const Value& subject, const Bound&, Work& work) {
  const std::string text = printed(subject);
  work.spend(text.size());
  return in_case(text, wanted);
}

Value first(const Value& subject, const Bound&, Work& work) {
  const std::vector<Value> items = items_of(subject, work);
  return items.empty() ? Value(Undefined{"the first item of an empty list"}) : items.front();
}

Value last(const Value& subject, const Bound&, Work& work) {
  if (subject.is<Generator>()) refuse("asks for the last item of a generator");
  const std::vector<Value> items = items_of(subject, work);
  return items.empty() ? Value(Undefined{"the last item of an empty list"}) : items.back();
}

Value as_integer(const Value& subject, const Bound& given, Work&) {
  if (std::int64_t number = 0; subject.integer(number)) return number;
  if (const std::string* text = subject.text()) {
    std::int64_t number = 0;
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, number);
    if (error == std::errc() && stop == end) return number;
    if (text->find_first_of("0123456789") == std::string::npos) return integer_of(given[0], 0);
  }
  refuse("makes an integer of ", subject.kind(), ", which heed does not know");
}

// The value at a path of names and indices with dots between. The fallback replaces undefined values.
Value at_path(Value value, const Value& path, Work& work, const std::optional<Value>& fallback = {}) {
  if (path.text() == nullptr) (void)integer_of(path, 0);
  for (const Value& part : split_text(printed(path), ".", -1, false, work)) {
    const bool is_index =
        !part.text()->empty() && part.text()->find_first_not_of("0123456789") == std::string::npos;
    value = subscript(value, is_index || !path.text() ? as_integer(part, {}, work) : part, work);
    if (value.is<Undefined>() && fallback && !fallback->is<None>()) value = *fallback;
  }
  return value;
}

// The item itself without a path.
Value part_of(const Value& item, const std::optional<Value>& path, Work& work) {
  return path && !path->is<None>() ? at_path(item, *path, work) : item;
}

// sort() and unique() compare this part of an item, in lower case unless cases differ.
Value key_of(const Value& item, const std::optional<Value>& path, bool cases_differ, Work& work) {
  Value part = part_of(item, path, work);
  if (cases_differ || part.text() == nullptr) return part;
  work.spend(part.text()->size());
  return in_case(*part.text(), Case::lower);
}

Value join(const Value& subject, const Bound& given, Work& work) {
  const std::string between = given[0] ? printed(*given[0]) : "";
  std::string made;
  bool follows = false;
  for (const Value& item : items_of(subject, work)) {
    const std::string text = printed(part_of(item, given[1], work));
    work.spend(text.size() + between.size());
    if (std::exchange(follows, true)) made += between;
    made += text;
  }
  return made;
}

Value fallback(const Value& subject, const Bound& given, Work&) {
  const bool missing = subject.is<Undefined>() || (is_true(given[1]) && !subject.truth());
  return !missing ? subject : given[0] ? *given[0] : Value("");
}

Value replace(const Value& subject, const Bound& given, Work& work) {
  return replaced(printed(subject), printed(*given[0]), printed(*given[1]), integer_of(given[2], -1), work);
}

Value as_list(const Value& subject, const Bound&, Work& work) { return list_of(items_of(subject, work)); }
Value as_text(const Value& subject, const Bound&, Work& work) {
  std::string text = printed(subject);
  work.spend(text.size());
  return text;
}

Value generator_of(std::vector<Value> items) {
  return std::make_shared<GeneratorValue>(GeneratorValue{std::move(items)});
}

Value items(const Value& subject, const Bound&, Work& work) {
  if (subject.is<Undefined>()) return generator_of({});
  if (subject.dict() == nullptr) refuse("asks for the items of ", subject.kind());
  return generator_of(items_of(call_method("items", subject, {}, work), work));
}

Value reversed(const Value& subject, const Bound&, Work& work) {
  std::vector<Value> all = items_of(subject, work);
  std::ranges::reverse(all);
  if (subject.is<Generator>()) return list_of(std::move(all));
  if (subject.text() == nullptr) return generator_of(std::move(all));
  std::string made;
  for (const Value& one : all) made += *one.text();
  return made;
}

// By several parts if their paths are separated by commas. Python, too, asks whether keys are equal first.
Value sort(const Value& subject, const Bound& given, Work& work) {
  std::vector<std::optional<Value>> paths = {given[2]};
  if (given[2] && given[2]->text()) {
    const std::vector<Value> parts = split_text(*given[2]->text(), ",", -1, false, work);
    paths.assign(parts.begin(), parts.end());
  }
  std::vector<std::pair<std::vector<Value>, Value>> all;
  for (const Value& item : items_of(subject, work)) {
    all.push_back({{}, item});
    for (const auto& path : paths) all.back().first.push_back(key_of(item, path, is_true(given[1]), work));
  }
  const auto before = [&](const auto& a, const auto& b) {
    for (std::size_t i = 0; i < paths.size(); ++i)
      if (!equal(a.first[i], b.first[i], work)) return less(a.first[i], b.first[i]);
    return false;
  };
  const bool falls = integer_of(given[0], 0) != 0;
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto& a, const auto& b) { return falls ? before(b, a) : before(a, b); });
  std::vector<Value> made;
  for (auto& [keys, item] : all) made.push_back(std::move(item));
  return list_of(std::move(made));
}

Value unique(const Value& subject, const Bound& given, Work& work) {
  std::vector<Value> seen, made;
  for (const Value& item : items_of(subject, work)) {
    const Value key = key_of(item, given[1], is_true(given[0]), work);
    if (key.list() || key.dict()) refuse("looks for ", key.kind(), " among others, which heed does not know");
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& one) { return equal(one, key, work); }))
      continue;
    seen.push_back(key);
    made.push_back(item);
  }
  return generator_of(std::move(made));
}

// Python's versions round sums of floats differently.
Value sum(const Value& subject, const Bound& given, Work& work) {
  Value total = given[1] ? *given[1] : Value(std::int64_t{0});
  if (total.text()) refuse("sums texts");
  for (const Value& item : items_of(subject, work)) {
    const Value part = part_of(item, given[0], work);
    if (total.is<double>() || part.is<double>()) refuse("sums floats, which heed does not know");
    total = calculated("+", total, part, work);
  }
  return total;
}

// map() and select() take any value that is not true for an empty list.
std::vector<Value> items_or_none(const Value& subject, Work& work) {
  return subject.truth() ? items_of(subject, work) : std::vector<Value>();
}

// map(attribute='name'), or map('filter').
Value map(const Value& subject, const Bound& given, Work& work) {
  if (given[0].has_value() == given[1].has_value() || (given[0] && given[2]))
    refuse("calls map() with other than a filter or an attribute");
  std::vector<Value> made;
  for (const Value& item : items_or_none(subject, work))
    made.push_back(given[1] ? at_path(item, *given[1], work, given[2])
                            : filtered(text_of_argument(given[0], ""), item, {}, work));
  return generator_of(std::move(made));
}

// Whether a value passes the test of an argument, or is true without one.
bool passes(const Value& value, const std::optional<Value>& test, const std::optional<Value>& argument,
            Work& work) {
  if (!test) return value.truth();
  Given given;
  if (argument) given.values.push_back(*argument);
  return passes_test(text_of_argument(test, ""), value, given, work);
}

// The test is of the items, or of their attribute that the first argument names.
template <bool wanted, bool of_attribute>
Value select(const Value& subject, const Bound& given, Work& work) {
  constexpr std::size_t kTest = of_attribute ? 1 : 0;
  std::vector<Value> made;
  for (const Value& item : items_or_none(subject, work)) {
    const Value tested = of_attribute ? at_path(item, *given[0], work) : item;
    if (passes(tested, given[kTest], given[kTest + 1], work) == wanted) made.push_back(item);
  }
  return generator_of(std::move(made));
}

constexpr Function kFilters[] = {
    {"trim", {"chars"}, 0, &trim},
    {"length", {}, 0, &length},
    {"count", {}, 0, &length},
    {"tojson", {"ensure_ascii", "indent"}, 0, &to_json},
    {"upper", {}, 0, &cased<Case::upper>},
    {"lower", {}, 0, &cased<Case::lower>},
    {"title", {}, 0, &cased<Case::words>},
    {"capitalize", {}, 0, &cased<Case::capitalized>},
    {"first", {}, 0, &first},
    {"last", {}, 0, &last},
    {"join", {"d", "attribute"}, 0, &join},
    {"default", {"default_value", "boolean"}, 0, &fallback},
    {"d", {"default_value", "boolean"}, 0, &fallback},
    {"replace", {"old", "new", "count"}, 2, &replace},
    {"list", {}, 0, &as_list},
    {"string", {}, 0, &as_text},
    {"int", {"default"}, 0, &as_integer},
    {"items", {}, 0, &items},
    {"reverse", {}, 0, &reversed},
    {"sort", {"reverse", "case_sensitive", "attribute"}, 0, &sort},
    {"unique", {"case_sensitive", "attribute"}, 0, &unique},
    {"sum", {"attribute", "start"}, 0, &sum},
    {"map", {"filter", "attribute", "default"}, 0, &map},
    {"select", {"test", "argument"}, 0, &select<true, false>},
    {"reject", {"test", "argument"}, 0, &select<false, false>},
    {"selectattr", {"attribute", "test", "argument"}, 1, &select<true, true>},
    {"rejectattr", {"attribute", "test", "argument"}, 1, &select<false, true>},
};

template <class... Types>
Value is_of(const Value& subject, const Bound&, Work&) {
  return (subject.is<Types>() || ...);
}
template <bool wanted>
Value is_flag(const Value& subject, const Bound&, Work&) {
  return subject.is<bool>() && subject.truth() == wanted;
}
Value is_sequence(const Value& subject, const Bound&, Work&) {
  if (const ListValue* list = subject.list()) return list->kind != ListKind::view;
  return subject.is<Undefined>() || subject.text() || subject.dict();
}
Value is_defined(const Value& subject, const Bound&, Work&) { return !subject.is<Undefined>(); }
Value is_equal(const Value& subject, const Bound& given, Work& work) {
  return equal(subject, *given[0], work);
}
Value is_unequal(const Value& subject, const Bound& given, Work& work) {
  return !equal(subject, *given[0], work);
}
Value is_in(const Value& subject, const Bound& given, Work& work) {
  return contains(*given[0], subject, work);
}

template <int remainder>
Value has_remainder(const Value& subject, const Bound& given, Work&) {
  std::int64_t number = 0, divisor = 2;
  if (given[0]) divisor = integer_of(given[0], 2);
  if (!subject.integer(number) || divisor <= 0)
    refuse("divides ", subject.kind(), ", which heed does not know");
  return (number % divisor + divisor) % divisor == remainder;
}

constexpr Function kTests[] = {
    {"defined", {}, 0, &is_defined},
    {"undefined", {}, 0, &is_of<Undefined>},
    {"none", {}, 0, &is_of<None>},
    {"string", {}, 0, &is_of<Text>},
    {"mapping", {}, 0, &is_of<Dict>},
    {"sequence", {}, 0, &is_sequence},
    {"iterable", {}, 0, &is_of<Undefined, Text, List, Dict, Generator>},
    {"boolean", {}, 0, &is_of<bool>},
    {"integer", {}, 0, &is_of<std::int64_t>},
    {"float", {}, 0, &is_of<double>},
    {"number", {}, 0, &is_of<bool, std::int64_t, double>},
    {"callable", {}, 0, &is_of<Callable>},
    {"true", {}, 0, &is_flag<true>},
    {"false", {}, 0, &is_flag<false>},
    {"odd", {}, 0, &has_remainder<1>},
    {"even", {}, 0, &has_remainder<0>},
    {"divisibleby", {"num"}, 1, &has_remainder<0>},
    {"equalto", {"other"}, 1, &is_equal},
    {"eq", {"other"}, 1, &is_equal},
    {"==", {"other"}, 1, &is_equal},
    {"ne", {"other"}, 1, &is_unequal},
    {"!=", {"other"}, 1, &is_unequal},
    {"in", {"seq"}, 1, &is_in},
};

}  // namespace

Value filtered(std::string_view name, const Value& subject, const Given& given, Work& work) {
  return call_in(kFilters, "filter", name, subject, given, work);
}

bool passes_test(std::string_view name, const Value& subject, const Given& given, Work& work) {
  return call_in(kTests, "test", name, subject, given, work).truth();
}

}  // namespace heed::detail::chat
