#include "io/npy_header.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/message.hpp"
#include "io/fault.hpp"

namespace heed::io::detail {
namespace {

struct Name {
  DType dtype;
  std::string_view text;
};
constexpr Name kNames[] = {{DType::f64, "f8"}, {DType::f32, "f4"}, {DType::f16, "f2"},    {DType::i64, "i8"},
                           {DType::i32, "i4"}, {DType::u8, "u1"},  {DType::boolean, "b1"}};
constexpr std::string_view kExpectedNames = "f8, f4, f2, i8, i4, u1 or b1 is expected";

constexpr bool kLittleEndian = std::endian::native == std::endian::little;

// The meaning of NumPy's letter for an element kind, for the message that refuses it.
std::string_view meaning_of(char kind) {
  switch (kind) {
    case 'O':
      return " (Python objects)";
    case 'S':
    case 'a':
    case 'U':
      return " (text)";
    case 'V':
      return " (raw bytes)";
    case 'c':
      return " (complex numbers)";
    case 'm':
    case 'M':
      return " (times)";
    default:
      return "";
  }
}

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& subject) : text_(text), subject_(subject) {}

  NpyHeader parse() {
    expect('{', "'{'");
    bool first = true;
    for (skip_space(); !take('}'); skip_space()) {
      if (!first) {
        expect(',', "',' or '}'");
        skip_space();
        if (take('}')) break;
      }
      first = false;
      parse_entry();
    }
    skip_space();
    if (at_ != text_.size()) broken("nothing more");
    if (!seen_descr_) missing("descr");
    if (!seen_order_) missing("fortran_order");
    if (!seen_shape_) missing("shape");
    return header_;
  }

 private:
  [[noreturn]] void broken(std::string_view expected) const {
    fail(subject_, "has a broken header: ", expected, " is expected at its byte ", at_);
  }
  [[noreturn]] void missing(std::string_view key) const {
    fail(subject_, "has a header without '", key, "'");
  }

  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char wanted) {
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted, std::string_view what) {
    if (!take(wanted)) broken(what);
  }
  bool take_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void skip_space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n') ++at_;
  }

  void parse_entry() {
    const std::string_view key = parse_string("a key");
    skip_space();
    expect(':', "':'");
    skip_space();
    if (key == "descr") {
      once(seen_descr_, key);
      parse_dtype();
    } else if (key == "fortran_order") {
      once(seen_order_, key);
      header_.fortran_order = parse_bool();
    } else if (key == "shape") {
      once(seen_shape_, key);
      header_.shape = parse_shape();
    } else {
      fail(subject_, "has the key ", printable(key),
           " in its header; descr, fortran_order and shape are expected");
    }
  }

  void once(bool& seen, std::string_view key) const {
    if (seen) fail(subject_, "has the key '", key, "' twice in its header");
    seen = true;
  }

  // Escapes are refused, because no known name needs one.
  std::string_view parse_string(std::string_view what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') broken(what);
    const std::size_t begin = ++at_;
    for (; peek() != quote; ++at_)
      if (peek() < ' ' || peek() > '~' || peek() == '\\') broken("a printable character");
    return text_.substr(begin, at_++ - begin);
  }

  bool parse_bool() {
    if (take_word("True")) return true;
    if (take_word("False")) return false;
    broken("True or False");
  }

  void parse_dtype() {
    if (peek() == '[' || peek() == '(' || peek() == '{')
      fail(subject_, "has a structured dtype; ", kExpectedNames);
    const std::string_view text = parse_string("the name of a dtype");
    std::string_view name = text;
    char order = '=';
    if (!name.empty() && std::string_view("<>=|").find(name[0]) != std::string_view::npos) {
      order = name[0];
      name.remove_prefix(1);
    }
    const auto* found = std::ranges::find(kNames, name, &Name::text);
    // '|' means no byte order, but elements of several bytes need one.
    if (found == std::end(kNames) || (order == '|' && size_of(found->dtype) > 1))
      fail(subject_, "has the dtype ", printable(text), meaning_of(name.empty() ? ' ' : name[0]), "; ",
           kExpectedNames);
    header_.dtype = found->dtype;
    header_.swapped = size_of(found->dtype) > 1 && order == (kLittleEndian ? '>' : '<');
  }

  // (), (3,), (2, 3), (2, 3,); never (3), which is a number in parentheses.
  Dims parse_shape() {
    Dims shape;
    expect('(', "'('");
    bool comma = true;
    for (skip_space(); !take(')'); skip_space()) {
      if (!comma) broken("',' or ')'");
      const std::int64_t size = parse_size();
      if (shape.size() == kMaxRank)
        fail(subject_, "has an array of more than the ", kMaxRank, " axes that are supported");
      shape.push_back(size);
      skip_space();
      comma = take(',');
    }
    if (shape.size() == 1 && !comma) {
      --at_;
      broken("','");
    }
    return shape;
  }

  std::int64_t parse_size() {
    const auto digit = [this] { return peek() >= '0' && peek() <= '9'; };
    if (peek() == '-') fail(subject_, "has a negative size in its shape");
    const std::size_t begin = at_;
    std::int64_t value = 0;
    bool overflow = false;
    for (; digit(); ++at_)
      overflow |=
          __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, peek() - '0', &value);
    // Python has no numbers with a leading 0, except 0 itself.
    if (at_ == begin || (text_[begin] == '0' && at_ != begin + 1)) {
      at_ = begin;
      broken("a whole number");
    }
    if (overflow)
      fail(subject_, "has the size ", printable(text_.substr(begin, at_ - begin)),
           " in its shape, which 64 bits cannot hold");
    return value;
  }

  std::string_view text_;
  const std::string& subject_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool seen_descr_ = false;
  bool seen_order_ = false;
  bool seen_shape_ = false;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& subject) {
  return HeaderParser(text, subject).parse();
}

std::string npy_header_text(DType dtype, const Dims& shape) {
  const auto* found = std::ranges::find(kNames, dtype, &Name::dtype);
  if (found == std::end(kNames)) heed::detail::refuse("the .npy format has no name for the dtype ", dtype);
  const char order = size_of(dtype) == 1 ? '|' : kLittleEndian ? '<' : '>';
  std::string text = "{'descr': '";
  text += order;
  text += found->text;
  text += "', 'fortran_order': False, 'shape': (";
  for (int axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) text += " ";
    text += std::to_string(shape[axis]);
    if (axis + 1 < shape.size() || axis == 0) text += ",";
  }
  return text + "), }";
}

}  // namespace heed::io::detail
