// heed look: attention patterns at any length.
#include <functional>
#include <memory>
#include <vector>

#include "command.hpp"
#include "help.hpp"
#include "look/arguments.hpp"
#include "options.hpp"
#include "output_files.hpp"
#include "rank_options.hpp"
#include "terminal.hpp"

namespace heed::cli {
namespace {

constexpr const char* kLookDescription =
    "show what attended to what, at any length\n"
    "\n"
    "Analyses a call of attention (tensors as for heed attend) and prints what its heads do: exact summaries "
    "of every row, computed without the matrix of weights. --save writes them to one file that answers later "
    "questions at once.";

constexpr const char* kLookExamples =
    "Examples:\n"
    "  heed look --query q.npy --key k.npy --value v.npy --causal \\\n"
    "      --tokens words.txt --save doc.safetensors\n"
    "  heed look doc.safetensors --sort sink\n"
    "  heed look doc.safetensors --row 3 --head 1,2 --top-k 3\n"
    "  heed look doc.safetensors --row 5:10\n"
    "  heed look doc.safetensors --tile 0:4,0:4 --npy tile.npy\n"
    "  heed look doc.safetensors --evict streaming:4+64 --evict h2o:32+32\n"
    "  heed look doc.safetensors --html doc.html\n"
    "  heed look doc.safetensors --serve\n"
    "  heed look --model induction to be or not to be or\n"
    "  heed look --model induction --text one.txt --text two.txt --brief\n"
    "  heed look --model induction 'to be or not to be or' --head 1.3 --row or\n"
    "  heed look --model induction 'to be or not to be or' --ablate 1.2,1.3\n"
    "  heed look --model induction 'to be or not to be or' --attribute not\n"
    "  heed look --model induction 'to be or not to be or' --lens\n"
    "  heed look --model all-MiniLM-L6-v2 --text long.txt --find induction --top 5\n"
    "  heed look --model gpt2 --text long.txt --needle 'the pass phrase is'\n"
    "  heed look --model gpt2 'The cat sat on the mat.' --by norm\n";

const HelpOverview kOverview = {
    "Ask a model:\n"
    "  heed look --model induction to be or not to be or\n"
    "  heed look --model induction 'to be or not to be or' --head 1.3 --row or\n"
    "  heed look --model DIR --text long.txt --find induction --top 5\n"
    "  heed look --model DIR 'a text' --lens       (--attribute, --ablate, --patch)\n"
    "Ask a file:\n"
    "  heed look doc.safetensors --row 3 --head 1,2\n"
    "  heed look doc.safetensors --html doc.html   (--png, --serve, --csv, --json)\n"
    "Ask tensors:\n"
    "  heed look --query q.npy --key k.npy --value v.npy --causal \\\n"
    "      --tokens words.txt --save doc.safetensors\n",
    {"--row", "--token", "--head", "--find", "--sort", "--brief", "--html", "--json"}};

void look(const CLI::App& app, const LookArguments& arguments) {
  const LookSource& source = arguments.source;
  const SharedOptions& shared = arguments.shared;
  std::vector<NamedFile> inputs = input_files(source);
  const PageOptions& page = arguments.heads.page;
  inputs.push_back({"--beside", page.beside});
  check_outputs(inputs, {{"--csv", shared.csv},
                         {"--npy", shared.npy},
                         {"--save", shared.save},
                         {"--html", page.html},
                         {"--png", page.png}});
  if (shared.json) require_standard_output();
  const auto subject = [&] { return Subject(read_document(source), source, shared); };
  switch (arguments.question) {
    case LookQuestion::heads:
      return answer_heads(source, shared, arguments.heads, question_command(app, source, shared.save));
    case LookQuestion::texts:
      return answer_texts(source, shared, arguments.heads);
    case LookQuestion::rows:
      return answer_rows(subject(), arguments.rows);
    case LookQuestion::tile:
      return answer_tile(subject(), arguments.tile);
    case LookQuestion::evict:
      return answer_evict(subject(), arguments.evict);
    case LookQuestion::cause:
      return answer_cause(source, shared, arguments.cause, arguments.rows.row);
    case LookQuestion::run:
      return answer_run(source, shared.json);
  }
}

}  // namespace

Command add_look_with(CLI::App& heed, LookRunner run) {
  CLI::App* app = add_command(heed, "look", kLookDescription);
  const auto arguments = std::make_shared<LookArguments>();
  add_look_options(*app, *arguments);
  finish_help(*app,
              {"--query TENSOR --key TENSOR --value TENSOR [options]", "DOC [options]",
               "--model DIR (WORDS | --text FILE) [options]"},
              kLookExamples, kOverview);
  return {app, [app, run = std::move(run), arguments] {
            complete_look_arguments(*app, *arguments);
            run(*app, *arguments, [&] { look(*app, *arguments); });
          }};
}

Command add_look(CLI::App& heed) {
  return add_look_with(heed, [](const CLI::App& app, LookArguments&, const std::function<void()>& work) {
    refuse_rank_options_alone(app);
    work();
  });
}

}  // namespace heed::cli
