// heed explain: attention on a sentence, step by step.

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "explain/model.hpp"
#include "explain/print.hpp"
#include "explain/steps.hpp"
#include "explain/trained.hpp"
#include "given_tokens.hpp"
#include "heed/error.hpp"
#include "heed/inspect/page.hpp"
#include "heed/model/model.hpp"
#include "heed/nn/living_page.hpp"
#include "heed/nn/trained_model.hpp"
#include "help.hpp"
#include "looked_at.hpp"
#include "machine.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "output_files.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::uint64_t kSeed = 123;  // as in the notebook

void add_weights(HtmlPage& page, const std::string& name, const nn::Linear& part) {
  page.weights.emplace_back(name + ".weight", part.weight.view());
  if (part.bias) page.weights.emplace_back(name + ".bias", part.bias->view());
}

// Writes every step and its weights to one HTML file. The page's title is the sentence if `title` is empty.
// Throws Error (invalid_argument) if the page would be too large; see heed/inspect/page.hpp.
void write_html(const std::string& path, const Model& model, const Explanation& explanation,
                const std::string& title) {
  const Question& question = explanation.question;
  HtmlPage page;
  const std::string sentence = joined_words(question.tokens);
  page.title = question.cross ? isolated(sentence) + " → " + isolated(joined_words(question.context_tokens))
                              : sentence;
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

constexpr const char* kExplainDescription =
    "walk through attention on a sentence, step by step\n"
    "\n"
    "Words become numbers, vectors, queries, keys and values; their scores become weights, drawn as a heat "
    "map; the weights mix the values. By default the sizes and random numbers are those of the notebook on "
    "an "
    "input sentence (examples/1_input_sentence.cpp).";

constexpr const char* kExplainExamples =
    "Layouts of the weights, in files that --params reads and --save writes:\n"
    "  per-head   query.weight [H, d_k, D], key.weight, value.weight [H, d_v, D];\n"
    "             out_proj.weight [D, H d_v]\n"
    "  in-proj    in_proj_weight [H (2 d_k + d_v), D], all queries' rows first, then\n"
    "             keys', then values' (torch.nn.MultiheadAttention); out_proj.weight\n"
    "  fused-qkv  qkv_layer.weight of the same shape, each head's rows together;\n"
    "             linear_layer.weight [D, H d_v]\n"
    "Biases and embedding.weight [words, D] may be in the same file.\n"
    "\n"
    "Examples:\n"
    "  heed explain 'Life is short, eat dessert first'\n"
    "  heed explain 'Life is short, eat dessert first' --word is --causal\n"
    "  heed explain 'the cat sat' --against 'le chat est assis' --heads 4\n"
    "  echo 'the quick brown fox' | heed explain - --save fox.safetensors\n"
    "  heed explain 'the quick brown fox' --heads 4 --html fox.html\n"
    "  heed explain --model induction to be or not to be or\n"
    "  heed explain --model induction to be or not to be or --word or:2\n"
    "  heed explain --model induction --html life.html\n";

struct ExplainArguments {
  std::string sentence;
  std::string against;
  std::string word;
  bool causal = false;
  ModelSizes sizes;
  std::optional<std::uint64_t> seed;
  std::optional<Init> init;
  std::optional<WeightLayout> layout;
  std::string params;
  std::string save;
  std::string html, title;
  bool json = false;
  std::string model;               ///< a trained model, instead of an untrained layer
  GivenTokens given;               ///< for a trained model, instead of words
  std::vector<std::string> words;  ///< the words after SENTENCE
  HeadChoice choice;
};

std::vector<std::string> words_of(const std::string& argument, const std::string& name) {
  const std::string text = argument == "-" ? all_of_standard_input() : argument;
  if (!is_utf8(text)) refuse_usage(name, " is not UTF-8 text");
  std::vector<std::string> words = split_words(text);
  if (words.empty()) refuse_usage(name, " has no words; at least one is expected");
  return words;
}

Question question_of(const CLI::App& app, const ExplainArguments& arguments) {
  require_option(app, "SENTENCE", "the words to explain, in quotes, or - for standard input");
  const bool cross = given(app, "--against");
  if (cross && arguments.sentence == "-" && arguments.against == "-")
    refuse_usage("SENTENCE and --against are both '-'; only one can be standard input");
  Question question;
  question.tokens = words_of(arguments.sentence, "SENTENCE");
  for (const std::string& more : arguments.words) {
    const std::vector<std::string> words = words_of(more, "SENTENCE");
    question.tokens.insert(question.tokens.end(), words.begin(), words.end());
  }
  question.cross = cross;
  question.context_tokens = cross ? words_of(arguments.against, "--against") : question.tokens;
  question.causal = arguments.causal;
  return question;
}

Model model_of(const ExplainArguments& arguments, const Question& question) {
  std::vector<std::string> words = question.tokens;
  words.insert(words.end(), question.context_tokens.begin(), question.context_tokens.end());
  const Vocabulary vocabulary(std::move(words));
  const std::uint64_t seed = arguments.seed.value_or(kSeed);
  if (arguments.params.empty()) {
    // Heads with all-positive weights look alike, so several heads use another distribution.
    const Init usual = arguments.sizes.heads.value_or(1) > 1 ? Init::lecun : Init::uniform;
    return draw_model(vocabulary, arguments.sizes, arguments.init.value_or(usual), seed,
                      arguments.layout.value_or(WeightLayout::per_head));
  }
  if (arguments.init)
    refuse_usage("--init draws weights and --params reads them; one of the two is expected");
  return read_model(arguments.params, vocabulary, arguments.sizes, arguments.layout, seed);
}

std::vector<std::int64_t> places_of(const std::string& word, const std::vector<std::string>& tokens) {
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] == word) places.push_back(static_cast<std::int64_t>(i));
  return places;
}

// The position of "the", or of its second occurrence, "the:2".
std::int64_t place_of(const std::string& asked, const std::vector<std::string>& tokens) {
  if (const auto places = places_of(asked, tokens); !places.empty()) return places.front();
  const std::size_t colon = asked.rfind(':');
  const std::string word = asked.substr(0, colon);
  const std::vector<std::int64_t> places = places_of(word, tokens);
  if (colon == std::string::npos || places.empty()) {
    const std::optional<std::string> meant = nearest(word, tokens);
    refuse_usage("--word is '", asked, "', which is not in the sentence",
                 meant ? "; did you mean " + *meant + "?" : "");
  }
  const std::optional<std::int64_t> number = whole_number(asked.substr(colon + 1));
  if (!number || *number < 1 || *number > std::ssize(places))
    refuse_usage("--word is '", asked, "', but the sentence has '", word, "' ",
                 counted(places.size(), "time"));
  return places[static_cast<std::size_t>(*number - 1)];
}

void print_for_people(const Model& model, const Explanation& explanation,
                      std::optional<std::int64_t> query_word) {
  const TextOutput output = standard_output();
  if (query_word)
    print_word(output, model, explanation, *query_word);
  else
    print_walk(output, model, explanation);
}

void check_files(const ExplainArguments& arguments) {
  require_ending("--params", arguments.params, ".safetensors");
  require_ending("--save", arguments.save, ".safetensors");
  require_page_ending(arguments.html);
  if (!arguments.title.empty() && arguments.html.empty())
    refuse_usage("--title is given without --html FILE.html, whose title it would be");
  check_outputs({{"--params", arguments.params}}, {{"--save", arguments.save}, {"--html", arguments.html}});
}

// Throws UsageError for options of the untrained layer.
void refuse_beside_model(const CLI::App& app) {
  for (const auto& [name, group, positional, values] : given_options(app)) {
    if (positional || group == "Trained model" || name == "--json" || name == "--html" || name == "--title" ||
        name == "--word" || group == "Help")
      continue;
    refuse_usage(name, " is given together with --model, whose layers are trained",
                 name == "--save" ? "; heed look --model has --save" : "");
  }
}

void explain_reading(const ExplainArguments& arguments, const ModelReading& reading) {
  std::optional<std::int64_t> row;
  if (!arguments.word.empty()) row = place_of(arguments.word, reading.tokens.shown);
  if (arguments.json)
    return row ? explain_walk_json(std::cout, reading, *row)
               : explain_trained_json(std::cout, reading, arguments.choice);
  const TextOutput output = standard_output();
  if (row)
    explain_walk(output, reading, *row);
  else
    explain_trained(output, reading, arguments.choice);
}

// The model of a page to type into. For others the refusal names the command that draws their heads.
TrainedModel model_of_page(const std::string& name) {
  try {
    return load_trained_model(name);
  } catch (const Error& error) {
    const std::string said = error.what();
    if (error.code() != ErrorCode::io || said.find("hf download") != said.npos) throw;
    throw Error(error.code(), said + "; for other models, heed look --model " + shell_quoted(name) +
                                  " WORDS --html FILE.html draws the heads");
  }
}

// With --html alone, the page is written and no sentence is needed. The heads of a sentence are then printed
// only if they are asked for.
void run_trained(const CLI::App& app, const ExplainArguments& arguments) {
  refuse_beside_model(app);
  bool only_page = !arguments.html.empty();
  for (const char* unread : {"--ids", "--chat", "--fast"})
    if (only_page && given(app, unread))
      refuse_usage(unread,
                   " is given together with --html, whose page reads words alone and computes exactly");
  for (const char* printed : {"SENTENCE", "--json", "--layer", "--head", "--word"})
    only_page &= !given(app, printed);
  for (const char* heads : {"--layer", "--head"})
    if (given(app, heads) && given(app, "--word"))
      refuse_usage(heads, " is given together with --word, which follows one word through all heads");
  check_given_tokens(arguments.model, arguments.given, given(app, "SENTENCE"), "SENTENCE");
  if (!only_page && arguments.given.empty())
    require_option(app, "SENTENCE", "the words to read, or - for standard input");
  check_files(arguments);
  const std::string text = typed_text(joined_words(arguments.sentence, arguments.words));
  if (arguments.json) require_standard_output();
  std::optional<TrainedModel> living;
  if (!arguments.html.empty()) living = model_of_page(arguments.model);
  bool is_printed = arguments.html.empty();
  for (const char* asked : {"--json", "--layer", "--head", "--word"}) is_printed |= given(app, asked);
  if (!only_page) {
    const heed::Model model = read_model(arguments.model, arguments.given.fast);
    ModelTokens tokens = arguments.given.empty() ? read_tokens_of(model, text, "SENTENCE")
                                                 : read_given_tokens(model, arguments.given);
    if (is_printed) explain_reading(arguments, read_with(model, arguments.model, std::move(tokens)));
  }
  if (!living) return;
  write_living_page(arguments.html, *living,
                    {arguments.title.empty() ? arguments.model : arguments.title, text});
  if (!arguments.json)
    std::cout << (is_printed ? "\n" : "") << "Wrote the model into a page, " << printable(arguments.html)
              << ": open it in a browser and type words.\n";
}

void run_explain(const CLI::App& app, const ExplainArguments& arguments) {
  if (!arguments.model.empty()) return run_trained(app, arguments);
  for (const char* option : {"--layer", "--head", "--ids", "--chat", "--fast"})
    if (given(app, option)) refuse_usage(option, " is given without --model");
  const Question question = question_of(app, arguments);
  std::optional<std::int64_t> query_word;
  if (given(app, "--word")) query_word = place_of(arguments.word, question.tokens);
  check_files(arguments);
  if (arguments.json) require_standard_output();
  const Model model = model_of(arguments, question);
  const auto [rows, keys] = std::pair(std::ssize(question.tokens), std::ssize(question.context_tokens));
  require_memory(detail::said("the scores of SENTENCE, ", rows, " x ", keys, " per head,"),
                 4.0 * sizeof(float) * static_cast<double>(model.heads() * rows) * static_cast<double>(keys));
  const Explanation explanation = explain(model, question);
  if (!arguments.save.empty()) save_explanation(arguments.save, model, explanation);
  if (!arguments.html.empty()) write_html(arguments.html, model, explanation, arguments.title);
  if (arguments.json) return print_json(std::cout, model, explanation, query_word);
  const bool is_printed = arguments.html.empty() || query_word;
  const char* before = is_printed ? "\n" : "";
  if (is_printed) print_for_people(model, explanation, query_word);
  if (!arguments.save.empty())
    std::cout << before << "Saved every step and the parameters to " << printable(arguments.save) << ".\n";
  if (!arguments.html.empty())
    std::cout << before << "Drew every step on a page, " << printable(arguments.html)
              << ": open it in a browser.\n";
}

void add_sentence_options(CLI::App& app, ExplainArguments& arguments) {
  add_argument(app, "SENTENCE", arguments.sentence,
               "words to explain, separated by spaces or commas; - reads standard input");
  add_argument(app, "WORDS", arguments.words, "more words: quotes may be left out");
  begin_group(app, "Sentence");
  add_text(app, "--against", "OTHER_SENTENCE", arguments.against,
           "attend to the words of this sentence instead (cross-attention)");
  add_flag(app, "--causal", arguments.causal, "no word attends to a later one");
  add_text(app, "--word", "W", arguments.word,
           "follow only this query word through every step; W:2 is its second occurrence");
}

void add_layer_options(CLI::App& app, ExplainArguments& arguments) {
  begin_group(app, "Layer");
  ModelSizes& sizes = arguments.sizes;
  const auto add_size = [&](const char* name, std::optional<std::int64_t>& size, const char* help) {
    add_integer(app, name, {1}, size, help);
  };
  add_size("--heads", sizes.heads, "attention heads (default 1)");
  add_size("--dim", sizes.dim, "numbers in a word's vector (default 16)");
  add_size("--key-dim", sizes.key_dim, "numbers in a head's query or key (default 24)");
  add_size("--value-dim", sizes.value_dim, "numbers in a head's value (default 28)");
  add_seed(
      app, "--seed", [&](std::uint64_t n) { arguments.seed = n; },
      "seed of the random numbers, which are the same as PyTorch's (default 123)");
  const auto set_init = [&](std::size_t i) { arguments.init = static_cast<Init>(i); };
  add_choice(
      app, "--init", {"uniform", "normal", "torch", "lecun"}, set_init,
      "distribution of the weights: uniform from 0 to 1, normal N(0, 1), torch as in "
      "torch.nn.MultiheadAttention, or lecun N(0, 1/D) (default: uniform for one head, lecun for more)");
  const auto set_layout = [&](std::size_t i) { arguments.layout = static_cast<WeightLayout>(i); };
  add_choice(app, "--layout", {"per-head", "in-proj", "fused-qkv"}, set_layout,
             "layout of the weights in the files of --params and --save, see below (default: that of "
             "--params, else per-head)");
  add_text(
      app, "--params", "FILE.safetensors", arguments.params,
      "read the parameters from this file; --heads is needed if the file does not tell the number of heads");
}

void add_model_options(CLI::App& app, ExplainArguments& arguments) {
  begin_group(app, "Trained model");
  add_model_option(
      app, arguments.model,
      "run this model on the words: a folder from heed train or transformers, or induction or stories, "
      "which come with heed; --word then follows that word through the layers");
  add_given_tokens(app, arguments.given);
  add_text_option(
      app, "--layer", "N", arguments.choice.layer,
      "draw the heads of this layer, counted from 0 (default: the heads that fit a pattern best)");
  add_text_option(
      app, "--head", "HEADS", [&](const std::string& text) { arguments.choice.heads = split(text, ','); },
      "draw only these heads: 1.3 (layer 1, head 3), or several separated by commas, numbered as in heed "
      "look");
}

void add_result_options(CLI::App& app, ExplainArguments& arguments) {
  begin_group(app, "Results");
  add_text(app, "--save", "FILE.safetensors", arguments.save,
           "write every step as a named tensor (query, key, …, weights, context, output) and the parameters");
  add_text(app, "--html", "FILE.html", arguments.html,
           "draw every step on a page for a browser, where words and numbers can be followed; with --model, "
           "the page contains the model and computes what you type");
  add_text(app, "--title", "TEXT", arguments.title, "with --html: the page's title (default: the sentence)");
  add_flag(app, "--json", arguments.json, "print one JSON object instead (masked scores are null)");
}

}  // namespace

Command add_explain(CLI::App& heed) {
  CLI::App* app = add_command(heed, "explain", kExplainDescription);
  const auto arguments = std::make_shared<ExplainArguments>();
  add_sentence_options(*app, *arguments);
  add_layer_options(*app, *arguments);
  add_model_options(*app, *arguments);
  add_result_options(*app, *arguments);
  finish_help(*app, {"WORDS [options]", "--model DIR WORDS [options]", "--model DIR --html FILE.html"},
              kExplainExamples);
  return {app, [app, arguments] { run_explain(*app, *arguments); }};
}

}  // namespace heed::cli
