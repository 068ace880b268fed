// The computation of a sentence's attention, step by step, in the order of the notebooks.
#pragma once

#include <string>
#include <vector>

#include "explain/model.hpp"
#include "heed/tensor.hpp"

namespace heed::cli {

struct Step {
  std::string name;     ///< of the tensor in files: "scores"
  std::string title;    ///< for people: "scores"
  std::string formula;  ///< "s_ij = q_i · k_j"
  std::string meaning;  ///< purpose of the step, one sentence
  /// One name per axis of the value: "H" (heads), "Lq" (query words), "Lk" (key words; for self-attention the
  /// same words), "D", "d_k", ….
  std::vector<std::string> axes;
  Tensor value;
};

/// The input of explain().
struct Question {
  std::vector<std::string> tokens;          ///< the Lq query words
  std::vector<std::string> context_tokens;  ///< the Lk words that they attend to; for self-attention the same
  bool cross = false;                       ///< context_tokens are another sentence
  bool causal = false;                      ///< no word attends to a later one
};

struct Explanation {
  Question question;
  /// In this order: ids, [context_ids,] embeddings, [context_embeddings,] query, key, value, scores, scaled,
  /// [masked,] weights, context, merged[, output].
  std::vector<Step> steps;
  Tensor top_index;   ///< [H, Lq, K], i64: the most attended words (see AttentionResult)
  Tensor top_weight;  ///< [H, Lq, K]
  Tensor entropy;     ///< [H, Lq], in nats

  [[nodiscard]] const Step* find(const std::string& name) const;
  /// The value of a step that must exist.
  [[nodiscard]] const Tensor& value(const std::string& name) const { return find(name)->value; }
};

[[nodiscard]] Explanation explain(const Model& model, const Question& question);

/// For each step with an axis Lq, only row `query_word`; the other steps unchanged.
[[nodiscard]] std::vector<Step> steps_of_word(const Explanation& explanation, std::int64_t query_word);

}  // namespace heed::cli
