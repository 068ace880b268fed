// heed generate: text written by a model, and the tokens it attended to while writing.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "command.hpp"
#include "draw/lettering.hpp"
#include "given_tokens.hpp"
#include "heed/model/generate.hpp"
#include "heed/model/model.hpp"
#include "heed/model/why.hpp"
#include "help.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMaxTokens = 1'000'000;
constexpr std::int64_t kWatchedPairs = 4;
constexpr int kTokenColumns = 14;

constexpr const char* kGenerateDescription =
    "generate text with a model\n"
    "\n"
    "Continues the prompt token by token; each token is drawn from the model's prediction. The same seed "
    "gives the same text. DIR is a model folder from heed train, or one from transformers that generates "
    "text (GPT-2, Llama, …).\n"
    "\n"
    "--watch prints a line for each new token: its probability, and the tokens that heads attended to most "
    "while it was chosen, with their places in the text, the weight and the head. Without --head, each token "
    "is "
    "listed with the head that attended to it most, and the text's first token, at which idle heads look, is "
    "left out. With --chat, only the answer is printed.";

constexpr const char* kGenerateExamples =
    "Examples:\n"
    "  heed generate stories --prompt 'Anna ' --temperature 0.7\n"
    "  heed generate book --prompt 'The ' --tokens 500\n"
    "  heed generate book --temperature 0.7 --top-p 0.9 --seed 3\n"
    "  heed generate induction --prompt 'to be or not to be or' --tokens 3 \\\n"
    "      --temperature 0 --watch\n"
    "  heed generate stories --prompt 'Anna ' --watch --head 1.2\n";

struct GenerateArguments {
  std::string folder, model;
  std::string prompt;
  GivenTokens given;
  std::string head;
  GenerateOptions options;
  bool watch = false;
  bool json = false;
};

// Escapes whatever could control a terminal; keeps newlines and tabs.
std::string safe(const std::string& text) {
  std::string all, run;
  for (const char c : text) {
    if (c != '\n' && c != '\t') {
      run += c;
      continue;
    }
    all += printable(std::exchange(run, {})) + c;
  }
  return all + printable(run);
}

// "or [2] 97.1 % 1.3".
std::string pair_text(const WatchedPair& pair, bool with_head) {
  std::string text = token_text(pair.token) + " [" + std::to_string(pair.place) + "] ";
  text += fixed(100 * pair.weight, 1) + " %";
  return with_head ? text + " " + to_string(pair.head) : text;
}

// "or            98.0 %  or [2] 97.1 % 1.3, be [5] 60.0 % 0.1".
void print_watched(const GeneratedToken& token, bool with_head) {
  std::cout << left_aligned(token_text(token.text), kTokenColumns) << ' '
            << right_aligned(fixed(100 * token.probability, 1) + " %", 7) << "  ";
  const char* before = "";
  for (const WatchedPair& pair : token.watched)
    std::cout << std::exchange(before, ", ") << pair_text(pair, with_head);
  std::cout << '\n' << std::flush;
}

nlohmann::ordered_json watched_json(const GeneratedToken& token) {
  nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
  for (const WatchedPair& pair : token.watched)
    pairs.push_back({{"place", pair.place},
                     {"token", printable(pair.token)},
                     {"weight", pair.weight},
                     {"head", to_string(pair.head)}});
  return {{"id", token.id}, {"text", token.text}, {"probability", token.probability}, {"attended", pairs}};
}

// The tokens of --prompt, --ids or --chat. For the latter two, the prompt becomes their text.
ModelTokens read_prompt(const heed::Model& model, GenerateArguments& arguments) {
  if (arguments.given.empty()) return tokens_of_prompt(model, arguments.prompt, "--prompt");
  ModelTokens tokens = read_given_tokens(model, arguments.given, false);
  const heed::Tokenizer* tokenizer = model.tokenizer();
  arguments.prompt =
      tokenizer != nullptr ? tokenizer->decode(tokens.ids, false) : joined_words("", tokens.shown);
  return tokens;
}

class GeneratePrinter {
 public:
  explicit GeneratePrinter(const GenerateArguments& arguments) : arguments_(arguments) {}

  void add(const GeneratedToken& token) {
    if (arguments_.json) {
      if (arguments_.watch) written_.push_back(watched_json(token));
      return;
    }
    if (!std::exchange(begun_, true)) begin();
    if (arguments_.watch) return print_watched(token, !arguments_.options.head);
    std::cout << safe(token.text) << std::flush;
  }

  void end(const std::string& text) const {
    if (arguments_.json) return print_object(text);
    if (arguments_.watch) std::cout << '\n' << safe(shown_prompt() + text);
    std::cout << '\n';
  }

 private:
  // A chat has its answer alone.
  std::string shown_prompt() const { return arguments_.given.chat.empty() ? arguments_.prompt : ""; }

  void begin() const {
    if (!arguments_.watch) {
      std::cout << safe(shown_prompt());
      return;
    }
    const std::string whom =
        arguments_.options.head ? "head " + to_string(*arguments_.options.head) : std::string("heads");
    std::cout << left_aligned("token", kTokenColumns) << "  chance  what " << whom
              << " attended to: [place] weight" << (arguments_.options.head ? "" : " head") << '\n';
  }

  void print_object(const std::string& text) const {
    nlohmann::ordered_json json = {{"prompt", arguments_.prompt},
                                   {"text", text},
                                   {"tokens", arguments_.options.tokens},
                                   {"seed", arguments_.options.seed}};
    if (arguments_.watch) json["written"] = written_;
    std::cout << json.dump() << '\n';
  }

  const GenerateArguments& arguments_;
  nlohmann::ordered_json written_ = nlohmann::ordered_json::array();
  bool begun_ = false;
};

void run_generate(const CLI::App& app, GenerateArguments& arguments) {
  if (!arguments.model.empty() && given(app, "DIR"))
    refuse_usage("DIR is given together with --model, which names the model too");
  if (!arguments.model.empty())
    arguments.folder = arguments.model;
  else
    require_option(app, "DIR", "a model folder, or stories or induction, which come with heed");
  if (given(app, "--head") && !arguments.watch)
    refuse_usage("--head is given without --watch, which shows what it attends to");
  for (const char* option : {"--top-k", "--top-p", "--seed"})
    if (arguments.options.temperature == 0 && given(app, option))
      refuse_usage(option, " is given together with --temperature 0, which takes the likeliest token");
  check_given_tokens(arguments.folder, arguments.given, given(app, "--prompt"), "--prompt");
  arguments.prompt = typed_text(arguments.prompt);
  if (!is_utf8(arguments.prompt)) refuse_usage("--prompt is not UTF-8 text");
  if (arguments.json) require_standard_output();
  const heed::Model model = read_model(arguments.folder, arguments.given.fast);
  if (arguments.watch) arguments.options.watch = kWatchedPairs;
  if (given(app, "--head")) {
    arguments.options.head = head_named("--head", arguments.head);
    check_head("--head", *arguments.options.head, model.info());
  }
  const ModelTokens prompt = read_prompt(model, arguments);
  GeneratePrinter printer(arguments);
  std::string text;
  (void)generate(model, prompt, arguments.options, [&](const GeneratedToken& token) {
    printer.add(token);
    text += token.text;
  });
  printer.end(text);
}

}  // namespace

Command add_generate(CLI::App& heed) {
  CLI::App* app = add_command(heed, "generate", kGenerateDescription);
  const auto arguments = std::make_shared<GenerateArguments>();
  add_argument(*app, "DIR", arguments->folder, "a model folder; stories and induction come with heed")
      ->words(shipped_models());
  add_argument(*app, "--prompt", arguments->prompt,
               "the text to continue; - reads standard input (default: none; the model starts from its first "
               "character "
               "or its BOS token)")
      ->type_name("TEXT");
  add_model_option(*app, arguments->model, "the same as DIR");
  add_given_tokens(*app, arguments->given, "", "--prompt");
  add_integer(*app, "--tokens", {1, kMaxTokens}, arguments->options.tokens,
              "generate at most N tokens (default 200)");
  add_real(
      *app, "--temperature",
      [arguments](double x) {
        if (x < 0)
          refuse_usage("--temperature is ", nlohmann::json(x).dump(), "; a number of at least 0 is expected");
        arguments->options.temperature = x;
      },
      "1 draws from the model's probabilities, less is more cautious, 0 takes the likeliest token (default "
      "1)");
  add_integer(*app, "--top-k", {1}, arguments->options.top_k,
              "draw only from the K likeliest tokens (default: all)")
      ->type_name("K");
  add_real(
      *app, "--top-p",
      [arguments](double x) {
        if (!(x > 0 && x <= 1))
          refuse_usage("--top-p is ", nlohmann::json(x).dump(), "; a number above 0, at most 1, is expected");
        arguments->options.top_p = x;
      },
      "draw only from the fewest likeliest tokens whose probabilities sum to X or more (default 1)");
  add_integer(*app, "--seed", {0, 0xffffffff}, arguments->options.seed,
              "seed of the random numbers (default 1)");
  add_choice(
      *app, "--cache", {"f32", "bf16", "f16", "int8", "int4", "fp8"},
      [arguments](std::size_t i) { arguments->options.cache = static_cast<CacheFormat>(i); },
      "format of the KV cache (default f32)");
  add_flag(*app, "--watch", arguments->watch, "print what heads attended to with each token");
  add_text(*app, "--head", "L.H", arguments->head,
           "with --watch: show only this head, such as 1.3 (layer 1, head 3)");
  add_integer(*app, "--threads", {1, 4096}, arguments->options.threads,
              "use at most N threads (default: all)");
  add_flag(*app, "--json", arguments->json, "print one JSON object instead");
  finish_help(*app, {"DIR [options]"}, kGenerateExamples);
  return {app, [app, arguments] { run_generate(*app, *arguments); }};
}

}  // namespace heed::cli
