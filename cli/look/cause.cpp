#include "look/cause.hpp"
#include "heed/model/model.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "heed/error.hpp"
#include "look/arguments.hpp"
#include "look/cause_print.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "standard_streams.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

using CauseJson = nlohmann::ordered_json;

constexpr int kLeastCauseWidth = 60;

const char* option_of(CauseKind kind) {
  switch (kind) {
    case CauseKind::ablate:
      return "--ablate";
    case CauseKind::patch:
      return "--patch";
    case CauseKind::attribute:
      return "--attribute";
    case CauseKind::lens:
      return "--lens";
    case CauseKind::rollout:
      break;
  }
  return "--rollout";
}

TensorView view_of(const std::vector<std::int64_t>& ids) {
  return {ids.data(), {static_cast<std::int64_t>(ids.size())}};
}

// The rows of --row: one, or several for --rollout. Default: the last row.
std::vector<std::int64_t> rows_of_cause(const LookArguments& arguments, const ModelTokens& tokens) {
  const auto count = static_cast<std::int64_t>(tokens.ids.size());
  if (!arguments.row) return {count - 1};
  std::vector<std::int64_t> rows;
  for (const std::string& part : split(*arguments.row, ',')) {
    const auto number = whole_number(part);
    if (number && (*number < 0 || *number >= count))
      throw UsageError("--row is " + part + "; there are " + std::to_string(count) +
                       " tokens, counted from 0");
    for (const std::int64_t row :
         number ? std::vector{*number} : word_places("--row", part, tokens.shown, count))
      rows.push_back(row);
  }
  if (rows.size() != 1 && arguments.cause->kind != CauseKind::rollout)
    throw UsageError("--row is '" + *arguments.row + "', which is " + std::to_string(rows.size()) +
                     " tokens; one is expected (a number, or a word with its occurrence, such as or:2)");
  return rows;
}

void check_cause_heads(const CauseQuestion& question, const ModelInfo& info) {
  for (const ModelHead& head : question.heads)
    if (head.layer >= info.layers || head.head >= info.heads)
      throw UsageError(std::string(option_of(question.kind)) + " has the head " + heads_text({head}) +
                       "; the model has the layers 0 to " + std::to_string(info.layers - 1) +
                       " with the heads 0 to " + std::to_string(info.heads - 1));
}

CauseJson token_json(const CauseText& text, std::int64_t id) {
  return {{"token", text.token_of(id)}, {"id", id}};
}

CauseJson heads_json(const std::vector<ModelHead>& heads) {
  CauseJson list = CauseJson::array();
  for (const ModelHead& head : heads) list.push_back(heads_text({head}));
  return list;
}

CauseJson effect_json(const CauseText& text, const Effect& effect) {
  CauseJson object = {{"heads", heads_json(text.question.heads)}};
  if (text.question.kind == CauseKind::patch)
    object["from"] = text.question.text;
  else
    object["to"] = text.question.to == Ablation::zero ? "zero" : "mean";
  object["moved"] = effect.moved;
  if (!effect.predicts) return object;
  object["row"] = effect.row;
  object["next"] = CauseJson::array();
  for (const TokenShift& shift : effect.tokens) {
    object["next"].push_back(token_json(text, shift.token));
    object["next"].back().update({{"before", shift.before}, {"after", shift.after}});
  }
  object["divergence"] = effect.divergence;
  object["loss"] = {{"before", effect.loss_before}, {"after", effect.loss_after}};
  return object;
}

CauseJson attribution_json(const CauseText& text, const Attribution& made) {
  CauseJson object = token_json(text, made.token);
  object.update({{"row", made.row}, {"logit", made.logit}, {"embedding", made.embedding}});
  object["heads"] = CauseJson::array();
  const auto shares = made.heads.values<double>();
  const auto heads = static_cast<std::size_t>(made.heads.size(1));
  for (std::size_t at = 0; at < shares.size(); at += heads)
    object["heads"].push_back(shares.subspan(at, heads));
  object.update({{"biases", made.biases}, {"mlps", made.mlps}, {"constant", made.constant}});
  return object;
}

CauseJson lens_json(const CauseText& text, const Lens& lens) {
  CauseJson object = token_json(text, lens.token);
  object["row"] = lens.row;
  object["layers"] = CauseJson::array();
  for (const LensLayer& layer : lens.layers) {
    CauseJson one = {{"probability", layer.probability}, {"rank", layer.rank}, {"top", CauseJson::array()}};
    for (const TokenChance& chance : layer.top) {
      one["top"].push_back(token_json(text, chance.token));
      one["top"].back()["probability"] = chance.probability;
    }
    object["layers"].push_back(std::move(one));
  }
  return object;
}

CauseJson rollout_json(const std::vector<std::int64_t>& rows, const Tensor& flow) {
  CauseJson list = CauseJson::array();
  const auto length = static_cast<std::size_t>(flow.size(1));
  for (std::size_t i = 0; i < rows.size(); ++i)
    list.push_back({{"row", rows[i]}, {"from", flow.values<float>().subspan(i * length, length)}});
  return list;
}

// The most likely token displayed as the given text; for "#58", the token with this id.
std::int64_t token_named(const Model& model, const ModelTokens& tokens, const CauseText& text,
                         CauseOptions options) {
  options.top = model.info().vocabulary;
  const Lens all = lens(model, view_of(tokens.ids), options);
  for (const TokenChance& chance : all.layers.back().top)
    if (text.token_of(chance.token) == text.question.text) return chance.token;
  const auto number =
      text.question.text[0] == '#' ? whole_number(text.question.text.substr(1)) : std::nullopt;
  if (number && *number >= 0 && *number < model.info().vocabulary) return *number;
  throw UsageError("--attribute is '" + text.question.text +
                   "', which is not a token of the model; a token as --lens shows it is expected");
}

// Answers the question, as text or into `object`.
void answer_one(const TextOutput& output, const Model& model, const ModelTokens& tokens,
                const CauseText& text, const LookArguments& arguments, CauseJson* object) {
  const std::vector<std::int64_t> rows = rows_of_cause(arguments, tokens);
  CauseOptions options{rows.front(), {}, arguments.top_k, arguments.call.options.threads};
  const TensorView ids = view_of(tokens.ids);
  const CauseQuestion& question = text.question;
  switch (question.kind) {
    case CauseKind::ablate:
    case CauseKind::patch: {
      std::vector<std::int64_t> other;
      if (question.kind == CauseKind::patch) other = model.tokenize(question.text, "the text of --patch").ids;
      if (!other.empty() && other.size() != tokens.ids.size())
        throw UsageError("the length of the text of --patch is " + std::to_string(other.size()) + "; " +
                         std::to_string(tokens.ids.size()) + " tokens, the length of the text, are expected");
      const Effect effect = other.empty() ? ablate(model, ids, question.heads, question.to, options)
                                          : patch(model, ids, view_of(other), question.heads, options);
      return object != nullptr ? object->update(effect_json(text, effect))
                               : print_effect(output, text, effect);
    }
    case CauseKind::attribute: {
      if (!question.text.empty()) options.token = token_named(model, tokens, text, options);
      const Attribution made = attribute(model, ids, options);
      return object != nullptr ? object->update(attribution_json(text, made))
                               : print_attribution(output, text, made);
    }
    case CauseKind::lens: {
      const Lens made = lens(model, ids, options);
      return object != nullptr ? object->update(lens_json(text, made)) : print_lens(output, text, made);
    }
    case CauseKind::rollout: {
      const Tensor flow = rollout(model, ids, rows, options.threads);
      if (object != nullptr)
        (*object)["rows"] = rollout_json(rows, flow);
      else
        print_rollout(output, text, rows, flow);
    }
  }
}

}  // namespace

void answer_cause(const LookArguments& arguments) {
  const CauseQuestion& question = *arguments.cause;
  const Model model = read_model(arguments.model);
  check_cause_heads(question, model.info());
  const ModelTokens tokens = arguments.texts.empty()
                                 ? read_tokens_of(model, arguments.text, "WORDS")
                                 : read_tokens_of(model, file_text(arguments.texts[0]), arguments.texts[0]);
  const auto token_of = [&](std::int64_t id) {
    try {
      return model.text_of(id, tokens);
    } catch (const Error&) {  // an unembedding row without a token
      return "#" + std::to_string(id);
    }
  };
  const CauseText text{question, model.info(), tokens.shown, token_of, arguments.top_k};
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  const TextOutput output{std::cout, terminal.color, std::max(kLeastCauseWidth, terminal.width)};
  if (!arguments.json) return answer_one(output, model, tokens, text, arguments, nullptr);
  CauseJson answer = CauseJson::object();
  answer_one(output, model, tokens, text, arguments, &answer);
  output.stream << CauseJson({{"tokens", tokens.shown}, {option_of(question.kind) + 2, answer}}).dump()
                << '\n';
}

}  // namespace heed::cli
