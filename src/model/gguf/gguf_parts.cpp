// Files that llama.cpp splits: NAME-00001-of-00003.gguf has the metadata, and all have tensors.
#include <cstdio>
#include <string>

#include "io/fault.hpp"
#include "model/gguf/gguf_model.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::GgufFile;

constexpr std::int64_t kMaxParts = 9999;

// "-00002-of-00003.gguf".
std::string ending_of(std::int64_t number, std::int64_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05lld-of-%05lld.gguf", static_cast<long long>(number),
                static_cast<long long>(count));
  return text;
}

}  // namespace

std::vector<GgufFile> open_gguf(const std::string& path) {
  std::vector<GgufFile> parts;
  parts.emplace_back(path);
  const std::int64_t count = parts[0].integer_or("split.count", 1),
                     number = parts[0].integer_or("split.no", 0);
  if (count <= 1) return parts;
  const std::string first = ending_of(1, count);
  if (count > kMaxParts) fail(parts[0].subject(), "has split.count ", count, "; at most 9999 is expected");
  if (number != 0)
    fail(parts[0].subject(), "is part ", number + 1, " of ", count, "; the first part, whose name ends in ",
         first, ", is expected");
  if (!path.ends_with(first))
    fail(parts[0].subject(), "is the first of ", count, " parts; a name that ends in ", first,
         " is expected, since it gives the names of the others");
  for (std::int64_t n = 1; n < count; ++n) {
    parts.emplace_back(path.substr(0, path.size() - first.size()) + ending_of(n + 1, count));
    if (parts.back().integer_or("split.no", -1) != n || parts.back().integer_or("split.count", -1) != count)
      fail(parts.back().subject(), "is not part ", n + 1, " of ", count);
  }
  return parts;
}

}  // namespace heed::detail
