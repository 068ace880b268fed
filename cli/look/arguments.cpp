#include "look/arguments.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "command.hpp"
#include "look/run.hpp"
#include "look/sort.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "picture/canvas.hpp"
#include "rank_options.hpp"
#include "serve/http.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

std::pair<std::int64_t, std::int64_t> range_in(const std::string& whole, const std::string& part) {
  const std::string expected = "R0:R1,C0:C1 (rows R0 to R1 - 1, keys C0 to C1 - 1)";
  const std::vector<std::string> ends = split(part, ':');
  const auto begin = whole_number(ends[0]);
  const auto end = ends.size() == 2 ? whole_number(ends[1]) : std::nullopt;
  if (!begin || !end || *begin < 0 || *end <= *begin)
    throw UsageError("--tile is '" + whole + "'; " + expected + " is expected");
  return {*begin, *end};
}

TileRange tile_in(const std::string& text) {
  std::vector<std::string> parts = split(text, ',');
  parts.resize(2);  // anything but two parts makes the first part invalid
  if (split(text, ',').size() != 2) parts[0].clear();
  const auto [row_begin, row_end] = range_in(text, parts[0]);
  const auto [key_begin, key_end] = range_in(text, parts[1]);
  return {row_begin, row_end, key_begin, key_end};
}

// "h2o:32+64".
EvictionChoice eviction_in(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  const std::vector<std::string> rows = split(parts.back(), '+');
  const auto kind = eviction_kind_named(parts[0]);
  const std::int64_t chosen = whole_number(rows[0]).value_or(-1);
  const std::int64_t recent = whole_number(rows.back()).value_or(-1);
  if (parts.size() != 2 || rows.size() != 2 || !kind || chosen < 0 || recent < 1)
    throw UsageError("--evict is '" + text +
                     "'; streaming:SINKS+WINDOW, h2o:HEAVY+RECENT or snapkv:VOTED+WINDOW, such as "
                     "streaming:4+64, is expected");
  return {text, {.kind = *kind, .chosen = chosen, .recent = recent}};
}

void add_sources(CLI::App& app, LookArguments& arguments) {
  add_argument(app, "DOC", arguments.document,
               "a file written by heed look --save or heed explain --save, instead of query, key and value; "
               "or a folder written by heed.transformers.capture(to=…)");
  add_argument(app, "WORDS", arguments.words,
               "with --model: the text to read; its first word takes the place of DOC");
  add_text(app, "--model", "DIR", arguments.model,
           "run this model on WORDS: a folder from Hugging Face or heed train, a GGUF file, or induction or "
           "stories, which come with heed")
      ->group("Model");
  add_texts_option(
      app, "--text", "FILE", [&](const std::vector<std::string>& files) { arguments.texts = files; },
      "a text file to read; may be repeated: the summary then covers all rows of all texts")
      ->group("Model");
  add_choice(
      app, "--by", {"attention", "norm"},
      [&](std::size_t i) { arguments.by = i == 0 ? WeighedBy::attention : WeighedBy::norm; },
      "what a weight means: the attention weight (default), or, with norm, its share of what the row moves: "
      "weight times norm of the value after the output projection")
      ->group("Model");
  add_text_option(
      app, "--layer", "N", [&](const std::string& text) { arguments.layer = text; },
      "show only the heads of this layer, counted from 0: of a model, of a document with layers, or of a "
      "captured folder")
      ->group("Model");
  add_call_options(app, arguments.call);
  const char* group = "Words";
  add_text(app, "--tokens", "FILE", arguments.tokens,
           "a text file with one token per line, one for each query")
      ->group(group);
  add_text(app, "--key-tokens", "FILE", arguments.key_tokens,
           "the same for the keys, if they are not the queries' tokens")
      ->group(group);
}

void add_questions(CLI::App& app, LookArguments& arguments) {
  const char* group = "Questions (without --row, --tile, --token or --evict: the summary of the heads)";
  const auto add_index = [&](const char* name, std::optional<std::int64_t>& index, const char* help) {
    add_integer(
        app, name, {0}, [&index](std::int64_t n) { index = n; }, help)
        ->group(group);
  };
  add_text_option(
      app, "--row", "ROWS", [&](const std::string& text) { arguments.row = text; },
      "show what these queries attend to: 5, 5:10 (5 to 9), 5,7, or a word; or:2 is the second 'or'")
      ->group(group);
  add_text_option(
      app, "--tile", "R0:R1,C0:C1", [&](const std::string& text) { arguments.tile = tile_in(text); },
      "show a tile of the weights: rows R0 to R1 - 1, keys C0 to C1 - 1")
      ->group(group);
  add_text_option(
      app, "--token", "WORD", [&](const std::string& text) { arguments.word = text; },
      "show what each occurrence of this word attends to")
      ->group(group);
  add_texts_option(
      app, "--evict", "POLICY",
      [&](const std::vector<std::string>& policies) {
        for (const std::string& policy : policies) arguments.evict.push_back(eviction_in(policy));
      },
      "show which keys a KV cache with this policy would have evicted, and what share of its weights each "
      "row lost: streaming:SINKS+WINDOW, h2o:HEAVY+RECENT, snapkv:VOTED+WINDOW; may be repeated")
      ->group(group);
  add_integer(
      app, "--prompt", {0}, [&](std::int64_t n) { arguments.prompt = n; },
      "with --evict: the first N rows are a prompt, read whole before any key is evicted (default 0; snapkv: "
      "half of the rows)")
      ->group(group);
  add_text_option(
      app, "--head", "HEADS",
      [&](const std::string& text) {
        for (const std::string& name : split(text, ',')) arguments.head_names.push_back(name);
      },
      "show only these heads: 3, 1.3 (layer 1, head 3), or several separated by commas; a single number "
      "counts through all layers, or within --layer")
      ->group(group);
  add_index("--batch", arguments.batch, "show only this batch entry, counted from 0");
  add_integer(
      app, "--top-k", {1, 1024}, [&](std::int64_t n) { arguments.top_k = n; },
      "list K keys, or K rows with --evict (default 5)")
      ->group(group)
      ->type_name("K");
  add_choice(
      app, "--sort", sort_columns(), [&](std::size_t i) { arguments.sort = sort_columns()[i]; },
      "sort the heads of the summary by this column, largest first")
      ->group(group)
      ->type_name("COLUMN");
  add_choice(
      app, "--find", pattern_columns(), [&](std::size_t i) { arguments.find = static_cast<HeadPattern>(i); },
      "list the heads that have this name or come nearest, best first")
      ->group(group)
      ->type_name("NAME");
  add_text(app, "--needle", "WORDS", arguments.needle,
           "with --model: list the heads that find these words of the text, by the weight that the last "
           "token gives them")
      ->group(group);
  add_integer(
      app, "--top", {1}, [&](std::int64_t n) { arguments.top = n; },
      "list only N heads of the summary (default: all; 10 with --find or --needle)")
      ->group(group);
  add_flag(app, "--brief", arguments.brief, "print one line per head, the best fit to its name first")
      ->group(group);
  add_text_option(
      app, "--map", "RxC",
      [&](const std::string& text) {
        const auto [rows, columns] = integer_pair("--map", text, 'x', 1, "ROWSxCOLUMNS, such as 64x64,");
        arguments.map = {rows, columns};
      },
      "also draw the weights of each head, summed into R x C bins")
      ->group(group);
  add_flag(app, "--draw-mask", arguments.draw_mask,
           "also draw what the masks allow, and print how much of the square is computed")
      ->group(group);
  add_flag(app, "--price", arguments.price, "print what the summary cost (always printed from 1 ms on)")
      ->group(group);
  add_flag(
      app, "--no-received", [&] { arguments.received = false; },
      "skip the keys attended to most, which need a second pass")
      ->group(group);
}

void add_results(CLI::App& app, LookArguments& arguments) {
  const char* group = "Results";
  add_flag(app, "--json", arguments.json, "print one JSON object instead")->group(group);
  add_text(app, "--csv", "FILE", arguments.csv, "also write the answer as a table")->group(group);
  add_text(app, "--npy", "FILE.npy", arguments.npy, "also write the weights of --tile or --row")
      ->group(group);
  add_text(app, "--save", "DOC.safetensors", arguments.save,
           "save query, key, lse, the summaries and tokens: later questions need only this file")
      ->group(group);
  add_text(app, "--html", "FILE.html", arguments.html,
           "draw the heads on a page for a browser: maps, curves, the words")
      ->group(group);
  add_text(app, "--png", "FILE", arguments.png, "draw the maps of the heads as a picture: .png, .svg or .pdf")
      ->group(group);
  add_texts_option(
      app, "--tile-at", "ROW,KEY",
      [&](const std::vector<std::string>& places) {
        for (const std::string& place : places) {
          const auto [row, key] = integer_pair("--tile-at", place, ',', 0, "ROW,KEY, counted from 0,");
          arguments.tiles_around.push_back({row, key});
        }
      },
      "also store the single weights around this place (256 x 256) in the page; may be repeated")
      ->group(group);
  add_optional_text(
      app, "--check", "[N]",
      [&](const std::string& text) {
        const auto rows = text.empty() ? kRowsToCheck : whole_number(text).value_or(0);
        if (rows < 1) throw UsageError("--check is '" + text + "'; a whole number of at least 1 is expected");
        arguments.check = rows;
      },
      "recompute N rows (default 16) of every head in f64 and print the largest deviations; exit 1 on a "
      "mismatch, or if nothing could be compared")
      ->group(group);
}

void add_serving(CLI::App& app, LookArguments& arguments) {
  const char* group = "Results";
  add_flag(app, "--proof", arguments.proof,
           "check as --check does, and show the largest deviations on the page")
      ->group(group);
  add_flag(app, "--serve", arguments.serve,
           "serve the page to a browser on this machine until Ctrl-C; rows and cells are computed on request")
      ->group(group);
  add_integer(
      app, "--port", {0, 65535}, [&](std::int64_t n) { arguments.port = n; },
      "with --serve: listen on this port (0: any free port)")
      ->group(group);
}

void refuse_beside(const CLI::App& app, const char* option, const char* other) {
  if (given(app, option) && given(app, other))
    throw UsageError(std::string(option) + " and " + other +
                     " are both given; one question at a time is expected");
}

void check_questions(const CLI::App& app, const LookArguments& arguments) {
  constexpr std::array kQuestions = {"--row", "--tile", "--token", "--evict"};
  for (std::size_t i = 0; i < kQuestions.size(); ++i) {
    for (std::size_t j = i + 1; j < kQuestions.size(); ++j) refuse_beside(app, kQuestions[i], kQuestions[j]);
    refuse_beside(app, kQuestions[i], "--sort");
    refuse_beside(app, kQuestions[i], "--brief");
    for (const char* ranking : {"--find", "--needle", "--top"}) refuse_beside(app, kQuestions[i], ranking);
    refuse_beside(app, kQuestions[i], "--price");
    refuse_beside(app, kQuestions[i], "--map");
    refuse_beside(app, kQuestions[i], "--draw-mask");
    refuse_beside(app, kQuestions[i], "--check");
    refuse_beside(app, kQuestions[i], "--html");
    refuse_beside(app, kQuestions[i], "--png");
    refuse_beside(app, kQuestions[i], "--serve");
  }
  for (const char* option : {"--head", "--batch"})
    for (const char* page : {"--html", "--serve"})
      if (given(app, option) && given(app, page))
        throw UsageError(std::string(option) + " is given together with " + page +
                         ", whose page holds all heads");
  for (const char* page : {"--html", "--serve"})
    if (arguments.layer && arguments.model.empty() && given(app, page))
      throw UsageError(std::string("--layer is given together with ") + page +
                       ", whose page holds all layers of DOC");
  refuse_beside(app, "--find", "--needle");
  for (const char* ranking : {"--find", "--needle"}) refuse_beside(app, ranking, "--sort");
  for (const char* option : {"--needle", "--by"})
    if (given(app, option) && arguments.model.empty())
      throw UsageError(std::string(option) + " is given without --model DIR, which would read the text");
  if (given(app, "--needle") && given(app, "--csv"))
    throw UsageError("--csv is given together with --needle; --json writes its answer");
  if (given(app, "--prompt") && !given(app, "--evict"))
    throw UsageError("--prompt is given without --evict POLICY, which would start after the prompt");
  const bool page = given(app, "--html") || given(app, "--serve");
  if (given(app, "--tile-at") && !page)
    throw UsageError("--tile-at is given without --html FILE.html, whose page would show it");
  if (given(app, "--proof") && !page)
    throw UsageError("--proof is given without --html FILE.html or --serve, whose page would show it");
  if (given(app, "--port") && !given(app, "--serve"))
    throw UsageError("--port is given without --serve, which would listen on it");
  if (given(app, "--json") && given(app, "--serve"))
    throw UsageError("--json is given together with --serve, which answers in the browser");
  if (arguments.serve && !can_serve())
    throw UsageError("--serve is given, but this heed was built without cpp-httplib and cannot serve");
  if (given(app, "--npy") && !given(app, "--tile") && !given(app, "--row"))
    throw UsageError("--npy is given without --tile R0:R1,C0:C1 or --row N");
  if (given(app, "--sort") && given(app, "--no-received") && arguments.sort == "received")
    throw UsageError(
        "--sort is 'received' while --no-received skips that column; one of the two is expected");
}

// Rows, keys and maps differ between texts, so only questions about heads are allowed.
void check_texts(const CLI::App& app) {
  constexpr std::array kAllowed = {"--model", "--text", "--layer", "--head",   "--sort",
                                   "--brief", "--json", "--csv",   "--kernel", "--threads",
                                   "--find",  "--top",  "--by"};
  for (const GivenOption& option : given_options(app))
    if (!option.positional && std::find(kAllowed.begin(), kAllowed.end(), option.name) == kAllowed.end())
      throw UsageError(
          option.name +
          " is given together with several texts, which allow only the summary of the heads over all texts");
}

// With --model, the words are the only input.
void complete_model_arguments(const CLI::App& app, LookArguments& arguments) {
  for (const GivenOption& option : given_options(app))
    if (belongs_to_call(option.group))
      throw UsageError(option.name + " is given together with --model, which contains the call");
  if (arguments.texts.size() + (arguments.document.empty() ? 0 : 1) > 1) check_texts(app);
  if (arguments.document.empty() && arguments.texts.empty())
    throw UsageError("no text is given; WORDS or --text FILE is expected after --model DIR");
  arguments.text = std::exchange(arguments.document, {});
  for (const std::string& word : arguments.words) arguments.text += " " + word;
}

// For a folder of captured calls, only --layer and --json apply.
void complete_run_arguments(const CLI::App& app) {
  for (const GivenOption& option : given_options(app))
    if (!option.positional && option.name != "--layer" && option.name != "--json")
      throw UsageError(
          option.name +
          " is given together with a folder of captured calls, which allows only --layer and --json");
}

void complete_source(const CLI::App& app, const LookArguments& arguments) {
  check_document_name(arguments.document);
  if (!arguments.words.empty())
    throw UsageError("'" + arguments.words[0] + "' is one argument too many (see heed look --help)");
  if (!arguments.texts.empty()) throw UsageError("--text is given without --model, which would read it");
  if (is_folder(arguments.document)) return complete_run_arguments(app);
  if (arguments.document.empty()) {
    if (arguments.layer) throw UsageError("--layer is given without --model DIR or DOC, which have layers");
    if (!given(app, "--query") && !given(app, "--key") && !given(app, "--value"))
      throw UsageError("no input is given; DOC.safetensors, or --query, --key and --value, is expected");
    require_call_options(app);
  } else {
    for (const GivenOption& option : given_options(app))
      if (belongs_to_call(option.group))
        throw UsageError(option.name + " is given together with DOC, which contains the call");
    if (!arguments.document.ends_with(".safetensors"))
      throw UsageError("DOC is '" + arguments.document +
                       "'; a file whose name ends in .safetensors is expected");
  }
}

}  // namespace

bool belongs_to_call(const std::string& group) {
  return group.starts_with("Inputs") || group == "Scores" || group == kRankGroup ||
         group.starts_with("Masks") || group == "Words";
}

void add_look_options(CLI::App& app, LookArguments& arguments) {
  add_sources(app, arguments);
  add_questions(app, arguments);
  add_cause_options(app, arguments);
  add_results(app, arguments);
  add_serving(app, arguments);
  add_kernel_options(app, arguments.call);
  add_rank_options(app, arguments.call.over_ranks);
}

void complete_look_arguments(const CLI::App& app, LookArguments& arguments) {
  if (arguments.cause) return complete_cause_arguments(app, arguments);
  if (arguments.model.empty())
    complete_source(app, arguments);
  else
    complete_model_arguments(app, arguments);
  check_questions(app, arguments);
  if (!arguments.png.empty()) (void)picture_format("--png", arguments.png);
  if (!arguments.npy.empty() && !arguments.npy.ends_with(".npy"))
    throw UsageError("--npy is '" + arguments.npy + "'; a file whose name ends in .npy is expected");
  if (!arguments.save.empty() && !arguments.save.ends_with(".safetensors"))
    throw UsageError("--save is '" + arguments.save +
                     "'; a file whose name ends in .safetensors is expected");
}

}  // namespace heed::cli
