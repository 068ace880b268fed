// heed generate: text from a model that heed trained.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "command.hpp"
#include "heed/nn.hpp"
#include "help.hpp"
#include "options.hpp"
#include "standard_streams.hpp"
#include "text.hpp"
#include "trained_model.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMostTokens = 1'000'000;

constexpr const char* kGenerateDescription =
    "let a trained model write\n"
    "\n"
    "Continues the prompt token by token; each is drawn from what the model expects next. The same seed "
    "gives "
    "the same text.";

constexpr const char* kGenerateExamples =
    "Examples:\n"
    "  heed generate stories --prompt 'Anna ' --temperature 0.7\n"
    "  heed generate book --prompt 'The ' --tokens 500\n"
    "  heed generate book --temperature 0.7 --top-k 10 --seed 3\n"
    "  heed generate induction --prompt 'to be or not to be or' --tokens 3 \\\n"
    "      --temperature 0\n";

struct GenerateArguments {
  std::string folder;
  std::string prompt;
  GenerateOptions options;
  bool json = false;
};

void run_generate(const CLI::App& app, const GenerateArguments& arguments) {
  require_option(app, "DIR", "the folder of a model that heed train made, or stories or induction");
  if (arguments.json) require_standard_output();
  nn::set_blas_threads(1);
  const TrainedModel trained = read_trained_model(arguments.folder);
  const bool symbols = trained.tokenizer.is_symbols();
  bool begun = arguments.json;
  const auto print = [&](const std::string& token) {
    if (!std::exchange(begun, true)) std::cout << (symbols ? printable(arguments.prompt) : arguments.prompt);
    if (!arguments.json) std::cout << (symbols ? " " : "") << token << std::flush;
  };
  const std::string text = trained.generate(arguments.prompt, arguments.options, print, "--prompt");
  if (!arguments.json) {
    std::cout << '\n';
    return;
  }
  const nlohmann::ordered_json json = {{"prompt", arguments.prompt},
                                       {"text", text},
                                       {"tokens", arguments.options.tokens},
                                       {"seed", arguments.options.seed}};
  std::cout << json.dump() << '\n';
}

}  // namespace

Command add_generate(CLI::App& heed) {
  CLI::App* app = add_command(heed, "generate", kGenerateDescription);
  const auto arguments = std::make_shared<GenerateArguments>();
  add_argument(*app, "DIR", arguments->folder, "the folder of a model; stories and induction come with heed");
  add_argument(*app, "--prompt", arguments->prompt,
               "what to go on from (nothing: the model's first character)")
      ->type_name("TEXT");
  add_integer(
      *app, "--tokens", {1, kMostTokens}, [arguments](std::int64_t n) { arguments->options.tokens = n; },
      "how many to write (200)");
  add_real(
      *app, "--temperature",
      [arguments](double x) {
        if (x < 0)
          throw UsageError("--temperature is " + nlohmann::json(x).dump() +
                           "; a number of at least 0 is expected");
        arguments->options.temperature = x;
      },
      "1 draws as the model expects, less is more cautious, 0 takes the likeliest (1)");
  add_integer(
      *app, "--top-k", {1}, [arguments](std::int64_t n) { arguments->options.top_k = n; },
      "draw among the K likeliest only (all)")
      ->type_name("K");
  add_integer(
      *app, "--seed", {0, 0xffffffff},
      [arguments](std::int64_t n) { arguments->options.seed = static_cast<std::uint64_t>(n); },
      "of the random numbers (1)");
  add_choice(
      *app, "--cache", {"f32", "bf16", "f16", "int8", "int4", "fp8"},
      [arguments](std::size_t i) { arguments->options.cache = static_cast<CacheFormat>(i); },
      "what keys and values are kept as while it writes (f32)");
  add_flag(*app, "--json", arguments->json, "print one JSON object instead");
  finish_help(*app, {"DIR [options]"}, kGenerateExamples);
  return {app, [app, arguments] { run_generate(*app, *arguments); }};
}

}  // namespace heed::cli
