#include "look/cause.hpp"

#include <algorithm>
#include <array>
#include <iostream>

#include "command.hpp"
#include "given_tokens.hpp"
#include "heed/model/model.hpp"
#include "look/cause_print.hpp"
#include "look/tables.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

// "5.1,6.9".
std::vector<ModelHead> model_heads_in(const std::string& heads, const std::string& refusal) {
  std::vector<ModelHead> all;
  for (const std::string& name : split(heads, ',')) {
    const std::vector<std::int64_t> numbers = whole_numbers(name, '.');
    if (numbers.size() != 2 || std::ranges::min(numbers) < 0) refuse_usage(refusal);
    all.push_back({numbers[0], numbers[1]});
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
  if (to != "zero" && to != "mean") refuse_usage(refusal);
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
  if (colon == std::string::npos || colon == 0) refuse_usage(refusal);
  question.text = text.substr(0, colon);
  question.heads = model_heads_in(text.substr(colon + 1), refusal);
  return question;
}

constexpr std::array kNames = {"ablate", "patch", "attribute", "lens", "rollout"};
static_assert(kNames.size() == 1 + static_cast<std::size_t>(CauseKind::rollout));

const char* name_of(CauseKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

TensorView view_of(const std::vector<std::int64_t>& ids) { return {ids.data(), {std::ssize(ids)}}; }

// The rows of --row: one, or several for --rollout. Default: the last row.
std::vector<std::int64_t> rows_of_cause(const std::optional<std::string>& asked, CauseKind kind,
                                        const ModelTokens& tokens) {
  const auto count = std::ssize(tokens.ids);
  if (!asked) return {count - 1};
  std::vector<std::int64_t> rows;
  for (const std::string& part : split(*asked, ',')) {
    const auto number = whole_number(part);
    if (number && (*number < 0 || *number >= count))
      refuse_usage("--row is ", part, "; ", there_are(count, "token"), ", counted from 0");
    for (const std::int64_t row :
         number ? std::vector{*number} : word_places("--row", part, tokens.shown, count))
      rows.push_back(row);
  }
  if (rows.size() != 1 && kind != CauseKind::rollout)
    refuse_usage("--row is '", *asked, "', which is ", counted(rows.size(), "token"),
                 "; one is expected (a number, or a word with its occurrence, such as or:2)");
  return rows;
}

Json token_json(const CauseText& text, std::int64_t id) { return {{"token", text.token_of(id)}, {"id", id}}; }

Json cause_heads_json(const std::vector<ModelHead>& heads) {
  Json list = Json::array();
  for (const ModelHead& head : heads) list.push_back(heads_text({head}));
  return list;
}

Json effect_json(const CauseText& text, const Effect& effect) {
  Json object = {{"heads", cause_heads_json(text.question.heads)}};
  if (text.question.kind == CauseKind::patch)
    object["from"] = text.question.text;
  else
    object["to"] = text.question.to == Ablation::zero ? "zero" : "mean";
  object["moved"] = effect.moved;
  if (!effect.predicts) return object;
  object["row"] = effect.row;
  object["next"] = Json::array();
  for (const TokenShift& shift : effect.tokens) {
    object["next"].push_back(token_json(text, shift.token));
    object["next"].back().update({{"before", shift.before}, {"after", shift.after}});
  }
  object["divergence"] = effect.divergence;
  object["loss"] = {{"before", effect.loss_before}, {"after", effect.loss_after}};
  return object;
}

Json attribution_json(const CauseText& text, const Attribution& made) {
  Json object = token_json(text, made.token);
  object.update({{"row", made.row}, {"logit", made.logit}, {"embedding", made.embedding}});
  object["heads"] = Json::array();
  const auto shares = made.heads.values<double>();
  const auto heads = static_cast<std::size_t>(made.heads.size(1));
  for (std::size_t at = 0; at < shares.size(); at += heads)
    object["heads"].push_back(shares.subspan(at, heads));
  object.update({{"biases", made.biases}, {"mlps", made.mlps}, {"constant", made.constant}});
  return object;
}

Json lens_json(const CauseText& text, const Lens& lens) {
  Json object = token_json(text, lens.token);
  object["row"] = lens.row;
  object["layers"] = Json::array();
  for (const LensLayer& layer : lens.layers) {
    Json one = {{"probability", layer.probability}, {"rank", layer.rank}, {"top", Json::array()}};
    for (const TokenChance& chance : layer.top) {
      one["top"].push_back(token_json(text, chance.token));
      one["top"].back()["probability"] = chance.probability;
    }
    object["layers"].push_back(std::move(one));
  }
  return object;
}

Json rollout_json(const CauseText&, const Rollout& rollout) {
  Json list = Json::array();
  const auto length = static_cast<std::size_t>(rollout.flow.size(1));
  for (std::size_t i = 0; i < rollout.rows.size(); ++i)
    list.push_back(
        {{"row", rollout.rows[i]}, {"from", rollout.flow.values<float>().subspan(i * length, length)}});
  return {{"rows", list}};
}

// The effect of --ablate or --patch.
Effect effect_of(const Model& model, const CauseQuestion& question, const ModelTokens& tokens,
                 const CauseOptions& options) {
  const TensorView ids = view_of(tokens.ids);
  if (question.kind == CauseKind::ablate) return ablate(model, ids, question.heads, question.to, options);
  const std::vector<std::int64_t> other = model.tokenize(question.text, "the text of --patch").ids;
  if (other.size() != tokens.ids.size())
    refuse_usage("the length of the text of --patch is ", other.size(), "; ",
                 counted(tokens.ids.size(), "token"), ", the length of the text,",
                 heed::detail::expected(tokens.ids.size()));
  return patch(model, ids, view_of(other), question.heads, options);
}

// Prints the answer, or returns it for --json.
Json answer_one(const Model& model, const ModelTokens& tokens, const CauseText& text,
                const std::vector<std::int64_t>& rows, CauseOptions options, bool json) {
  const TextOutput output = standard_output();
  const TensorView ids = view_of(tokens.ids);
  const auto told = [&](const auto& made, const auto& as_json, const auto& print) {
    if (json) return as_json(text, made);
    print(output, text, made);
    return Json();
  };
  switch (text.question.kind) {
    case CauseKind::ablate:
    case CauseKind::patch:
      return told(effect_of(model, text.question, tokens, options), effect_json, print_effect);
    case CauseKind::attribute:
      if (!text.question.text.empty())
        options.token = token_named(model, tokens, predicted_tokens(model, tokens, options), "--attribute",
                                    text.question.text);
      return told(attribute(model, ids, options), attribution_json, print_attribution);
    case CauseKind::lens:
      return told(lens(model, ids, options), lens_json, print_lens);
    case CauseKind::rollout:
      return told(Rollout{rows, rollout(model, ids, rows, options.threads)}, rollout_json, print_rollout);
  }
  return {};
}

}  // namespace

void add_cause_options(CLI::App& app, CauseQuestion& question) {
  add_text_option(
      app, "--ablate", "HEADS", [&](const std::string& text) { question = ablation_in(text); },
      "show the prediction and the loss over the text with these heads set to zero (5.1,6.9), or to their "
      "mean over the text (5.1,6.9=mean)");
  add_text_option(
      app, "--patch", "TEXT:HEADS", [&](const std::string& text) { question = patch_in(text); },
      "the same with these heads' outputs taken from a run on another text of the same number of tokens; - "
      "reads standard input");
  add_optional_text(
      app, "--attribute", "[TOKEN]",
      [&](const std::string& text) {
        question = {CauseKind::attribute, {}, Ablation::zero, text};
      },
      "show each head's direct share in the logit of this token (default: the likeliest next token)");
  add_flag(
      app, "--lens", [&] { question = {CauseKind::lens}; },
      "show what the residual stream after each layer would predict (logit lens)");
  add_flag(
      app, "--rollout", [&] { question = {CauseKind::rollout}; },
      "show which tokens the last token, or those of --row, come from through all layers (attention "
      "rollout)");
}

void answer_cause(const LookSource& source, const SharedOptions& shared, const CauseQuestion& question,
                  const std::optional<std::string>& row) {
  const Model model = read_model(source.model, source.given.fast);
  for (const ModelHead& head : question.heads)
    check_head("--" + std::string(name_of(question.kind)), head, model.info());
  const ModelTokens tokens = read_text(model, source).tokens;
  const auto token_of = [&](std::int64_t id) { return model.text_of(id, tokens); };
  const CauseText text{question, model.info(), tokens.shown, token_of, shared.keys()};
  const std::vector<std::int64_t> rows = rows_of_cause(row, question.kind, tokens);
  const CauseOptions options{rows.front(), {}, shared.keys(), source.call.options.threads};
  const Json answer = answer_one(model, tokens, text, rows, options, shared.json);
  if (shared.json)
    std::cout << Json({{"tokens", tokens.shown}, {name_of(question.kind), answer}}).dump() << '\n';
}

}  // namespace heed::cli
