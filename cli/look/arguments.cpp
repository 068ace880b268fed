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
               "a file that heed look --save or heed explain --save wrote, in place of query, key and value; "
               "or a folder "
               "that heed.transformers.capture(to=…) wrote");
  add_argument(app, "WORDS", arguments.words, "with --model: the words to read, DOC being the first of them");
  add_text(
      app, "--model", "DIR", arguments.model,
      "look at a model while it reads WORDS: a folder of Hugging Face's or of heed train, a GGUF file, or "
      "induction or stories, which come with heed")
      ->group("Model");
  add_texts_option(
      app, "--text", "FILE", [&](const std::vector<std::string>& files) { arguments.texts = files; },
      "a text for it to read; of several texts the summary is that of all rows of all of them")
      ->group("Model");
  add_choice(
      app, "--by", {"attention", "norm"},
      [&](std::size_t i) { arguments.by = i == 0 ? WeighedBy::attention : WeighedBy::norm; },
      "what weights are: those of attention, or each row's shares of what it moves, weight times size of the "
      "value behind the output projection")
      ->group("Model");
  add_text_option(
      app, "--layer", "N", [&](const std::string& text) { arguments.layer = text; },
      "the heads of this layer only, counted from 0: of a model, a document that has layers, or a folder "
      "that "
      "capture wrote")
      ->group("Model");
  add_call_options(app, arguments.call);
  const char* group = "Words";
  add_text(app, "--tokens", "FILE", arguments.tokens, "a line a token, one for each query")->group(group);
  add_text(app, "--key-tokens", "FILE", arguments.key_tokens,
           "the same for each key, where keys are not the queries' tokens")
      ->group(group);
}

void add_questions(CLI::App& app, LookArguments& arguments) {
  const char* group = "Questions (without --row, --tile, --token, --evict: the summary of the heads)";
  const auto add_index = [&](const char* name, std::optional<std::int64_t>& index, const char* help) {
    add_integer(
        app, name, {0}, [&index](std::int64_t n) { index = n; }, help)
        ->group(group);
  };
  add_text_option(
      app, "--row", "ROWS", [&](const std::string& text) { arguments.row = text; },
      "what these queries attend to: 5, 5:10 (5 to 9), 5,7, or a word, of which or:2 is the second one")
      ->group(group);
  add_text_option(
      app, "--tile", "R0:R1,C0:C1", [&](const std::string& text) { arguments.tile = tile_in(text); },
      "a piece of the weights: rows R0 to R1 - 1, keys C0 to C1 - 1")
      ->group(group);
  add_text_option(
      app, "--token", "WORD", [&](const std::string& text) { arguments.word = text; },
      "what every query that is this word attends to")
      ->group(group);
  add_texts_option(
      app, "--evict", "POLICY",
      [&](const std::vector<std::string>& policies) {
        for (const std::string& policy : policies) arguments.evict.push_back(eviction_in(policy));
      },
      "which keys a KV cache with this policy would have thrown away, and what share of its weights each row "
      "lost: streaming:SINKS+WINDOW, h2o:HEAVY+RECENT, snapkv:VOTED+WINDOW; may be given several times")
      ->group(group);
  add_integer(
      app, "--prompt", {0}, [&](std::int64_t n) { arguments.prompt = n; },
      "with --evict: the first N rows are a prompt, read whole before anything is thrown away (0; snapkv: "
      "half "
      "of the rows)")
      ->group(group);
  add_text_option(
      app, "--head", "HEADS",
      [&](const std::string& text) {
        for (const std::string& name : split(text, ',')) arguments.head_names.push_back(name);
      },
      "of these heads only: 3, 1.3 (layer 1, head 3), or several with commas between; a number alone counts "
      "through all layers, or within --layer")
      ->group(group);
  add_index("--batch", arguments.batch, "of this batch entry only, counted from 0");
  add_integer(
      app, "--top-k", {1, 1024}, [&](std::int64_t n) { arguments.top_k = n; },
      "name K keys, or with --evict K rows (5)")
      ->group(group)
      ->type_name("K");
  add_choice(
      app, "--sort", sort_columns(), [&](std::size_t i) { arguments.sort = sort_columns()[i]; },
      "heads of the summary in this order, the largest first")
      ->group(group)
      ->type_name("COLUMN");
  add_choice(
      app, "--find", pattern_columns(), [&](std::size_t i) { arguments.find = static_cast<HeadPattern>(i); },
      "the heads that earn this name or come nearest, the best first")
      ->group(group)
      ->type_name("NAME");
  add_text(
      app, "--needle", "WORDS", arguments.needle,
      "with --model: the heads that find these words of the text again, by the weight that the last token "
      "gives them")
      ->group(group);
  add_integer(
      app, "--top", {1}, [&](std::int64_t n) { arguments.top = n; },
      "so many heads of the summary only (all; with --find or --needle 10)")
      ->group(group);
  add_flag(app, "--brief", arguments.brief, "one line a head, the best fit of its name first")->group(group);
  add_text_option(
      app, "--map", "RxC",
      [&](const std::string& text) {
        const auto [rows, columns] = integer_pair("--map", text, 'x', 1, "ROWSxCOLUMNS, such as 64x64,");
        arguments.map = {rows, columns};
      },
      "also draw the weights of each head, summed into R x C bins")
      ->group(group);
  add_flag(app, "--draw-mask", arguments.draw_mask,
           "also draw what the masks allow, apart from the weights, and how much of the square is computed")
      ->group(group);
  add_flag(app, "--price", arguments.price,
           "say what the summary cost, which is said by itself from a millisecond on")
      ->group(group);
  add_flag(
      app, "--no-received", [&] { arguments.received = false; },
      "leave out which keys are attended to most: it takes a second pass")
      ->group(group);
}

void add_results(CLI::App& app, LookArguments& arguments) {
  const char* group = "Results";
  add_flag(app, "--json", arguments.json, "print one JSON object instead")->group(group);
  add_text(app, "--csv", "FILE", arguments.csv, "write the answer as a table, too")->group(group);
  add_text(app, "--npy", "FILE.npy", arguments.npy, "write the weights of --tile or --row, too")
      ->group(group);
  add_text(app, "--save", "DOC.safetensors", arguments.save,
           "keep query, key, lse, the summaries and tokens: later questions need only that file")
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
      "the page holds single weights around here (256 x 256), too; may be given several times")
      ->group(group);
  add_optional_text(
      app, "--check", "[N]",
      [&](const std::string& text) {
        const auto rows = text.empty() ? kRowsToCheck : whole_number(text).value_or(0);
        if (rows < 1) throw UsageError("--check is '" + text + "'; a whole number of at least 1 is expected");
        arguments.check = rows;
      },
      "recompute N rows (16) of every head plainly, print the largest deviations; exit 1 on a mismatch, "
      "or where nothing could be compared")
      ->group(group);
}

void add_serving(CLI::App& app, LookArguments& arguments) {
  const char* group = "Results";
  add_flag(app, "--proof", arguments.proof,
           "the page says how far the numbers are from those computed plainly; checks as --check does")
      ->group(group);
  add_flag(
      app, "--serve", arguments.serve,
      "show the page in a browser on this machine, until Ctrl-C: every row and cell is computed as it is "
      "asked for")
      ->group(group);
  add_integer(
      app, "--port", {0, 65535}, [&](std::int64_t n) { arguments.port = n; },
      "with --serve: on this port (0: any that is free)")
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
        throw UsageError(std::string(option) + " is given beside " + page + ", whose page holds all heads");
  for (const char* page : {"--html", "--serve"})
    if (arguments.layer && arguments.model.empty() && given(app, page))
      throw UsageError(std::string("--layer is given beside ") + page +
                       ", whose page holds all layers of DOC");
  refuse_beside(app, "--find", "--needle");
  for (const char* ranking : {"--find", "--needle"}) refuse_beside(app, ranking, "--sort");
  for (const char* option : {"--needle", "--by"})
    if (given(app, option) && arguments.model.empty())
      throw UsageError(std::string(option) + " is given without --model DIR, which would read the text");
  if (given(app, "--needle") && given(app, "--csv"))
    throw UsageError("--csv is given beside --needle, whose answer --json has");
  if (given(app, "--prompt") && !given(app, "--evict"))
    throw UsageError("--prompt is given without --evict POLICY, which would begin after it");
  const bool page = given(app, "--html") || given(app, "--serve");
  if (given(app, "--tile-at") && !page)
    throw UsageError("--tile-at is given without --html FILE.html, whose page would show it");
  if (given(app, "--proof") && !page)
    throw UsageError("--proof is given without --html FILE.html or --serve, whose page would show it");
  if (given(app, "--port") && !given(app, "--serve"))
    throw UsageError("--port is given without --serve, which would listen on it");
  if (given(app, "--json") && given(app, "--serve"))
    throw UsageError("--json is given beside --serve, which answers in the browser");
  if (arguments.serve && !can_serve())
    throw UsageError("--serve is given, but this build of heed has no HTTP: it was made without cpp-httplib");
  if (given(app, "--npy") && !given(app, "--tile") && !given(app, "--row"))
    throw UsageError("--npy is given without --tile R0:R1,C0:C1 or --row N");
  if (given(app, "--sort") && given(app, "--no-received") && arguments.sort == "received")
    throw UsageError("--sort is 'received' while --no-received leaves that out; one of the two is expected");
}

// Rows, keys and maps differ between texts, so only questions about heads are allowed.
void check_texts(const CLI::App& app) {
  constexpr std::array kAllowed = {"--model", "--text", "--layer", "--head",   "--sort",
                                   "--brief", "--json", "--csv",   "--kernel", "--threads",
                                   "--find",  "--top",  "--by"};
  for (const GivenOption& option : given_options(app))
    if (!option.positional && std::find(kAllowed.begin(), kAllowed.end(), option.name) == kAllowed.end())
      throw UsageError(option.name +
                       " is given beside several texts, of which only the summary of the heads, "
                       "over all of them, can be asked");
}

// With --model, the words are the only input.
void complete_model_arguments(const CLI::App& app, LookArguments& arguments) {
  for (const GivenOption& option : given_options(app))
    if (belongs_to_call(option.group))
      throw UsageError(option.name + " is given beside --model, which holds the call already");
  if (arguments.texts.size() + (arguments.document.empty() ? 0 : 1) > 1) check_texts(app);
  if (arguments.document.empty() && arguments.texts.empty())
    throw UsageError("there is nothing to read: WORDS or --text FILE behind --model DIR is expected");
  arguments.text = std::exchange(arguments.document, {});
  for (const std::string& word : arguments.words) arguments.text += " " + word;
}

// For a folder of captured calls, only --layer and --json apply.
void complete_run_arguments(const CLI::App& app) {
  for (const GivenOption& option : given_options(app))
    if (!option.positional && option.name != "--layer" && option.name != "--json")
      throw UsageError(option.name +
                       " is given beside a folder of captured calls, of which --layer and --json alone "
                       "can be asked");
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
      throw UsageError(
          "there is nothing to look at: DOC.safetensors, or --query, --key and --value, is expected");
    require_call_options(app);
  } else {
    for (const GivenOption& option : given_options(app))
      if (belongs_to_call(option.group))
        throw UsageError(option.name + " is given beside DOC, which holds the call already");
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
