// What heads of a model cause, as `heed look --model` is asked: --ablate, --patch, --attribute, --lens,
// --rollout.
#pragma once

#include <string>
#include <vector>

#include "heed/model_cause.hpp"

namespace CLI {
class App;
}

namespace heed::cli {

struct LookArguments;

enum class CauseKind { ablate, patch, attribute, lens, rollout };

struct CauseQuestion {
  CauseKind kind = CauseKind::lens;
  std::vector<ModelHead> heads{};  ///< of ablate and patch
  Ablation to = Ablation::zero;
  std::string text{};  ///< the other one of patch; the token of attribute, empty for the likeliest
};

void add_cause_options(CLI::App& app, LookArguments& arguments);
/// What no single option can check, where arguments.cause is there: `document` and `words` become `text`.
/// Throws UsageError.
void complete_cause_arguments(const CLI::App& app, LookArguments& arguments);
/// Reads the model and the text, and prints the answer to arguments.cause.
void answer_cause(const LookArguments& arguments);

}  // namespace heed::cli
