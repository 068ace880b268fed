// Errors of the extension: one sentence composed of its parts.
#pragma once

#include <nanobind/nanobind.h>

#include <sstream>

#include "heed/error.hpp"

namespace heed::python {

template <class... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws heed::Error, which becomes ValueError.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(ErrorCode::invalid_argument, sentence(parts...));
}

template <class... Parts>
[[noreturn]] void fail_type(const Parts&... parts) {
  throw nanobind::type_error(sentence(parts...).c_str());
}

}  // namespace heed::python
