// heed generate: text from a model that heed trained.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/error.hpp"
#include "heed/nn.hpp"
#include "heed/random.hpp"
#include "help.hpp"
#include "model/folder.hpp"
#include "model/sample.hpp"
#include "options.hpp"
#include "standard_streams.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kTokens = 200;
constexpr std::int64_t kMostTokens = 1'000'000;

constexpr const char* kGenerateDescription =
    "let a trained model write\n"
    "\n"
    "Continues the prompt token by token; each is drawn from what the model expects next. The same seed "
    "gives "
    "the same text.";

constexpr const char* kGenerateExamples =
    "Examples:\n"
    "  heed generate book --prompt 'The ' --tokens 500\n"
    "  heed generate book --temperature 0.7 --top-k 10 --seed 3\n"
    "  heed generate induction --prompt 'to be or not to be or' --tokens 3 \\\n"
    "      --temperature 0\n";

struct GenerateArguments {
  std::string folder;
  std::string prompt;
  std::int64_t tokens = kTokens;
  SamplingOptions sampling;
  std::int64_t seed = 1;
  bool json = false;
};

void run_generate(const CLI::App& app, const GenerateArguments& arguments) {
  require_option(app, "DIR", "the folder of a model that heed train made, or induction");
  if (arguments.json) require_standard_output();
  nn::set_blas_threads(1);
  const TrainedModel trained = read_model_folder(arguments.folder);
  const ModelVocabulary& vocabulary = trained.vocabulary;
  std::vector<std::string> prompt = vocabulary.tokens_of(arguments.prompt, "--prompt");
  if (prompt.empty() && vocabulary.is_symbols())
    throw UsageError("--prompt has no words; this model goes on with what is repeated in it");
  const Tensor ids = vocabulary.encode(prompt, "--prompt");
  Generator generator(static_cast<std::uint64_t>(arguments.seed));
  std::string text;
  const auto add = [&](std::int64_t id) {
    const std::string token = vocabulary.text_of(id, prompt);
    text += (vocabulary.is_symbols() && !text.empty() ? " " : "") + token;
    if (!arguments.json) std::cout << (vocabulary.is_symbols() ? " " + token : token) << std::flush;
  };
  if (!arguments.json)
    std::cout << (vocabulary.is_symbols() ? printable(arguments.prompt) : arguments.prompt) << std::flush;
  generate(trained.model, ids, arguments.tokens, arguments.sampling, generator, add);
  if (!arguments.json) {
    std::cout << '\n';
    return;
  }
  const nlohmann::ordered_json json = {
      {"prompt", arguments.prompt}, {"text", text}, {"tokens", arguments.tokens}, {"seed", arguments.seed}};
  std::cout << json.dump() << '\n';
}

}  // namespace

Command add_generate(CLI::App& heed) {
  CLI::App* app = add_command(heed, "generate", kGenerateDescription);
  const auto arguments = std::make_shared<GenerateArguments>();
  add_argument(*app, "DIR", arguments->folder,
               "the folder of a model; induction is the one that comes with heed");
  add_argument(*app, "--prompt", arguments->prompt,
               "what to go on from (nothing: the model's first character)")
      ->type_name("TEXT");
  add_integer(
      *app, "--tokens", {1, kMostTokens}, [arguments](std::int64_t n) { arguments->tokens = n; },
      "how many to write (200)");
  add_real(
      *app, "--temperature",
      [arguments](double x) {
        if (x < 0)
          throw UsageError("--temperature is " + nlohmann::json(x).dump() +
                           "; a number of at least 0 is expected");
        arguments->sampling.temperature = x;
      },
      "1 draws as the model expects, less is more cautious, 0 takes the likeliest (1)");
  add_integer(
      *app, "--top-k", {1}, [arguments](std::int64_t n) { arguments->sampling.top_k = n; },
      "draw among the K likeliest only (all)")
      ->type_name("K");
  add_integer(
      *app, "--seed", {0, 0xffffffff}, [arguments](std::int64_t n) { arguments->seed = n; },
      "of the random numbers (1)");
  add_flag(*app, "--json", arguments->json, "print one JSON object instead");
  finish_help(*app, {"DIR [options]"}, kGenerateExamples);
  return {app, [app, arguments] { run_generate(*app, *arguments); }};
}

}  // namespace heed::cli
