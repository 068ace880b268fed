#include "look/arguments.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "looked_at.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

// The options that ask a question. The first one given decides it.
struct Asking {
  const char* option;
  LookQuestion question;
};
constexpr Asking kAsking[] = {{"--ablate", LookQuestion::cause},    {"--patch", LookQuestion::cause},
                              {"--attribute", LookQuestion::cause}, {"--lens", LookQuestion::cause},
                              {"--rollout", LookQuestion::cause},   {"--row", LookQuestion::rows},
                              {"--tile", LookQuestion::tile},       {"--token", LookQuestion::rows},
                              {"--evict", LookQuestion::evict},     {"--sort", LookQuestion::heads},
                              {"--brief", LookQuestion::heads},     {"--find", LookQuestion::heads},
                              {"--needle", LookQuestion::heads},    {"--top", LookQuestion::heads},
                              {"--price", LookQuestion::heads},     {"--map", LookQuestion::heads},
                              {"--draw-mask", LookQuestion::heads}, {"--check", LookQuestion::heads},
                              {"--html", LookQuestion::heads},      {"--png", LookQuestion::heads},
                              {"--serve", LookQuestion::heads}};

// A question that allows these options only, and the end of the sentence that refuses others.
struct Alone {
  LookQuestion question;
  std::vector<std::string_view> options;
  const char* refusal;
};
const std::vector<Alone>& questions_alone() {
  static const std::vector<Alone> questions = {
      {LookQuestion::cause,
       {"--model", "--text", "--ids", "--chat", "--fast", "--row", "--top-k", "--json", "--threads"},
       ", which allows only --text, --ids, --row, --top-k, --json and --threads"},
      {LookQuestion::texts,
       {"--model", "--text", "--layer", "--head", "--sort", "--brief", "--json", "--csv", "--threads",
        "--find", "--top", "--by", "--fast"},
       "several texts, which allow only the summary of the heads over all texts"},
      {LookQuestion::run,
       {"--layer", "--json"},
       "a folder of captured calls, which allows only --layer and --json"}};
  return questions;
}

// An option that needs one of the others, or excludes all of them.
struct Rule {
  const char* option;
  enum Kind { needs, excludes } kind;
  std::vector<const char*> others;
  const char* why;               // empty: they are two questions
  const char* unless = nullptr;  // the rule does not hold beside this option
};
const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"--head", Rule::excludes, {"--html", "--serve"}, ", whose page holds all heads"},
      {"--batch", Rule::excludes, {"--html", "--serve"}, ", whose page holds all heads"},
      {"--layer", Rule::excludes, {"--html", "--serve"}, ", whose page holds all layers of DOC", "--model"},
      {"--find", Rule::excludes, {"--needle", "--sort"}, ""},
      {"--brief", Rule::excludes, {"--find", "--needle"}, ", which lists a line for each head"},
      {"--top-k",
       Rule::needs,
       {"--row", "--token", "--evict", "--save", "--html", "--serve", "--check"},
       " ROWS or another question about single keys, which it counts"},
      {"--no-received",
       Rule::excludes,
       {"--row", "--tile", "--token", "--evict"},
       ", which needs no such pass",
       "--save"},
      {"--needle", Rule::excludes, {"--sort"}, ""},
      {"--needle", Rule::needs, {"--model"}, " DIR, which would read the text"},
      {"--needle", Rule::excludes, {"--ids", "--protocol"}, ", whose tokens have no text"},
      {"--needle", Rule::excludes, {"--chat"}, "; it looks for words of a plain text"},
      {"--by", Rule::needs, {"--model"}, " DIR, which would read the text"},
      {"--csv", Rule::excludes, {"--needle"}, "; --json writes its answer"},
      {"--prompt", Rule::needs, {"--evict"}, " POLICY, which would start after the prompt"},
      {"--tile-at", Rule::needs, {"--html", "--serve"}, " FILE.html, whose page would show it"},
      {"--proof", Rule::needs, {"--html", "--serve"}, " FILE.html or --serve, whose page would show it"},
      {"--title", Rule::needs, {"--html", "--png", "--serve"}, " FILE.html, whose title it would be"},
      {"--picture", Rule::needs, {"--html", "--serve"}, " FILE.html, whose page would show it"},
      {"--picture", Rule::excludes, {"--png"}, ", which draws maps of tokens; a page draws the picture"},
      {"--picture", Rule::needs, {"--grid"}, " ROWSxCOLUMNS, its patches"},
      {"--grid", Rule::needs, {"--picture"}, " FILE, whose patches it counts"},
      {"--first-patch", Rule::needs, {"--picture"}, " FILE, whose patches it begins"},
      {"--beside", Rule::needs, {"--html"}, " FILE.html, whose page would subtract it"},
      {"--beside", Rule::excludes, {"--by"}, ", which weighs the keys of one document"},
      {"--beside",
       Rule::excludes,
       {"--serve", "--check", "--proof", "--tile-at"},
       ", which answers for one document"},
      {"--port", Rule::needs, {"--serve"}, ", which would listen on it"},
      {"--json", Rule::excludes, {"--serve"}, ", which answers in the browser"},
      {"--npy", Rule::needs, {"--tile", "--row"}, " R0:R1,C0:C1 or --row N"}};
  return all;
}

[[noreturn]] void refuse_second(const char* first, const char* second) {
  refuse_usage(first, " and ", second, " are both given; one question at a time is expected");
}

const Asking* asking_option(const CLI::App& app) {
  const auto* found = std::find_if(std::begin(kAsking), std::end(kAsking),
                                   [&](const Asking& one) { return given(app, one.option); });
  return found == std::end(kAsking) ? nullptr : found;
}

LookQuestion question_of(const Asking* asked, const LookSource& source) {
  if (asked != nullptr && asked->question == LookQuestion::cause) return LookQuestion::cause;
  if (source.is_run()) return LookQuestion::run;
  if (source.has_several_texts()) return LookQuestion::texts;
  return asked == nullptr ? LookQuestion::heads : asked->question;
}

// `asked` names a cause in the refusal.
void check_alone(const CLI::App& app, LookQuestion question, const Asking* asked) {
  for (const Alone& alone : questions_alone()) {
    if (alone.question != question) continue;
    const std::string cause = question == LookQuestion::cause ? asked->option : "";
    for (const GivenOption& option : given_options(app))
      if (!option.positional && option.name != cause &&
          std::ranges::find(alone.options, option.name) == alone.options.end())
        refuse_usage(option.name, " is given together with ", cause, alone.refusal);
  }
}

// Options of the summary may be given together. An option of another question asks alone. check_alone() has a
// better sentence for a cause.
void check_one_question(const CLI::App& app, const Asking& asked) {
  if (asked.question == LookQuestion::heads) return;
  for (const Asking* other = &asked + 1; other != std::end(kAsking); ++other) {
    if (asked.question == LookQuestion::cause && other->question != LookQuestion::cause) return;
    if (given(app, other->option)) refuse_second(asked.option, other->option);
  }
}

void check_rules(const CLI::App& app) {
  for (const Rule& rule : rules()) {
    if (!given(app, rule.option) || (rule.unless != nullptr && given(app, rule.unless))) continue;
    const auto other = std::ranges::find_if(rule.others, [&](const char* name) { return given(app, name); });
    if (rule.kind == Rule::needs && other == rule.others.end())
      refuse_usage(rule.option, " is given without ", rule.others.front(), rule.why);
    if (rule.kind != Rule::excludes || other == rule.others.end()) continue;
    if (*rule.why == '\0') refuse_second(rule.option, *other);
    refuse_usage(rule.option, " is given together with ", *other, rule.why);
  }
}

// The text that the model reads, or the name of its file, as given.
std::string text_argument(const LookSource& source) {
  return source.texts.empty() ? joined_words(source.document, source.words) : source.texts.front();
}

void check_cause(const CLI::App& app, const Asking& asked, const LookSource& source) {
  check_one_question(app, asked);
  if (source.model.empty()) refuse_usage(asked.option, " is given without --model DIR, which it examines");
  check_alone(app, LookQuestion::cause, &asked);
  if (static_cast<std::size_t>(!source.document.empty()) + source.texts.size() +
          static_cast<std::size_t>(!source.given.empty()) !=
      1)
    refuse_usage("WORDS, --ids or one --text FILE is expected for ", asked.option, " to read");
}

}  // namespace

void add_look_options(CLI::App& app, LookArguments& arguments) {
  add_source_options(app, arguments.source);
  begin_group(app, "Questions (without --row, --tile, --token or --evict: the summary of the heads)");
  add_row_option(app, arguments.rows);
  add_tile_option(app, arguments.tile);
  add_token_option(app, arguments.rows);
  add_evict_options(app, arguments.evict);
  add_choice_options(app, arguments.shared);
  add_heads_options(app, arguments.heads);
  add_flag(
      app, "--no-received", [&] { arguments.shared.received = false; },
      "skip the keys attended to most, which need a second pass");
  begin_group(app, "Causes (with --model; at the last token, or --row)");
  add_cause_options(app, arguments.cause);
  begin_group(app, "Results");
  add_result_options(app, arguments.shared);
  add_page_options(app, arguments.heads.page);
  add_kernel_options(app, arguments.source.call);
  add_rank_options(app, arguments.source.call.over_ranks);
}

void complete_look_arguments(const CLI::App& app, LookArguments& arguments) {
  const Asking* asked = asking_option(app);
  const bool asks_cause = asked != nullptr && asked->question == LookQuestion::cause;
  if (asks_cause) check_cause(app, *asked, arguments.source);
  if (given(app, "--patch"))
    arguments.cause.text = other_text("--patch", arguments.cause.text, text_argument(arguments.source));
  complete_source(app, arguments.source);
  arguments.question = question_of(asked, arguments.source);
  if (asks_cause) return;
  if (asked == nullptr && arguments.source.repeats) arguments.heads.find = HeadPattern::induction;
  check_alone(app, arguments.question, asked);
  if (asked != nullptr) check_one_question(app, *asked);
  check_rules(app);
  if (arguments.heads.sort == "received" && !arguments.shared.received)
    refuse_usage("--sort is 'received' while --no-received skips that column; one of the two is expected");
  check_page_options(arguments.heads.page);
  check_file_names(arguments.shared);
}

}  // namespace heed::cli
