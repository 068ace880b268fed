// Files with a line a token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heed::cli {

/// Lines end in \n or \r\n; the last may lack its end. Throws Error (io) where the file cannot be read or is
/// not UTF-8, UsageError where it has not `expected` lines. `option` named the file, `of` says one for each
/// of what.
[[nodiscard]] std::vector<std::string> read_tokens(const std::string& option, const std::string& path,
                                                   std::int64_t expected, const char* of);

}  // namespace heed::cli
