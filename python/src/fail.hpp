// How the extension refuses: one sentence put together from its parts.
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

/// ValueError, by way of heed::Error.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(ErrorCode::invalid_argument, sentence(parts...));
}

template <class... Parts>
[[noreturn]] void fail_type(const Parts&... parts) {
  throw nanobind::type_error(sentence(parts...).c_str());
}

}  // namespace heed::python
