// Text output of causal questions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "heed/model/cause.hpp"
#include "look/cause.hpp"
#include "terminal.hpp"

namespace heed::cli {

struct CauseText {
  const CauseQuestion& question;
  const ModelInfo& info;
  const std::vector<std::string>& tokens;             ///< of the text
  std::function<std::string(std::int64_t)> token_of;  ///< of a token id
  std::int64_t top_k = 5;
};

/// Rows, and the shares [rows, tokens] that they come from.
struct Rollout {
  std::vector<std::int64_t> rows;
  Tensor flow;
};

/// The heads' names, as "1.3, 1.4".
[[nodiscard]] std::string heads_text(const std::vector<ModelHead>& heads);

void print_effect(const TextOutput& output, const CauseText& text, const Effect& effect);
void print_attribution(const TextOutput& output, const CauseText& text, const Attribution& attribution);
void print_lens(const TextOutput& output, const CauseText& text, const Lens& lens);
void print_rollout(const TextOutput& output, const CauseText& text, const Rollout& rollout);

}  // namespace heed::cli
