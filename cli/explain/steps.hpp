// The computation of a sentence's attention, step by step, as the notebooks go through it.
#pragma once

#include <string>
#include <vector>

#include "explain/model.hpp"
#include "heed/attention.hpp"
#include "heed/tensor.hpp"

namespace heed::cli {

struct Step {
  std::string name;     ///< of the tensor in files: "scores"
  std::string title;    ///< for people: "scores"
  std::string formula;  ///< "s_ij = q_i · k_j"
  std::string meaning;  ///< one sentence on what it is for
  /// One an axis of the value: "H" (heads), "Lq" (words that ask), "Lk" (words attended to, for
  /// self-attention the same words), "D", "d_k", …
  std::vector<std::string> axes;
  Tensor value;
};

/// What is to be explained.
struct Question {
  std::vector<std::string> tokens;          ///< the words that ask, Lq of them
  std::vector<std::string> context_tokens;  ///< the words they attend to, Lk; for self-attention the same
  bool cross = false;                       ///< context_tokens are another sentence's
  bool causal = false;                      ///< no word attends to a later one
};

struct Explanation {
  Question question;
  /// In this order: ids, [context_ids,] embeddings, [context_embeddings,] query, key, value, scores, scaled,
  /// [masked,] weights, context, merged[, output].
  std::vector<Step> steps;
  Tensor top_index;   ///< [H, Lq, K], i64: the words attended to most (see AttentionResult)
  Tensor top_weight;  ///< [H, Lq, K]
  Tensor entropy;     ///< [H, Lq], in nats

  /// The step of that name, or none.
  [[nodiscard]] const Step* find(const std::string& name) const;
  /// The same where it must be there.
  [[nodiscard]] const Tensor& value(const std::string& name) const { return find(name)->value; }
};

[[nodiscard]] Explanation explain(const Model& model, const Question& question);

/// Row `query_word` of every step that has one for each query word (axis Lq); the other steps as they are.
[[nodiscard]] std::vector<Step> steps_of_word(const Explanation& explanation, std::int64_t query_word);

}  // namespace heed::cli
