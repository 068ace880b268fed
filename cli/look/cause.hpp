// Causal questions about a model's heads, as in `heed look --model`: --ablate, --patch, --attribute, --lens,
// --rollout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heed/model/cause.hpp"
#include "look/subject.hpp"

namespace heed::cli {

enum class CauseKind { ablate, patch, attribute, lens, rollout };

struct CauseQuestion {
  CauseKind kind = CauseKind::lens;
  std::vector<ModelHead> heads{};  ///< for ablate and patch
  Ablation to = Ablation::zero;
  std::string text{};  ///< patch: the other text; attribute: the token, empty for the likeliest
};

void add_cause_options(CLI::App& app, CauseQuestion& question);

/// Reads the model and the text, and prints the answer. `row` is --row; none: the last token.
void answer_cause(const LookSource& source, const SharedOptions& shared, const CauseQuestion& question,
                  const std::optional<std::string>& row);

}  // namespace heed::cli
