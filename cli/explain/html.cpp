#include "explain/html.hpp"

#include "explain/print.hpp"
#include "heed/inspect/page.hpp"

namespace heed::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

void add_weights(HtmlPage& page, const std::string& name, const nn::Linear& part) {
  page.weights.emplace_back(name + ".weight", part.weight.view());
  if (part.bias) page.weights.emplace_back(name + ".bias", part.bias->view());
}

}  // namespace

void write_html(const std::string& path, const Model& model, const Explanation& explanation,
                const std::string& title) {
  const Question& question = explanation.question;
  HtmlPage page;
  page.title = joined(question.tokens);
  if (question.cross) page.title += " → " + joined(question.context_tokens);
  if (!title.empty()) page.title = title;
  page.about = subject_of(model, explanation) + ". Weights " + model.origin + ".";
  page.query_tokens = question.tokens;
  page.key_tokens = question.context_tokens;
  page.cross = question.cross;
  page.heads = model.heads();
  for (const Step& step : explanation.steps)
    page.steps.push_back({step.name, step.title, step.formula, step.meaning, step.axes, step.value.view()});
  add_weights(page, "query", model.attention.query);
  add_weights(page, "key", model.attention.key);
  add_weights(page, "value", model.attention.value);
  if (model.attention.out_proj) add_weights(page, "out_proj", *model.attention.out_proj);
  const AttentionReport report =
      make_report(explanation.value("query"), explanation.value("key"), explanation.value("value"),
                  {.causal = question.causal, .kernel = Kernel::reference},
                  {.map = {0, 0}, .query_tokens = question.tokens, .key_tokens = question.context_tokens});
  page.report = &report;
  heed::write_html(path, page);
}

}  // namespace heed::cli
