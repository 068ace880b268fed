// The options of causal questions.
#include "command.hpp"
#include "look/cause.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

// "5.1,6.9".
std::vector<ModelHead> model_heads_in(const std::string& heads, const std::string& refusal) {
  std::vector<ModelHead> all;
  for (const std::string& name : split(heads, ',')) {
    const std::vector<std::string> parts = split(name, '.');
    const std::int64_t layer = whole_number(parts[0]).value_or(-1);
    const std::int64_t head = whole_number(parts.back()).value_or(-1);
    if (parts.size() != 2 || layer < 0 || head < 0) throw UsageError(refusal);
    all.push_back({layer, head});
  }
  return all;
}

// "5.1,6.9=mean".
CauseQuestion ablation_in(const std::string& text) {
  const std::string refusal = "--ablate is '" + text +
                              "'; heads such as 5.1,6.9 (layer 5, head 1 and layer 6, head 9), with =mean "
                              "behind them for their mean, are expected";
  CauseQuestion question{CauseKind::ablate};
  const std::size_t sign = text.find('=');
  const std::string to = sign == std::string::npos ? "zero" : text.substr(sign + 1);
  if (to != "zero" && to != "mean") throw UsageError(refusal);
  question.to = to == "mean" ? Ablation::mean : Ablation::zero;
  question.heads = model_heads_in(text.substr(0, sign), refusal);
  return question;
}

// "another text:5.1,6.9".
CauseQuestion patch_in(const std::string& text) {
  const std::string refusal =
      "--patch is '" + text + "'; OTHER_TEXT:HEADS, such as 'an apple:5.1,6.9', is expected";
  CauseQuestion question{CauseKind::patch};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) throw UsageError(refusal);
  question.text = text.substr(0, colon);
  question.heads = model_heads_in(text.substr(colon + 1), refusal);
  return question;
}

}  // namespace

void add_cause_options(CLI::App& app, CauseQuestion& question) {
  add_text_option(
      app, "--ablate", "HEADS", [&](const std::string& text) { question = ablation_in(text); },
      "what comes next, and the loss over the text, with these heads set to zero (5.1,6.9), or to their mean "
      "over the text (5.1,6.9=mean)");
  add_text_option(
      app, "--patch", "TEXT:HEADS", [&](const std::string& text) { question = patch_in(text); },
      "the same with these heads' outputs taken from a run on another text, of as many tokens");
  add_optional_text(
      app, "--attribute", "[TOKEN]",
      [&](const std::string& text) {
        question = {CauseKind::attribute, {}, Ablation::zero, text};
      },
      "each head's direct share in the logit of this token (the likeliest next one)");
  add_flag(
      app, "--lens", [&] { question = {CauseKind::lens}; },
      "what the stream behind each layer would predict");
  add_flag(
      app, "--rollout", [&] { question = {CauseKind::rollout}; },
      "which tokens the last one, or those of --row, come from through all layers: attention rollout");
}

}  // namespace heed::cli
