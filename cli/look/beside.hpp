// Puts the heads of a second document on a page, which subtracts them from those of the first.
#pragma once

#include <string>

#include "look/page.hpp"

namespace heed::cli {

/// The report of both: first the heads of `own`, then as many of the saved document at `path`. Throws
/// UsageError if that document has another number of rows, keys, heads or batch entries. Its words are left
/// out.
[[nodiscard]] AttentionReport with_beside(const AttentionReport& own, const std::string& name,
                                          const std::string& path, const PageOptions& options);

}  // namespace heed::cli
