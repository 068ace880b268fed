// Text output of an explanation.
#pragma once

#include "explain/steps.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// Prints all steps in order, and a heat map of each head's weights.
void print_walk(const TextOutput& output, const Model& model, const Explanation& explanation);

/// Follows one query word through every step, down to single products.
void print_word(const TextOutput& output, const Model& model, const Explanation& explanation,
                std::int64_t query_word);

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
