// heed who: heads that make one word attend to another.

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command.hpp"
#include "given_tokens.hpp"
#include "heed/model/model.hpp"
#include "help.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "who/answer.hpp"

namespace heed::cli {
namespace {

constexpr const char* kWhoDescription =
    "find the heads that make one word attend to another\n"
    "\n"
    "Ranks the heads of a saved document, or of a model that reads a text, by the weight that the row of the "
    "first word gives the second. Draws what else that row attends to in the best head.";

constexpr const char* kWhoExamples =
    "Words: 'it' is every 'it' of the text, 'it:2' the second one,\n       '#7' the token at place 7 "
    "(counted from 0).\n"
    "\n"
    "Examples:\n"
    "  heed who it animal doc.safetensors\n"
    "  heed who or:2 not --model induction to be or not to be or\n"
    "  heed who cat:2 sat --model induction 'the cat sat a dog ran the cat' \\\n"
    "      --against 'the cat ran a dog sat the cat'\n";

struct WhoArguments {
  PairPrinting printing;
  std::string document;
  std::vector<std::string> words;
  std::string model;
  GivenTokens given;
  std::string against;
  std::string tokens;
  bool json = false;
};

void check_arguments(const CLI::App& app, const WhoArguments& arguments) {
  require_option(app, "ROW", "the word that attends");
  require_option(app, "KEY", "the word that is attended to");
  check_given_tokens(arguments.model, arguments.given, !arguments.document.empty());
  if (arguments.document.empty() && arguments.given.empty())
    refuse_usage(arguments.model.empty()
                     ? "no input is given; DOC.safetensors, or --model DIR and WORDS, is expected"
                 : arguments.printing.key.find(' ') != std::string::npos
                     ? "KEY is '" + arguments.printing.key +
                           "', which is a text; two words, ROW and KEY, are expected before it"
                     : "no text is given; WORDS are expected after --model DIR");
  if (arguments.json && given(app, "--heads"))
    refuse_usage("--heads is given together with --json, which has all heads");
  if (!arguments.model.empty() && !arguments.tokens.empty())
    refuse_usage("--tokens is given together with --model, which makes its own tokens");
  if (!arguments.model.empty()) return;
  check_document("who", arguments.document, arguments.words);
  if (given(app, "--against"))
    refuse_usage("--against is given without --model, which would read the other text");
}

// Replaces the document's tokens by the lines of a file, if given.
Document with_tokens(Document document, const std::string& path) {
  AttentionReport& report = document.report;
  if (path.empty()) return document;
  if (report.queries != report.keys)
    refuse_usage("--tokens is given, but DOC has ", counted(report.queries, "row"), " and ",
                 counted(report.keys, "key"), "; equal numbers are expected");
  report.query_tokens = report.key_tokens = read_tokens("--tokens", path, report.queries, "rows");
  return document;
}

void run_who(const CLI::App& app, const WhoArguments& arguments) {
  check_arguments(app, arguments);
  if (arguments.json) require_standard_output();
  const PairPrinting& printing = arguments.printing;
  PairAnswer answer;
  std::optional<PairAnswer> against;
  if (arguments.model.empty()) {
    answer = answer_pair(with_tokens(open_looked_at(arguments.document), arguments.tokens), printing.row,
                         printing.key);
  } else {
    const heed::Model model = read_model(arguments.model, arguments.given.fast);
    const std::string words = joined_words(arguments.document, arguments.words);
    const std::string other = other_text("--against", arguments.against, words), text = typed_text(words);
    const ModelTokens tokens = arguments.given.empty() ? read_tokens_of(model, text, "WORDS")
                                                       : read_given_tokens(model, arguments.given);
    // A forgotten KEY takes the text's first word.
    answer = answer_pair(read_with_model(model, tokens), printing.row, printing.key, "",
                         "; two words, ROW and KEY, are expected before it");
    answer.text = text;
    if (given(app, "--against")) {
      against = answer_pair(read_with_model(model, read_tokens_of(model, other, "--against")), printing.row,
                            printing.key, " for --against");
      against->text = other;
    }
  }
  if (answer.heads.empty()) detail::refuse(arguments.document, " has no heads; at least one is expected");
  const PairAnswer* other = against ? &*against : nullptr;
  if (arguments.json) {
    std::cout
        << pair_json(answer, other, printing).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
        << '\n';
    return;
  }
  print_pair(standard_output(), answer, other, printing);
}

}  // namespace

Command add_who(CLI::App& heed) {
  CLI::App* app = add_command(heed, "who", kWhoDescription);
  const auto arguments = std::make_shared<WhoArguments>();
  add_argument(*app, "ROW", arguments->printing.row, "the word that attends");
  add_argument(*app, "KEY", arguments->printing.key, "the word that is attended to");
  add_subject_arguments(*app, arguments->document, arguments->words);
  begin_group(*app, "Model");
  add_model_option(*app, arguments->model);
  add_given_tokens(*app, arguments->given);
  add_text(
      *app, "--against", "TEXT", arguments->against,
      "ask the same question about this text and show what changes, for example with one word exchanged; - "
      "reads standard input");
  begin_group(*app, "Words");
  add_text(*app, "--tokens", "FILE", arguments->tokens,
           "a text file with one token per line, for a DOC without tokens, such as a captured folder");
  begin_group(*app, "Results");
  add_integer(*app, "--heads", {1}, arguments->printing.heads, "list N heads, best first (default 10)");
  add_integer(*app, "--top-k", {1, 1024}, arguments->printing.top_k,
              "list K keys of a row that is too long to draw whole, and of each row with --json (default 12)")
      ->type_name("K");
  add_flag(*app, "--json", arguments->json, "print one JSON object instead, with all heads");
  finish_help(*app, {"ROW KEY DOC [options]", "ROW KEY --model DIR WORDS [options]"}, kWhoExamples);
  return {app, [app, arguments] { run_who(*app, *arguments); }};
}

}  // namespace heed::cli
