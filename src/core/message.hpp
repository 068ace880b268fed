// Error messages of the checks: one sentence, joined from its parts.
#pragma once

#include <charconv>
#include <concepts>
#include <initializer_list>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "heed/error.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

inline std::string text_of(std::string_view text) { return std::string(text); }
inline std::string text_of(std::integral auto value) { return std::to_string(value); }
inline std::string text_of(const Dims& dims) { return to_string(dims); }
inline std::string text_of(DType dtype) {
  const std::string_view name = name_of(dtype);
  return name.empty() ? std::to_string(static_cast<int>(dtype)) : std::string(name);
}
/// Returns the shortest digits that read back as the same number, or "nan", "inf".
inline std::string text_of(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

/// A part of a message: an object, and the function that adds its text. heed has many messages, most of which
/// are never made. One function joins them all, so that a call of it compiles to a few stores.
struct MessagePart {
  const void* object;
  void (*append)(std::string& text, const void* object);
};
template <class T>
void append_text(std::string& text, const void* object) {
  text += text_of(*static_cast<const T*>(object));
}
inline void append_characters(std::string& text, const void* object) {
  text += static_cast<const char*>(object);
}
template <class T>
MessagePart message_part(const T& object) {
  return {&object, append_text<T>};
}
inline MessagePart message_part(const char* text) { return {text, append_characters}; }

[[gnu::noinline]] inline std::string joined_parts(std::initializer_list<MessagePart> parts) {
  std::string text;
  for (const MessagePart& part : parts) part.append(text, part.object);
  return text;
}
[[noreturn, gnu::noinline]] inline void throw_error(ErrorCode code,
                                                    std::initializer_list<MessagePart> parts) {
  throw Error(code, joined_parts(parts));
}

/// The parts joined in order.
template <class... Parts>
std::string said(const Parts&... parts) {
  return joined_parts({message_part(parts)...});
}

/// The texts with `between` between them.
inline std::string joined_texts(std::span<const std::string> texts, std::string_view between) {
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) all.append(i > 0 ? between : "").append(texts[i]);
  return all;
}

/// "1 head", "2 heads"; `many` is the plural of a noun that takes no s.
std::string counted(std::integral auto count, std::string_view one, std::string_view many = {}) {
  if (count == 1) return said(count, " ", one);
  return many.empty() ? said(count, " ", one, "s") : said(count, " ", many);
}

/// "there is 1 key", "there are 2 keys".
std::string there_are(std::integral auto count, std::string_view one, std::string_view many = {}) {
  return said(count == 1 ? "there is " : "there are ", counted(count, one, many));
}

/// " is expected" of one thing, " are expected" of others.
const char* expected(std::integral auto count) { return count == 1 ? " is expected" : " are expected"; }

template <class... Parts>
[[noreturn]] void refuse(ErrorCode code, const Parts&... parts) {
  throw_error(code, {message_part(parts)...});
}
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw_error(ErrorCode::invalid_argument, {message_part(parts)...});
}

/// Refuses a number out of its range.
inline void check_range(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) refuse(name, " is ", value, "; ", least, " to ", most, " is expected");
}
/// Refuses a value that lies beyond the `last` of its enumeration, where only a cast can bring it.
template <class Enum>
requires std::is_enum_v<Enum>
void check_listed(std::string_view name, Enum value, Enum last) {
  check_range(name, static_cast<std::int64_t>(value), 0, static_cast<std::int64_t>(last));
}

/// Converts std::bad_alloc to heed's Error. Checks and kernels need little memory beside the results, but
/// even that allocation can fail.
template <class Work>
auto with_memory_errors(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "not enough memory for the workspace of attention");
  }
}

}  // namespace heed::detail
