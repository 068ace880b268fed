// Machine-readable output of an explanation: JSON and safetensors.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "explain/steps.hpp"

namespace heed::cli {

/// Prints one JSON object on one line. With a query word, steps with one row per query word keep only its
/// row. JSON has no infinity, so masked scores (-inf) are null.
void print_json(std::ostream& out, const Model& model, const Explanation& explanation,
                std::optional<std::int64_t> query_word);

/// Saves every step under its name and the parameters under the names of the model's layout. read_model()
/// accepts the file. Its metadata are text: tokens, context_tokens and vocabulary as JSON lists, causal
/// ("true" or "false"), scale, heads, layout, and format ("heed explain 1").
void save_explanation(const std::string& path, const Model& model, const Explanation& explanation);

}  // namespace heed::cli
