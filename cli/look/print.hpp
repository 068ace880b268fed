// Text output that several questions share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// About four significant digits.
[[nodiscard]] std::string four_digits(double value);
/// "the (17)", or "17" if no tokens are known.
[[nodiscard]] std::string key_text(const std::vector<std::string>& tokens, std::int64_t index);
/// "head 3", or "batch 1, head 3" for several batch entries.
[[nodiscard]] std::string plane_text(const Document& document, std::int64_t batch, std::int64_t head);
/// "4 heads, 9 queries, 9 keys, D 24, f32, fused (avx512), causal".
[[nodiscard]] std::string call_line(const Document& document);

/// Prints a line, wrapped with an indent of 4.
void print_line(const TextOutput& output, const std::string& line);
/// Prints a bold line below an empty one.
void print_heading(const TextOutput& output, const std::string& line);
/// Prints items separated by dots without breaking any. Lines are indented by `indent` spaces.
void print_items(const TextOutput& output, const std::vector<std::string>& items, int indent);
void print_call(const TextOutput& output, const Document& document);

}  // namespace heed::cli
