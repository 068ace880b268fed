// Output of --check.
#pragma once

#include <string>

#include "heed/inspect/document.hpp"
#include "look/tables.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// Prints how much was compared, and the largest deviation of each property beside its bound.
void print_check(const TextOutput& output, const Document& document, const DocumentCheck& check);
[[nodiscard]] Json checks_json(const DocumentCheck& check);
/// How much was compared.
[[nodiscard]] Json checked_json(const DocumentCheck& check);

/// Throws Error (internal) for a mismatch, or if nothing could be compared.
void require_that_it_holds(const DocumentCheck& check, const std::string& option);

}  // namespace heed::cli
