// Error messages about files: names of files, and printable excerpts of their content.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

#include "core/message.hpp"

namespace heed::io::detail {

/// The name of a file in messages: "'q.npy'", or "standard input" for "-".
inline std::string subject_of(const std::string& path) {
  return path == "-" ? "standard input" : "'" + path + "'";
}

/// The path for a system call, which would take it to end at a NUL byte. Throws Error (io) if it has one.
inline const char* system_path(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    heed::detail::refuse(ErrorCode::io, "the path '", path.c_str(),
                         "' goes on after a NUL byte, which no file's name has");
  return path.c_str();
}

/// Text from a file, made safe for a message: at most 64 bytes, without terminal control characters.
inline std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  std::string result = "'";
  for (const char c : text.substr(0, kLongest)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > kLongest ? "…'" : "'");
}

/// Throws Error (io): "'q.npy' has …".
template <class... Parts>
[[noreturn]] void fail(const std::string& subject, const Parts&... what) {
  heed::detail::refuse(ErrorCode::io, subject, " ", what...);
}

/// Throws Error (io): "cannot open 'q.npy': No such file or directory".
[[noreturn]] inline void fail_system(const std::string& action, const std::string& subject,
                                     int error_number) {
  heed::detail::refuse(ErrorCode::io, "cannot ", action, " ", subject, ": ",
                       std::generic_category().message(error_number));
}

}  // namespace heed::io::detail
