// heed circuit: the heads and reads through which a predicted token comes about.
#include "heed/model/circuit.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "circuit/traced.hpp"
#include "command.hpp"
#include "given_tokens.hpp"
#include "heed/io/tensors.hpp"
#include "help.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "output_files.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr const char* kCircuitDescription =
    "trace a predicted token back to what the heads read\n"
    "\n"
    "Splits the token's logit into what the parts of the model wrote, follows the largest shares backwards "
    "through the heads, and checks each read by patching: the reader alone runs without it.";

constexpr const char* kCircuitExamples =
    "Examples:\n"
    "  heed circuit --model induction to be or not to be or\n"
    "  heed circuit --model model.gguf --than ' London' 'The capital of France is'\n"
    "  heed circuit --model induction to be or not to be or --html be.html\n"
    "  heed circuit --model induction to be or not to be or --through 1.0\n"
    "  heed circuit --model induction to be or not to be or --dot | dot -Tsvg >be.svg\n";

struct CircuitArguments {
  ModelText text;
  std::string row, token, than;
  CircuitOptions options;
  std::string through, html, title;
  std::int64_t top = 10;
  bool json = false, dot = false;
};

void check_arguments(const CLI::App& app, const CircuitArguments& arguments) {
  check_model_text(app, arguments.text);
  if (arguments.json && arguments.dot) refuse_usage("--json is given together with --dot; one is expected");
  if (arguments.json || arguments.dot) require_standard_output();
  if (arguments.through.empty()) {
    if (given(app, "--top")) refuse_usage("--top is given without --through, which takes it");
  } else {
    for (const char* option : {"--dot", "--html", "--edges", "--no-patch"})
      if (given(app, option))
        refuse_usage(option, " is given together with --through, which traces one head");
  }
  require_page_ending(arguments.html);
  require_beside(app, "--title", "--html", "FILE.html, whose title it would be");
  if (!arguments.html.empty()) check_outputs(files_of(arguments.text.given), {{"--html", arguments.html}});
}

// The row and the tokens that are asked about.
CircuitOptions options_in(const Traced& traced, const CircuitArguments& arguments) {
  CircuitOptions options = arguments.options;
  if (!arguments.row.empty()) {
    const std::vector<std::int64_t> rows = word_places("--row", arguments.row, traced.tokens.shown,
                                                       static_cast<std::int64_t>(traced.tokens.ids.size()));
    if (rows.size() > 1)
      refuse_usage("--row is '", arguments.row, "', which is ", counted(rows.size(), "token"),
                   "; one is expected (such as ", arguments.row, ":2 or #", rows.back(), ")");
    options.row = rows.front();
  }
  if (!traced.model.info().predicts || (arguments.token.empty() && arguments.than.empty())) return options;
  const std::vector<std::int64_t> all = predicted_tokens(traced.model, traced.tokens, {.row = options.row});
  const auto named = [&](const char* option, const std::string& name) {
    return token_named(traced.model, traced.tokens, all, option, name);
  };
  options.token = arguments.token.empty() ? all.front() : named("--token", arguments.token);
  if (arguments.than.empty()) return options;
  options.than = named("--than", arguments.than);
  if (*options.than == *options.token)
    refuse_usage("--than is '", arguments.than, "', the token that is traced; another one is expected");
  return options;
}

void answer_paths(Traced& traced, const CircuitArguments& arguments, const CircuitOptions& options,
                  const ModelHead& head) {
  const HeadPaths paths =
      paths_of_head(traced.model, traced.ids(), head, {options.row, options.token, options.than});
  traced.circuit = {paths.row, paths.token, options.than, paths.logit};
  if (arguments.json) return print_paths_json(traced, head, paths);
  print_paths(standard_output(), traced, head, paths, arguments.top);
}

void run_circuit(const CLI::App& app, const CircuitArguments& arguments) {
  check_arguments(app, arguments);
  std::optional<ModelHead> head;
  if (!arguments.through.empty()) head = head_named("--through", arguments.through);
  const heed::Model model = read_model(arguments.text.model, arguments.text.given.fast);
  if (head) check_head("--through", *head, model.info());
  Traced traced{model, read_model_text(model, arguments.text), {}};
  const CircuitOptions options = options_in(traced, arguments);
  if (head) return answer_paths(traced, arguments, options, *head);
  traced.circuit = find_circuit(model, traced.ids(), options);
  if (!arguments.html.empty()) io::write_text(arguments.html, circuit_page(traced, arguments.title));
  if (arguments.json) return print_circuit_json(traced);
  if (arguments.dot) return print_circuit_dot(traced);
  print_circuit(standard_output(), traced);
}

}  // namespace

Command add_circuit(CLI::App& heed) {
  CLI::App* app = add_command(heed, "circuit", kCircuitDescription);
  const auto arguments = std::make_shared<CircuitArguments>();
  add_model_text(*app, arguments->text);
  begin_group(*app, "Question");
  add_text(*app, "--row", "WORD", arguments->row, "trace what follows this word (default: the last)");
  add_text(*app, "--token", "TOKEN", arguments->token, "trace this token (default: the likeliest)");
  add_text(*app, "--than", "TOKEN", arguments->than,
           "trace the difference from this other token's logit: why one and not the other");
  add_text(*app, "--through", "L.H", arguments->through,
           "show what passes through this head alone: from each key, and on through each later head");
  begin_group(*app, "Results");
  add_integer(*app, "--edges", {1, 1000}, arguments->options.edges, "show at most N reads (default 30)");
  add_flag(
      *app, "--no-patch", [arguments] { arguments->options.patch = false; },
      "do not run the model again for each read");
  add_integer(*app, "--top", {1, 1000}, arguments->top,
              "with --through: list N keys and N heads (default 10)");
  add_text(*app, "--html", "FILE", arguments->html, "also draw the circuit over the words, as a page");
  add_text(*app, "--title", "TEXT", arguments->title,
           "with --html: the page's title (default: what is traced)");
  add_flag(*app, "--json", arguments->json, "print one JSON object instead");
  add_flag(*app, "--dot", arguments->dot, "print a graph for Graphviz instead");
  finish_help(*app, {"--model DIR WORDS [options]"}, kCircuitExamples);
  return {app, [app, arguments] { run_circuit(*app, *arguments); }};
}

}  // namespace heed::cli
