#include "model/chat/functions.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "core/message.hpp"
#include "core/utf8.hpp"
#include "io/fault.hpp"
#include "model/chat/texts.hpp"

namespace heed::detail::chat {
namespace {

using io::detail::printable;

Bound bound(const Function& function, std::string_view what, const Given& given) {
  const auto of_call = [&] { return "the " + std::string(what) + " " + printable(function.name); };
  Bound all;
  const auto end = std::ranges::find(function.parameters, "");
  const auto count = static_cast<std::size_t>(end - function.parameters.begin());
  if (given.values.size() > count)
    refuse("gives ", of_call(), " ", counted(given.values.size(), "argument"), "; at most ", count,
           " are expected");
  std::ranges::copy(given.values, all.begin());
  for (const auto& [name, value] : given.named) {
    const auto found = std::find(function.parameters.begin(), end, name);
    std::optional<Value>& place =
        all[static_cast<std::size_t>(found - function.parameters.begin()) % all.size()];
    if (found == end || place)
      refuse("gives ", of_call(), " the argument ", printable(name), ", which heed does not know");
    place = value;
  }
  for (std::size_t i = 0; i < function.required; ++i)
    if (!all[i]) refuse("gives ", of_call(), " no ", printable(function.parameters[i]));
  return all;
}

template <Side side>
Value strip(const Value& subject, const Bound& given, Work& work) {
  std::optional<std::string> characters;
  if (given[0] && !given[0]->is<None>()) characters = text_of_argument(given[0], "");
  return stripped(*subject.text(), characters, side, work);
}

template <bool from_right>
Value split(const Value& subject, const Bound& given, Work& work) {
  std::optional<std::string> separator;
  if (given[0] && !given[0]->is<None>()) separator = text_of_argument(given[0], "");
  return list_of(split_text(*subject.text(), separator, integer_of(given[1], -1), from_right, work));
}

// startswith() and endswith() take a text or a tuple of texts.
template <bool at_begin>
Value has_end(const Value& subject, const Bound& given, Work& work) {
  const std::string& text = *subject.text();
  const auto matches = [&](const Value& part) {
    const std::string wanted = text_of_argument(part, "");
    work.spend(wanted.size() + 1);
    return at_begin ? text.starts_with(wanted) : text.ends_with(wanted);
  };
  const ListValue* several = given[0]->list();
  if (several == nullptr || several->kind != ListKind::tuple) return matches(*given[0]);
  return std::ranges::any_of(several->items, matches);
}

template <Case wanted>
Value in_other_case(const Value& subject, const Bound&, Work& work) {
  work.spend(subject.text()->size());
  return in_case(*subject.text(), wanted);
}

Value replace_in(const Value& subject, const Bound& given, Work& work) {
  return replaced(*subject.text(), text_of_argument(given[0], ""), text_of_argument(given[1], ""),
                  integer_of(given[2], -1), work);
}

Value join_with(const Value& subject, const Bound& given, Work& work) {
  std::string made;
  bool follows = false;
  for (const Value& item : items_of(*given[0], work)) {
    if (item.text() == nullptr) refuse("joins ", item.kind(), " to a text");
    work.spend(item.text()->size() + subject.text()->size());
    if (std::exchange(follows, true)) made += *subject.text();
    made += *item.text();
  }
  return made;
}

Value find_part(const Value& subject, const Bound& given, Work& work) {
  work.spend(subject.text()->size());
  const std::size_t at = find_in(*subject.text(), text_of_argument(given[0], ""));
  if (at == std::string::npos) return std::int64_t{-1};
  return static_cast<std::int64_t>(letters_in(std::string_view(*subject.text()).substr(0, at)));
}

template <bool at_begin>
Value without_end(const Value& subject, const Bound& given, Work& work) {
  std::string_view text = *subject.text();
  const std::string part = text_of_argument(given[0], "");
  work.spend(text.size());
  if (at_begin && text.starts_with(part)) text.remove_prefix(part.size());
  if (!at_begin && text.ends_with(part)) text.remove_suffix(part.size());
  return text;
}

constexpr Function kTextMethods[] = {
    {"strip", {"chars"}, 0, &strip<Side::both>},
    {"lstrip", {"chars"}, 0, &strip<Side::left>},
    {"rstrip", {"chars"}, 0, &strip<Side::right>},
    {"split", {"sep", "maxsplit"}, 0, &split<false>},
    {"rsplit", {"sep", "maxsplit"}, 0, &split<true>},
    {"startswith", {"prefix"}, 1, &has_end<true>},
    {"endswith", {"suffix"}, 1, &has_end<false>},
    {"upper", {}, 0, &in_other_case<Case::upper>},
    {"lower", {}, 0, &in_other_case<Case::lower>},
    {"title", {}, 0, &in_other_case<Case::title>},
    {"capitalize", {}, 0, &in_other_case<Case::capitalized>},
    {"replace", {"old", "new", "count"}, 2, &replace_in},
    {"join", {"iterable"}, 1, &join_with},
    {"find", {"sub"}, 1, &find_part},
    {"removeprefix", {"prefix"}, 1, &without_end<true>},
    {"removesuffix", {"suffix"}, 1, &without_end<false>},
};

Value get(const Value& subject, const Bound& given, Work&) {
  const std::string* name = given[0]->text();
  const Value* found = name == nullptr ? nullptr : subject.dict()->find(*name);
  return found != nullptr ? *found : given[1] ? *given[1] : Value(None{});
}

// names, values, or both in pairs.
template <bool names, bool values>
Value members(const Value& subject, const Bound&, Work& work) {
  std::vector<Value> all;
  for (const auto& [name, value] : subject.dict()->members) {
    work.spend(sizeof(Value) * 2);
    all.push_back(names && values ? list_of({Value(name), value}, ListKind::tuple)
                  : names         ? Value(name)
                                  : value);
  }
  return list_of(std::move(all), ListKind::view);
}

constexpr Function kDictMethods[] = {
    {"get", {"key", "default"}, 1, &get},
    {"items", {}, 0, &members<true, true>},
    {"keys", {}, 0, &members<true, false>},
    {"values", {}, 0, &members<false, true>},
};

Value range(const Value&, const Bound& given, Work& work) {
  std::int64_t begin = given[1] ? integer_of(given[0], 0) : 0,
               end = integer_of(given[1] ? given[1] : given[0], 0);
  const std::int64_t step = integer_of(given[2], 1);
  constexpr std::int64_t kFar = std::int64_t{1} << 40;
  if (step == 0 || std::max({std::abs(begin), std::abs(end), std::abs(step)}) > kFar)
    refuse("calls range() with numbers that heed does not know");
  std::vector<Value> all;
  for (; step > 0 ? begin < end : begin > end; begin += step) {
    work.spend(sizeof(Value));
    all.emplace_back(begin);
  }
  return list_of(std::move(all), ListKind::range);
}

Value raise_exception(const Value&, const Bound& given, Work&) {
  refuse("refuses the messages: ", printable(printed(*given[0])));
}

Value strftime_now(const Value&, const Bound& given, Work&) {
  const std::string format = text_of_argument(given[0], "");
  constexpr std::string_view kKnown = "aAbBdHIjmMpSUwWyY%";
  for (std::size_t at = format.find('%'); at != format.npos; at = format.find('%', at + 2))
    if (at + 1 >= format.size() || kKnown.find(format[at + 1]) == kKnown.npos)
      refuse("formats the date as ", printable(format), ", which heed does not know");
  if (format.empty()) return "";
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 512> made{};
  if (const std::size_t size = std::strftime(made.data(), made.size(), format.c_str(), &parts); size > 0)
    return std::string(made.data(), size);
  refuse("formats the date as ", printable(format), ", which is too long");
}

constexpr Function kFunctions[] = {
    {"range", {"start", "stop", "step"}, 1, &range},
    {"raise_exception", {"message"}, 1, &raise_exception},
    {"strftime_now", {"format"}, 1, &strftime_now},
};

// The names that Python's types have; a dict's member of such a name is hidden by the method.
constexpr std::string_view kDictNames[] = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                           "pop",   "popitem", "setdefault", "update", "values"};
constexpr std::string_view kListNames[] = {"append", "clear",  "copy", "count",  "extend",
                                           "index",  "insert", "pop",  "remove", "reverse",
                                           "sort",   "start",  "stop", "step"};
constexpr std::string_view kTextNames[] = {
    "capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
    "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
    "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
    "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
    "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
    "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
    "swapcase",   "title",        "translate",    "upper",   "zfill"};

bool overflows(std::string_view operation, std::int64_t a, std::int64_t b, std::int64_t& result) {
  if (operation == "+") return __builtin_add_overflow(a, b, &result);
  if (operation == "-") return __builtin_sub_overflow(a, b, &result);
  return __builtin_mul_overflow(a, b, &result);
}

// // and % round down, as in Python.
std::int64_t divided(bool remainder, std::int64_t a, std::int64_t b) {
  if (b == 0) refuse("divides by 0");
  if (b == -1 && a == std::numeric_limits<std::int64_t>::min()) refuse("makes a number beyond 64 bits");
  const std::int64_t rest = a % b;
  const bool rounds = rest != 0 && (rest < 0) != (b < 0);
  return remainder ? rest + (rounds ? b : 0) : a / b - (rounds ? 1 : 0);
}

double of_reals(std::string_view operation, double a, double b) {
  if (operation == "+") return a + b;
  if (operation == "-") return a - b;
  if (operation == "*") return a * b;
  if (operation == "/" && b != 0) return a / b;
  refuse("computes ", printable(operation), " of floats, which heed does not know");
}

}  // namespace

Value call_in(std::span<const Function> table, std::string_view what, std::string_view name,
              const Value& subject, const Given& given, Work& work) {
  work.spend(1);
  const auto found = std::ranges::find(table, name, &Function::name);
  if (found == table.end()) refuse("uses the ", what, " ", printable(name), ", which heed does not know");
  return found->call(subject, bound(*found, what, given), work);
}

Value call_method(std::string_view name, const Value& subject, const Given& given, Work& work) {
  if (subject.text()) return call_in(kTextMethods, "method", name, subject, given, work);
  if (subject.dict()) return call_in(kDictMethods, "method", name, subject, given, work);
  refuse("uses the method ", printable(name), " of ", subject.kind(), ", which heed does not know");
}

Value call_function(std::string_view name, const Given& given, Work& work) {
  if (name != "namespace" && name != "dict")
    return call_in(kFunctions, "function", name, Value(), given, work);
  if (given.values.size() > 1 || (given.values.size() == 1 && given.values[0].dict() == nullptr))
    refuse("calls ", name, "() with other than names and values");
  std::vector<std::pair<std::string, Value>> members;
  if (!given.values.empty()) members = given.values[0].dict()->members;
  work.spend((members.size() + given.named.size()) * sizeof(Value));
  for (const auto& one : given.named) {
    const auto old =
        std::ranges::find_if(members, [&](const auto& member) { return member.first == one.first; });
    if (old != members.end())
      old->second = one.second;
    else
      members.push_back(one);
  }
  Value made = dict_of(std::move(members));
  if (name == "dict") return made;
  auto space = std::make_shared<NamespaceValue>();
  for (const auto& [member, value] : made.dict()->members) space->members.emplace(member, value);
  return Namespace(std::move(space));
}

std::string_view function_named(std::string_view name) {
  for (const std::string_view made : {"namespace", "dict"})  // of any arguments
    if (made == name) return made;
  for (const Function& one : kFunctions)
    if (one.name == name) return one.name;
  return {};
}

bool has_method(const Value& subject, std::string_view name) {
  std::span<const std::string_view> names;
  if (subject.text()) names = kTextNames;
  if (subject.list()) names = kListNames;
  if (subject.dict()) names = kDictNames;
  return std::ranges::find(names, name) != names.end();
}

Value member_of(const Value& value, std::string_view name) {
  if (value.is<Undefined>())
    refuse("asks an undefined value, ", printable(value.get<Undefined>()->name), ", for its ",
           printable(name));
  if (const DictValue* dict = value.dict())
    if (const Value* found = dict->find(name)) return *found;
  if (const Namespace* space = value.get<Namespace>())
    if (const auto found = (*space)->members.find(name); found != (*space)->members.end())
      return found->second;
  return Undefined{std::string(name)};
}

Value attribute(const Value& value, const std::string& name) {
  if (name.starts_with('_') || value.is<Callable>() || has_method(value, name))
    refuse("uses ", printable(name), " of ", value.kind(), " without calling it, which heed does not know");
  return member_of(value, name);
}

Value subscript(const Value& value, const Value& key, Work& work) {
  if (key.text()) {
    const bool found = value.dict() && value.dict()->find(*key.text());
    return found ? member_of(value, *key.text()) : attribute(value, *key.text());
  }
  std::int64_t at = 0;
  if (value.is<Undefined>()) return member_of(value, "item");
  const bool has_places = value.text() || (value.list() && value.list()->kind != ListKind::view);
  if (!key.integer(at) || !has_places) return Undefined{"an item"};
  work.spend(value.text() ? value.text()->size() : 1);
  const auto length =
      static_cast<std::int64_t>(value.text() ? letters_in(*value.text()) : value.list()->items.size());
  if (at < -length || at >= length) return Undefined{"an item"};
  const auto place = static_cast<std::size_t>(at < 0 ? at + length : at);
  return value.list() ? value.list()->items[place] : Value(characters_of(*value.text(), work)[place]);
}

std::vector<Value> items_of(const Value& value, Work& work) {
  std::vector<Value> all;
  if (const Generator* generator = value.get<Generator>()) {
    if (std::exchange((*generator)->used, true))
      refuse("takes the items of a generator twice, which heed does not know");
    return std::move((*generator)->items);
  }
  if (const ListValue* list = value.list()) all = list->items;
  if (const std::string* text = value.text())
    for (const std::string_view character : characters_of(*text, work)) all.emplace_back(character);
  if (const DictValue* dict = value.dict())
    for (const auto& [name, member] : dict->members) all.emplace_back(name);
  const bool has_items = value.list() || value.text() || value.dict() || value.is<Undefined>();
  if (!has_items) refuse("asks for the items of ", value.kind());
  work.spend(all.size() * sizeof(Value));
  return all;
}

bool contains(const Value& container, const Value& value, Work& work) {
  if (const std::string* text = container.text()) {
    if (value.text() == nullptr) refuse("asks whether a text has ", value.kind(), " in it");
    work.spend(text->size());
    return find_in(*text, *value.text()) != text->npos;
  }
  if (const DictValue* dict = container.dict()) {
    work.spend(dict->members.size());
    return value.text() != nullptr && dict->find(*value.text()) != nullptr;
  }
  if (container.is<Generator>()) return contains(list_of(items_of(container, work)), value, work);
  if (container.list() == nullptr && !container.is<Undefined>())
    refuse("asks whether ", container.kind(), " has items");
  if (container.list() == nullptr) return false;
  const std::vector<Value>& items = container.list()->items;
  return std::ranges::any_of(items, [&](const Value& item) { return equal(item, value, work); });
}

bool less(const Value& a, const Value& b) {
  if (a.text() && b.text()) return *a.text() < *b.text();
  std::int64_t whole_a = 0, whole_b = 0;
  if (a.integer(whole_a) && b.integer(whole_b)) return whole_a < whole_b;
  double real_a = 0, real_b = 0;
  if (!a.real(real_a) || !b.real(real_b)) refuse("compares ", a.kind(), " with ", b.kind());
  return real_a < real_b;
}

Value calculated(std::string_view operation, const Value& a, const Value& b, Work& work) {
  if (operation == "+" && a.text() && b.text()) {
    work.spend(a.text()->size() + b.text()->size());
    return *a.text() + *b.text();
  }
  if (operation == "+" && a.list() && b.list() && a.list()->kind == b.list()->kind &&
      a.list()->kind <= ListKind::tuple) {
    work.spend((a.list()->items.size() + b.list()->items.size()) * sizeof(Value));
    std::vector<Value> all = a.list()->items;
    all.insert(all.end(), b.list()->items.begin(), b.list()->items.end());
    return list_of(std::move(all), a.list()->kind);
  }
  std::int64_t whole_a = 0, whole_b = 0, whole = 0;
  if (operation == "*" && a.text() && b.integer(whole_b)) {
    std::string made;
    for (std::int64_t i = 0; i < whole_b; ++i) {
      work.spend(a.text()->size() + 1);
      made += *a.text();
    }
    return made;
  }
  if (operation != "/" && a.integer(whole_a) && b.integer(whole_b)) {
    if (operation == "//" || operation == "%") return divided(operation == "%", whole_a, whole_b);
    if (overflows(operation, whole_a, whole_b, whole)) refuse("makes a number beyond 64 bits");
    return whole;
  }
  double real_a = 0, real_b = 0;
  if (!a.real(real_a) || !b.real(real_b))
    refuse("computes ", printable(operation), " of ", a.kind(), " and ", b.kind());
  const double made = of_reals(operation, real_a, real_b);
  if (!std::isfinite(made)) refuse("makes a number that is not finite");
  return made;
}

std::int64_t integer_of(const std::optional<Value>& given, std::int64_t fallback) {
  std::int64_t number = fallback;
  if (given && !given->integer(number)) refuse("gives ", given->kind(), " where an integer is expected");
  return number;
}

std::string text_of_argument(const std::optional<Value>& given, std::string_view fallback) {
  if (!given) return std::string(fallback);
  if (given->text() == nullptr) refuse("gives ", given->kind(), " where a text is expected");
  return *given->text();
}

}  // namespace heed::detail::chat
