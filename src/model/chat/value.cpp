#include "model/chat/value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/message.hpp"

namespace heed::detail::chat {
namespace {

constexpr int kDeepestValue = 64;

int checked_depth(int depth) {
  if (depth > kDeepestValue) refuse("nests values more than ", kDeepestValue, " deep");
  return depth;
}

// A namespace that contained itself would never be freed.
int depth_inside(const Value& value) {
  if (value.is<Namespace>() || value.is<Callable>() || value.is<Generator>())
    refuse("puts ", value.kind(), " into a list or a dict");
  if (const ListValue* list = value.list()) return list->depth;
  if (const DictValue* dict = value.dict()) return dict->depth;
  return 0;
}

// Python's repr(): the fewest digits that read back as the same number.
std::string digits_of(double value) {
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string text(digits, end);
  return plain && text.find('.') == text.npos ? text + ".0" : text;
}

class JsonWriter {
 public:
  JsonWriter(std::int64_t indent, Work& work) : indent_(indent), work_(work) {}

  void write(const Value& value) {
    work_.spend(sizeof(Value));
    if (const std::string* text = value.text()) return write_text(*text);
    if (const ListValue* list = value.list(); list && list->kind <= ListKind::tuple) return write_list(*list);
    if (const DictValue* dict = value.dict()) return write_dict(*dict);
    if (value.is<None>()) return add("null");
    if (const bool* flag = value.get<bool>()) return add(*flag ? "true" : "false");
    if (!value.is<std::int64_t>() && !value.is<double>()) refuse("writes ", value.kind(), " as JSON");
    add(printed(value));
  }

  [[nodiscard]] std::string take() { return std::move(json_); }

 private:
  void add(std::string_view text) {
    work_.spend(text.size());
    json_ += text;
  }
  void begin_line() {
    if (indent_ < 0) return;
    add("\n");
    add(std::string(static_cast<std::size_t>(indent_ * level_), ' '));
  }
  // The mark before item i.
  void separate(std::size_t i) {
    if (i > 0) add(indent_ < 0 ? ", " : ",");
    begin_line();
  }
  void end(bool empty, std::string_view mark) {
    --level_;
    if (!empty) begin_line();
    add(mark);
  }

  void write_text(const std::string& text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string made = "\"";
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
      if (const std::size_t at = kEscaped.find(c); at != kEscaped.npos)
        made += {'\\', kLetters[at]};
      else if (byte < 0x20)
        made += {'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 15]};
      else
        made += c;
    }
    add(made + "\"");
  }
  void write_list(const ListValue& list) {
    add("[");
    ++level_;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      separate(i);
      write(list.items[i]);
    }
    end(list.items.empty(), "]");
  }
  void write_dict(const DictValue& dict) {
    add("{");
    ++level_;
    for (std::size_t i = 0; i < dict.members.size(); ++i) {
      separate(i);
      write_text(dict.members[i].first);
      add(": ");
      write(dict.members[i].second);
    }
    end(dict.members.empty(), "}");
  }

  std::int64_t indent_, level_ = 0;
  Work& work_;
  std::string json_;
};

bool equal_lists(const ListValue& a, const ListValue& b, Work& work) {
  if (a.kind == ListKind::view && b.kind == a.kind)
    refuse("compares two views of dicts, which heed does not know");
  return a.kind == b.kind && a.items.size() == b.items.size() &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                    [&](const Value& x, const Value& y) { return equal(x, y, work); });
}

bool equal_dicts(const DictValue& a, const DictValue& b, Work& work) {
  if (a.members.size() != b.members.size()) return false;
  return std::ranges::all_of(a.members, [&](const auto& member) {
    work.spend(b.members.size());
    const Value* other = b.find(member.first);
    return other != nullptr && equal(member.second, *other, work);
  });
}

}  // namespace

void Work::spend(std::size_t amount) {
  if (amount > left_) refuse("takes more than ", kMaxWork, " steps and bytes");
  left_ -= amount;
}

const std::string* Value::text() const {
  const Text* text = get<Text>();
  return text == nullptr ? nullptr : text->get();
}

const ListValue* Value::list() const {
  const List* list = get<List>();
  return list == nullptr ? nullptr : list->get();
}

const DictValue* Value::dict() const {
  const Dict* dict = get<Dict>();
  return dict == nullptr ? nullptr : dict->get();
}

bool Value::integer(std::int64_t& number) const {
  if (const bool* flag = get<bool>()) number = *flag ? 1 : 0;
  if (const std::int64_t* own = get<std::int64_t>()) number = *own;
  return is<bool>() || is<std::int64_t>();
}

bool Value::real(double& number) const {
  if (const double* own = get<double>()) {
    number = *own;
    return true;
  }
  std::int64_t whole = 0;
  if (!integer(whole)) return false;
  number = static_cast<double>(whole);
  return true;
}

bool Value::truth() const {
  if (const std::string* own = text()) return !own->empty();
  if (const ListValue* own = list()) return !own->items.empty();
  if (const DictValue* own = dict()) return !own->members.empty();
  if (double number = 0; real(number)) return number != 0;
  return is<Namespace>() || is<Callable>() || is<Generator>();
}

std::string_view Value::kind() const {
  constexpr std::string_view kKinds[] = {
      "an undefined value", "none",       "a bool",     "an integer", "a float", "a text", "a list", "a dict",
      "a namespace",        "a function", "a generator"};
  constexpr std::string_view kLists[] = {"a list", "a tuple", "a range", "a view of a dict"};
  if (const ListValue* own = list()) return kLists[static_cast<std::size_t>(own->kind)];
  return kKinds[held_.index()];
}

const Value* DictValue::find(std::string_view name) const {
  const auto found = std::ranges::find_if(members, [&](const auto& one) { return one.first == name; });
  return found == members.end() ? nullptr : &found->second;
}

Value list_of(std::vector<Value> items, ListKind kind) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_inside(item));
  return std::make_shared<const ListValue>(ListValue{std::move(items), checked_depth(depth + 1), kind});
}

Value dict_of(std::vector<std::pair<std::string, Value>> members) {
  int depth = 0;
  for (const auto& [name, value] : members) depth = std::max(depth, depth_inside(value));
  return std::make_shared<const DictValue>(DictValue{std::move(members), checked_depth(depth + 1)});
}

bool equal(const Value& a, const Value& b, Work& work) {
  work.spend(sizeof(Value));
  if (a.text() && b.text()) {
    work.spend(a.text()->size());
    return *a.text() == *b.text();
  }
  if (a.list() && b.list()) return equal_lists(*a.list(), *b.list(), work);
  if (a.dict() && b.dict()) return equal_dicts(*a.dict(), *b.dict(), work);
  std::int64_t whole_a = 0, whole_b = 0;
  if (a.integer(whole_a) && b.integer(whole_b)) return whole_a == whole_b;
  double real_a = 0, real_b = 0;
  if (a.real(real_a) && b.real(real_b)) return real_a == real_b;
  if (a.get<Namespace>() && b.get<Namespace>()) return *a.get<Namespace>() == *b.get<Namespace>();
  return (a.is<None>() && b.is<None>()) || (a.is<Undefined>() && b.is<Undefined>());
}

std::string printed(const Value& value) {
  if (const std::string* text = value.text()) return *text;
  if (value.is<Undefined>()) return "";
  if (value.is<None>()) return "None";
  if (const bool* flag = value.get<bool>()) return *flag ? "True" : "False";
  if (const std::int64_t* number = value.get<std::int64_t>()) return std::to_string(*number);
  if (const double* number = value.get<double>()) return digits_of(*number);
  refuse("writes ", value.kind(), " as Python does, which heed does not know");
}

std::string json_of(const Value& value, std::int64_t indent, Work& work) {
  JsonWriter writer(indent, work);
  writer.write(value);
  return writer.take();
}

}  // namespace heed::detail::chat
