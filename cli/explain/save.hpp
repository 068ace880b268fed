// An explanation for machines: as JSON, and as a safetensors file.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "explain/steps.hpp"

namespace heed::cli {

/// One JSON object on one line. With a query word, only its row of every step that has one for each. JSON has
/// no infinity: what is masked (-inf) is null.
void print_json(std::ostream& out, const Model& model, const Explanation& explanation,
                std::optional<std::int64_t> query_word);

/// Every step under its name, and the parameters under those of the model's layout, so that read_model()
/// takes the file. The metadata are text: tokens, context_tokens and vocabulary as JSON lists, causal ("true"
/// or "false"), scale, heads, layout, and format ("heed explain 1").
void save_explanation(const std::string& path, const Model& model, const Explanation& explanation);

}  // namespace heed::cli
