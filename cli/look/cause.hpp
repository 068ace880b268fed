// Causal questions about a model's heads, as in `heed look --model`: --ablate, --patch, --attribute, --lens,
// --rollout.
#pragma once

#include <string>
#include <vector>

#include "heed/model/cause.hpp"

namespace CLI {
class App;
}

namespace heed::cli {

struct LookArguments;

enum class CauseKind { ablate, patch, attribute, lens, rollout };

struct CauseQuestion {
  CauseKind kind = CauseKind::lens;
  std::vector<ModelHead> heads{};  ///< for ablate and patch
  Ablation to = Ablation::zero;
  std::string text{};  ///< patch: the other text; attribute: the token, empty for the likeliest
};

void add_cause_options(CLI::App& app, LookArguments& arguments);
/// Checks that need several options, if arguments.cause is set. `document` and `words` become `text`. Throws
/// UsageError.
void complete_cause_arguments(const CLI::App& app, LookArguments& arguments);
/// Reads the model and the text, and prints the answer to arguments.cause.
void answer_cause(const LookArguments& arguments);

}  // namespace heed::cli
