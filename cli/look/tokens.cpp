#include "look/tokens.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "command.hpp"
#include "heed/error.hpp"
#include "text.hpp"

namespace heed::cli {

std::vector<std::string> read_tokens(const std::string& option, const std::string& path,
                                     std::int64_t expected, const char* of) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::io, path + " could not be opened: " + std::strerror(errno));
  std::vector<std::string> tokens;
  std::int64_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    if (lines >= expected) continue;  // counted for the message, but not stored
    if (line.ends_with('\r')) line.pop_back();
    if (!is_utf8(line))
      throw Error(ErrorCode::io, path + " is not UTF-8 text (line " + std::to_string(lines + 1) + ")");
    tokens.push_back(std::move(line));
  }
  if (file.bad() || !file.eof()) throw Error(ErrorCode::io, path + " could not be read");
  if (lines != expected)
    throw UsageError(option + " has " + std::to_string(lines) + (lines == 1 ? " line" : " lines") + "; " +
                     std::to_string(expected) + ", one for each of the " + of + ", is expected");
  return tokens;
}

}  // namespace heed::cli
