#include "heed/nn/living_page.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "core/message.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/version.hpp"
#include "io/atomic_file.hpp"
#include "page/template.hpp"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

// Texts that a page opens with, for words and for characters. The model copies from earlier in both, so that
// one other word changes its prediction.
constexpr std::string_view kFirstWords = "the red fox met the blue fish and then the red";
constexpr std::string_view kFirstCharacters = "Anna had a red hat. One day Anna took the ";

void check_size(const nn::LanguageModelConfig& config) {
  const std::int64_t count = nn::parameter_count(config);
  if (count <= kMaxLivingParameters && config.context <= kMaxLivingContext) return;
  detail::refuse("the model has ", count, " parameters and a context of ", config.context,
                 " tokens; at most ", kMaxLivingParameters, " and ", kMaxLivingContext,
                 " are expected for a living page");
}

// The beginning of the text with as many tokens as the model can read, without characters that it does not
// know.
std::string readable(const TrainedModel& trained, std::string_view text) {
  const TrainedTokenizer& tokenizer = trained.tokenizer;
  const bool words = tokenizer.is_symbols();
  std::vector<std::string> taken;
  std::set<std::string> different;
  for (const std::string& token : tokenizer.tokens_of(text)) {
    if (static_cast<std::int64_t>(taken.size()) == trained.model.config.context) break;
    if (!words && !tokenizer.characters().contains(token)) continue;
    if (words && !different.contains(token) &&
        static_cast<std::int64_t>(different.size()) == tokenizer.size())
      break;
    different.insert(token);
    taken.push_back(token);
  }
  if (taken.empty()) return tokenizer.characters().word(0);
  std::string all;
  for (const std::string& token : taken) all += (words && !all.empty() ? " " : "") + token;
  return all;
}

// A text that shows which heads copy: for a model of symbols, different words said twice; else the text
// itself.
std::string telling_text(const TrainedModel& trained, const std::string& text) {
  if (!trained.tokenizer.is_symbols()) return text;
  const std::int64_t words =
      std::max<std::int64_t>(1, std::min(trained.tokenizer.size(), trained.model.config.context / 2));
  std::string all;
  for (const int time : {1, 2})
    for (std::int64_t i = 0; i < words && (time == 1 || trained.model.config.context > 1); ++i)
      all.append("w").append(std::to_string(i)).append(" ");
  return all;
}

Tensor ids_of(const TrainedModel& trained, const std::string& text) {
  const std::vector<std::string> tokens = trained.tokenizer.tokens_of(text);
  if (tokens.empty() || std::ssize(tokens) > trained.model.config.context)
    detail::refuse("the text has ", tokens.size(), trained.tokenizer.is_symbols() ? " words" : " characters",
                   "; 1 to ", trained.model.config.context, " are expected by the model");
  return trained.tokenizer.encode(tokens);
}

// The name and score of each head of each layer on this text.
Json looks_of_heads(const TrainedModel& trained, const std::string& text) {
  Json layers = Json::array();
  const nn::LanguageModelResult result = trained.model.forward(ids_of(trained, text));
  ReportOptions options{.top_k = 0, .map = {0, 0}};
  options.query_tokens = options.key_tokens = trained.tokenizer.tokens_of(text);
  for (const nn::BlockResult& block : result.blocks) {
    const nn::LayerResult& call = block.attention;
    const AttentionReport report = make_report(call.query, call.key, call.value, {.causal = true}, options);
    Json& heads = layers.emplace_back(Json::array());
    for (const HeadSummary& summary : report.summaries) {
      const std::vector<HeadName> names = summary.names();
      const double score = names.empty() ? 0 : names.front().score;
      heads.push_back({{"name", summary.name()}, {"score", score}});
    }
  }
  return layers;
}

Json about(const TrainedModel& trained, const LivingPage& page, const std::string& text,
           const std::vector<detail::PageBlock>& blocks) {
  const nn::LanguageModelConfig& config = trained.model.config;
  Json tensors = Json::object();
  for (const detail::PageBlock& block : blocks)
    tensors[block.name] = {{"dtype", block.dtype},
                           {"shape", std::vector(block.shape.begin(), block.shape.end())}};
  Json tokenizer = {{"symbols", trained.tokenizer.size()}};
  if (!trained.tokenizer.is_symbols()) tokenizer = {{"characters", trained.tokenizer.characters().words()}};
  return {{"name", page.name},
          {"text", text},
          {"tokenizer", tokenizer},
          {"layers", config.layers},
          {"heads", config.heads},
          {"model_dim", config.model_dim},
          {"context", config.context},
          {"attention_only", config.attention_only},
          {"parameters", nn::parameter_count(config)},
          {"epsilon", trained.model.norm.epsilon},
          {"looks", looks_of_heads(trained, text)},
          // for the story, whatever is typed
          {"roles", looks_of_heads(trained, telling_text(trained, text))},
          {"query_tokens", Json::array()},  // the words change; see data.js
          {"key_tokens", Json::array()},
          {"tensors", tensors}};
}

}  // namespace

void write_living_page(const std::string& path, const TrainedModel& trained, const LivingPage& page) {
  check_size(trained.model.config);
  const std::string_view first = trained.tokenizer.is_symbols() ? kFirstWords : kFirstCharacters;
  const std::string text = page.text.empty() ? readable(trained, first) : page.text;
  (void)ids_of(trained, text);  // throws if the text is wrong
  std::vector<detail::PageBlock> blocks;
  nn::LanguageModel model = trained.model;
  for (const nn::NamedParameter& parameter : model.parameters())
    blocks.push_back(detail::page_block(parameter.name, parameter.value->view()));
  const Json told = about(trained, page, text, blocks);
  const auto files = detail::living_page_files();
  io::detail::AtomicFile file(path);
  const auto put = [&](std::string_view part) { file.write(std::as_bytes(std::span(part))); };
  detail::put_template(detail::file_named(files, "life.html"), put, [&](std::string_view name) {
    if (name == "VERSION") return put(version());
    if (name == "STYLE") return put(detail::all_files(files, ".css"));
    if (name == "SCRIPT") return put(detail::all_files(files, ".js"));
    if (name == "PAGE") return put(detail::script_json(told));
    for (const detail::PageBlock& block : blocks) detail::put_block(block, put);
  });
  file.commit();
}

}  // namespace heed
