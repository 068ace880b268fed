#include "io/json_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/message.hpp"
#include "heed/error.hpp"

namespace heed::io::detail {

namespace fs = std::filesystem;
using heed::detail::fault_in_json;
using heed::detail::JsonFault;
using heed::detail::JsonLimits;
using heed::detail::kLongestJsonWord;

std::string bytes_in(const std::string& path, std::uintmax_t most) {
  std::error_code error;
  if (fs::is_directory(path, error))
    heed::detail::refuse(ErrorCode::io, path, " is a folder; a file is expected");
  // Reading a pipe may block forever, and a device may have no end.
  if (fs::exists(path, error) && !fs::is_regular_file(path, error))
    heed::detail::refuse(ErrorCode::io, path, " is not a regular file");
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) heed::detail::refuse(ErrorCode::io, path, " could not be opened: ", std::strerror(errno));
  const auto size = static_cast<std::uintmax_t>(file.tellg());
  if (size > most << 20) heed::detail::refuse(ErrorCode::io, path, " is larger than ", most, " MiB");
  std::string bytes(size, '\0');
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  if (file.gcount() != static_cast<std::streamsize>(size))
    heed::detail::refuse(ErrorCode::io, path, " could not be read");
  return bytes;
}

void check_json(std::string_view text, const std::string& subject, const JsonLimits& limits) {
  const auto fail = [&](const auto&... what) { heed::detail::refuse(ErrorCode::io, subject, " ", what...); };
  const JsonFault fault = fault_in_json(text, limits);
  if (fault == JsonFault::malformed) fail("is not JSON");
  if (fault == JsonFault::deep) fail("nests values more than ", limits.depth, " deep, the limit");
  if (fault == JsonFault::wide) fail("has an object of more than ", limits.members, " members, the limit");
  if (fault == JsonFault::many) fail("has more than ", limits.values, " values, the limit");
  if (fault == JsonFault::long_word)
    fail("has a string, a number or a gap of more than ", kLongestJsonWord, " bytes, the limit");
}

std::string json_in(const std::string& path, std::uintmax_t most, const JsonLimits& limits) {
  std::string text = bytes_in(path, most);
  check_json(text, path, limits);
  return text;
}

}  // namespace heed::io::detail
