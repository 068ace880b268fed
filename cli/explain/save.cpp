// Machine-readable output of an explanation: JSON and safetensors.
#include <cmath>
#include <map>

#include "explain/print.hpp"
#include "heed/io/tensors.hpp"
#include "json.hpp"
#include "look/tables.hpp"

namespace heed::cli {
namespace {

double scale_of(const Model& model) { return 1 / std::sqrt(static_cast<double>(model.key_dim())); }

Json shape_of(const Tensor& tensor) {
  return std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end());
}

Json step_json(const Step& step) {
  return {{"name", step.name},
          {"title", step.title},
          {"formula", step.formula},
          {"meaning", step.meaning},
          {"axes", step.axes},
          {"shape", shape_of(step.value)},
          {"values", values_json(step.value)}};
}

// The most attended words of query word i in a head, heaviest first.
Json attended_json(const Explanation& explanation, std::int64_t head, std::int64_t i) {
  Json list = Json::array();
  for (std::int64_t k = 0; k < explanation.top_index.size(2); ++k) {
    const std::int64_t j = explanation.top_index.at<std::int64_t>(head, i, k);
    if (j < 0) break;
    list.push_back({{"word", explanation.question.context_tokens[static_cast<std::size_t>(j)]},
                    {"position", j},
                    {"weight", explanation.top_weight.at<float>(head, i, k)}});
  }
  return list;
}

Json summary_json(const Explanation& explanation, std::optional<std::int64_t> query_word) {
  const std::int64_t begin = query_word.value_or(0);
  const std::int64_t end = query_word ? begin + 1 : explanation.entropy.size(1);
  Json words = Json::array();
  for (std::int64_t i = begin; i < end; ++i)
    for (std::int64_t head = 0; head < explanation.entropy.size(0); ++head)
      words.push_back({{"word", explanation.question.tokens[static_cast<std::size_t>(i)]},
                       {"position", i},
                       {"head", head},
                       {"entropy", explanation.entropy.at<float>(head, i)},
                       {"attends_to", attended_json(explanation, head, i)}});
  return words;
}

}  // namespace

void print_json(std::ostream& out, const Model& model, const Explanation& explanation,
                std::optional<std::int64_t> query_word) {
  const Question& question = explanation.question;
  Json object = {{"tokens", question.tokens}};
  if (question.cross) object["context_tokens"] = question.context_tokens;
  if (query_word)
    object["word"] = {{"text", question.tokens[static_cast<std::size_t>(*query_word)]},
                      {"position", *query_word}};
  object["heads"] = model.heads();
  object["dim"] = model.dim();
  object["key_dim"] = model.key_dim();
  object["value_dim"] = model.value_dim();
  object["causal"] = question.causal;
  object["scale"] = scale_of(model);
  object["layout"] = name_of(model.layout);
  object["weights"] = model.origin;
  object["vocabulary"] = model.vocabulary.words();
  object["steps"] = Json::array();
  for (const Step& step : query_word ? steps_of_word(explanation, *query_word) : explanation.steps)
    object["steps"].push_back(step_json(step));
  object["summary"] = summary_json(explanation, query_word);
  out << object.dump() << '\n';
}

void save_explanation(const std::string& path, const Model& model, const Explanation& explanation) {
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const Step& step : explanation.steps) tensors.emplace_back(step.name, step.value.view());
  const auto parameters = parameters_of(model);
  for (const auto& [name, value] : parameters) tensors.emplace_back(name, value.view());
  const Question& question = explanation.question;
  // Escapes non-ASCII characters, so the metadata are always ASCII.
  const auto list = [](const std::vector<std::string>& words) { return Json(words).dump(-1, ' ', true); };
  const std::map<std::string, std::string> metadata = {{"format", "heed explain 1"},
                                                       {"tokens", list(question.tokens)},
                                                       {"context_tokens", list(question.context_tokens)},
                                                       {"vocabulary", list(model.vocabulary.words())},
                                                       {"causal", question.causal ? "true" : "false"},
                                                       {"scale", Json(scale_of(model)).dump()},
                                                       {"heads", std::to_string(model.heads())},
                                                       {"layout", name_of(model.layout)}};
  io::write_safetensors(path, tensors, metadata);
}

}  // namespace heed::cli
