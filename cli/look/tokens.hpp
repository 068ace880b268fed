// Files with one token per line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heed::cli {

/// Reads the tokens. Lines end in \n or \r\n; the last line end may be missing. Throws Error (io) for a file
/// that is unreadable or not UTF-8, UsageError unless it has `expected` lines. For the message, `option` is
/// the option that named the file, and `of` is the thing that each line names.
[[nodiscard]] std::vector<std::string> read_tokens(const std::string& option, const std::string& path,
                                                   std::int64_t expected, const char* of);

}  // namespace heed::cli
