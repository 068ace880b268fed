// Machine-readable output that several questions share: JSON, and CSV (RFC 4180).
#pragma once

#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "json.hpp"

namespace heed::cli {

/// Prints the call (sizes, dtype, kernel and options) and the members of an answer as one object.
void print_json(const Document& document, const Json& members);
/// Adds the head's name, the runner-up, and all scores with their numbers of rows.
void add_names(const HeadSummary& head, Json& json);
[[nodiscard]] Json key_json(const Document& document, std::int64_t key, double weight);
/// A tensor as nested lists; NaN is null.
[[nodiscard]] Json values_json(const Tensor& tensor);

/// The token, or nothing if no tokens are known.
[[nodiscard]] std::string token_at(const std::vector<std::string>& tokens, std::int64_t index);
/// Quotes a field if needed. Spreadsheets run text that begins with =, +, - or @ as a formula, so such text
/// gets a leading '.
[[nodiscard]] std::string csv_field(const std::string& text);
/// Enough digits to recover the same f32.
[[nodiscard]] std::string csv_number(double value);
/// Texts are written as they are.
[[nodiscard]] std::string csv_line(const std::vector<std::string>& fields);

}  // namespace heed::cli
