// Error messages of the checks: one sentence, joined from its parts.
#pragma once

#include <charconv>
#include <concepts>
#include <new>
#include <string>
#include <string_view>

#include "heed/error.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

inline std::string text_of(std::string_view text) { return std::string(text); }
inline std::string text_of(std::integral auto value) { return std::to_string(value); }
inline std::string text_of(const Dims& dims) { return to_string(dims); }
inline std::string text_of(DType dtype) { return std::string(name_of(dtype)); }
/// Returns the shortest digits that read back as the same number, or "nan", "inf".
inline std::string text_of(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

/// The parts joined in order.
template <class... Parts>
std::string said(const Parts&... parts) {
  return (text_of(parts) + ...);
}

/// "1 head", "2 heads"; `many` is the plural of a noun that takes no s.
std::string counted(std::integral auto count, std::string_view one, std::string_view many = {}) {
  if (count == 1) return said(count, " ", one);
  return many.empty() ? said(count, " ", one, "s") : said(count, " ", many);
}

template <class... Parts>
[[noreturn]] void refuse(ErrorCode code, const Parts&... parts) {
  throw Error(code, said(parts...));
}
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  refuse(ErrorCode::invalid_argument, parts...);
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
