#include <algorithm>
#include <array>
#include <utility>

#include "command.hpp"
#include "look/arguments.hpp"
#include "look/cause.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::array kCauses = {"--ablate", "--patch", "--attribute", "--lens", "--rollout"};

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
                              "'; heads such as 5.1,6.9 (layer 5, head 1 and layer 6, head 9), followed by "
                              "=mean for their mean, are expected";
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

std::string given_cause(const CLI::App& app) {
  std::string found;
  for (const char* name : kCauses) {
    if (!given(app, name)) continue;
    if (!found.empty())
      throw UsageError(found + " and " + name + " are both given; one question at a time is expected");
    found = name;
  }
  return found;
}

}  // namespace

void add_cause_options(CLI::App& app, LookArguments& arguments) {
  const char* group = "Causes (with --model; at the last token, or --row)";
  add_text_option(
      app, "--ablate", "HEADS", [&](const std::string& text) { arguments.cause = ablation_in(text); },
      "show the prediction and the loss over the text with these heads set to zero (5.1,6.9), or to their "
      "mean over the text (5.1,6.9=mean)")
      ->group(group);
  add_text_option(
      app, "--patch", "TEXT:HEADS", [&](const std::string& text) { arguments.cause = patch_in(text); },
      "the same with these heads' outputs taken from a run on another text of the same number of tokens")
      ->group(group);
  add_optional_text(
      app, "--attribute", "[TOKEN]",
      [&](const std::string& text) {
        arguments.cause = {CauseKind::attribute, {}, Ablation::zero, text};
      },
      "show each head's direct share in the logit of this token (default: the likeliest next token)")
      ->group(group);
  add_flag(
      app, "--lens", [&] { arguments.cause = {CauseKind::lens}; },
      "show what the residual stream after each layer would predict (logit lens)")
      ->group(group);
  add_flag(
      app, "--rollout", [&] { arguments.cause = {CauseKind::rollout}; },
      "show which tokens the last token, or those of --row, come from through all layers (attention rollout)")
      ->group(group);
}

void complete_cause_arguments(const CLI::App& app, LookArguments& arguments) {
  constexpr std::array kBeside = {"--model", "--text", "--row", "--top-k", "--json", "--threads"};
  const std::string cause = given_cause(app);
  if (arguments.model.empty()) throw UsageError(cause + " is given without --model DIR, which it examines");
  for (const GivenOption& option : given_options(app))
    if (!option.positional && option.name != cause &&
        std::find(kBeside.begin(), kBeside.end(), option.name) == kBeside.end())
      throw UsageError(option.name + " is given together with " + cause +
                       ", which allows only --text, --row, --top-k, --json and --threads");
  const bool has_words = !arguments.document.empty();
  if (has_words == !arguments.texts.empty() || arguments.texts.size() > 1)
    throw UsageError("WORDS or one --text FILE is expected for " + cause + " to read");
  arguments.text = std::exchange(arguments.document, {});
  for (const std::string& word : arguments.words) arguments.text += " " + word;
}

}  // namespace heed::cli
