// Output of an explanation: text, JSON and safetensors.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "explain/steps.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// Prints all steps in order, and a heat map of each head's weights.
void print_walk(const TextOutput& output, const Model& model, const Explanation& explanation);

/// Follows one query word through every step, down to single products.
void print_word(const TextOutput& output, const Model& model, const Explanation& explanation,
                std::int64_t query_word);

/// Prints one JSON object on one line. With a query word, steps with one row per query word keep only its
/// row. JSON has no infinity, so masked scores (-inf) are null.
void print_json(std::ostream& out, const Model& model, const Explanation& explanation,
                std::optional<std::int64_t> query_word);

/// Saves every step under its name and the parameters under the names of the model's layout. read_model()
/// accepts the file. Its metadata are text: tokens, context_tokens and vocabulary as JSON lists, causal
/// ("true" or "false"), scale, heads, layout, and format ("heed explain 1").
void save_explanation(const std::string& path, const Model& model, const Explanation& explanation);

/// "Self-attention, causal: 6 words, 1 head, D 16, d_k 24, d_v 28".
[[nodiscard]] std::string subject_of(const Model& model, const Explanation& explanation);
/// The heading of both outputs: the subject, its sizes and the origin of the weights.
void print_head(const TextOutput& output, const Model& model, const Explanation& explanation);

struct Heading {
  std::string title;    ///< "scores"
  std::string formula;  ///< "s_ij = q_i · k_j"
  std::string shape;    ///< "[1, 6, 6]"
  std::string meaning;  ///< a sentence
};
[[nodiscard]] Heading heading_of(const Step& step);
/// Prints " 7 scores   s_ij = q_i · k_j      [1, 6, 6]" and the meaning of the step below it.
void print_heading(const TextOutput& output, int number, const Heading& heading);
constexpr int kIndent = 4;  // of the text under a heading
void print_lines(const TextOutput& output, const std::vector<std::string>& lines);

}  // namespace heed::cli
