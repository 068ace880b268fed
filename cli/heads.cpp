// heed heads: what the heads of a model do, over many texts or in none.
#include <memory>
#include <optional>
#include <vector>

#include "command.hpp"
#include "heads/questions.hpp"
#include "help.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "output_files.hpp"
#include "terminal.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr const char* kHeadsDescription =
    "say what the heads of a model do: over many texts, or by its weights\n"
    "\n"
    "Shows a head's best examples in many texts (--lines), which heads feed which later ones (--compose), or "
    "which heads need all keys and which only the first and the last (--keep).";

constexpr const char* kHeadsExamples =
    "Examples:\n"
    "  heed heads --model induction --compose\n"
    "  heed heads --model model.gguf --lines sentences.txt --head 13.8\n"
    "  heed heads --model model.gguf --keep 4+64 --text book.txt --save heads.json\n";

void check_arguments(const CLI::App& app, const HeadsArguments& arguments) {
  require_option(app, "--model", "the model whose heads are asked about");
  const int questions = static_cast<int>(arguments.compose) + static_cast<int>(!arguments.lines.empty()) +
                        static_cast<int>(!arguments.keep.empty());
  if (questions != 1)
    refuse_usage(questions == 0 ? "no question is given" : "several questions are given",
                 "; one of --compose, --lines FILE and --keep SINKS+WINDOW is expected");
  const bool has_words = !arguments.text.words.empty() || !arguments.text.given.empty();
  if (arguments.keep.empty()) {
    for (const char* option : {"--text", "--lost", "--save"})
      if (given(app, option)) refuse_usage(option, " is given without --keep, which takes it");
    if (has_words) refuse_usage("a text is given without --keep, which would read it");
  } else {
    if (has_words && !arguments.text_file.empty())
      refuse_usage(arguments.text.given.empty() ? "a text" : arguments.text.given.arguments(),
                   " is given together with --text; one text is expected");
    if (!has_words && arguments.text_file.empty())
      refuse_usage("no text is given; WORDS or --text FILE is expected with --keep");
    if (has_words) check_model_text(app, arguments.text);
    if (!arguments.save.empty() && !arguments.save.ends_with(".json") && !arguments.save.ends_with(".tsv"))
      refuse_usage("--save is '", arguments.save, "'; a file whose name ends in .json or .tsv is expected");
    if (arguments.lost < 0 || arguments.lost > 1)
      refuse_usage("--lost is ", arguments.lost, "; 0 to 1 is expected");
  }
  require_beside(app, "--head", "--lines", "FILE");
  if (given(app, "--top") && !arguments.lines.empty() && arguments.head.empty() && !arguments.json)
    refuse_usage("--top is given without --head L.H or --json; the table has the best example of every head");
  std::vector<NamedFile> inputs = files_of(arguments.text.given);
  inputs.push_back({"--lines", arguments.lines});
  inputs.push_back({"--text", arguments.text_file});
  check_outputs(inputs, {{"--save", arguments.save}});
}

void run_heads(const CLI::App& app, const HeadsArguments& arguments) {
  check_arguments(app, arguments);
  std::optional<ModelHead> head;
  if (!arguments.head.empty()) head = head_named("--head", arguments.head);
  std::optional<EvictionPolicy> policy;
  if (!arguments.keep.empty()) policy = policy_in(arguments.keep);
  if (arguments.json) require_standard_output();
  const heed::Model model = read_model(arguments.text.model, arguments.text.given.fast);
  if (arguments.compose) return answer_composition(model, arguments);
  if (policy) return answer_kept(model, arguments, *policy);
  if (head) check_head("--head", *head, model.info());
  answer_examples(model, arguments, head);
}

}  // namespace

Command add_heads(CLI::App& heed) {
  CLI::App* app = add_command(heed, "heads", kHeadsDescription);
  const auto arguments = std::make_shared<HeadsArguments>();
  add_model_text(*app, arguments->text);
  begin_group(*app, "Question");
  add_flag(*app, "--compose", arguments->compose,
           "list the pairs of heads whose weights fit best: what one writes, a later one reads");
  add_text(*app, "--lines", "FILE", arguments->lines,
           "a file with one text a line: show where heads move most in them");
  add_text(*app, "--head", "L.H", arguments->head, "with --lines: only this head, with more examples");
  add_text(*app, "--keep", "S+W", arguments->keep,
           "say what each head loses if it sees only the first S and the last W keys, such as 4+64");
  add_text(*app, "--text", "FILE", arguments->text_file, "with --keep: a file to read in place of WORDS");
  add_real(*app, "--lost", arguments->lost,
           "with --keep: a head that loses a larger share of its weights is called retrieval (default 0.05)")
      .type_name("X");
  begin_group(*app, "Results");
  add_integer(*app, "--top", {1, 1000}, arguments->top, "list N pairs, examples or heads (default 10)");
  add_text(*app, "--save", "FILE", arguments->save,
           "with --keep: write all heads to a .json file, or the scores of key heads to a .tsv file");
  add_flag(*app, "--json", arguments->json, "print one JSON object instead");
  finish_help(*app,
              {"--model DIR --compose [options]", "--model DIR --lines FILE [options]",
               "--model DIR --keep S+W WORDS [options]"},
              kHeadsExamples);
  return {app, [app, arguments] { run_heads(*app, *arguments); }};
}

}  // namespace heed::cli
