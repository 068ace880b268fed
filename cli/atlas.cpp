// heed atlas: a poster of all heads of a model.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "draw/lettering.hpp"
#include "given_tokens.hpp"
#include "heed/inspect/document.hpp"
#include "heed/io/tensors.hpp"
#include "heed/model/model.hpp"
#include "help.hpp"
#include "look/subject.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "output_files.hpp"
#include "picture/atlas.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr std::size_t kMaxChanged = 24;  // cards in a comparison of two models or texts
constexpr int kTextColumns = 110;        // of a text in the title

struct HeadStudy {
  std::vector<double> scores;  ///< one per HeadPattern: the mean over the texts that have one, else NaN
  AtlasHead head;              ///< its map and example come from the text with the best example
};

// The score that changes most and the size of its change. The text reads "induction +0.62". Both are empty
// or 0 if no score changes.
struct ScoreChange {
  double size = 0;
  std::string text;
};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMaxCells = 64;  // per side of a map
constexpr int kWord = 16;               // columns of a word in an example

// A row and its most attended key. `value` measures how typical the row is of the head's name.
struct Example {
  bool telling = false;  ///< the key is not a default one, such as the first key or the row's own
  double value = -1;
  std::int64_t row = 0, key = 0;
  double weight = 0;
};

// The per-row score whose mean is the score of this name; nullptr for names without one.
const Tensor* rows_behind(const AttentionReport& report, std::string_view name) {
  using Entry = std::pair<std::string_view, const Tensor*>;
  const std::array<Entry, 6> known = {
      Entry{"previous-token", &report.previous}, Entry{"induction", &report.induction},
      Entry{"first-token sink", &report.first},  Entry{"self", &report.self},
      Entry{"next-token", &report.next},         Entry{"uniform", &report.entropy}};
  for (const auto& [known_name, tensor] : known)
    if (known_name == name && tensor->rank() == 3) return tensor;
  return nullptr;
}

// The row with the highest per-row score. For names without one, the row with the largest weight.
Example best_example(const Document& document, std::int64_t batch, std::int64_t head,
                     const std::vector<HeadName>& names) {
  const AttentionReport& report = document.report;
  const std::string name = names.empty() ? "" : name_of(names.front());
  const std::int64_t offset = names.empty() ? 0 : names.front().offset;
  const Tensor* rows = rows_behind(report, name);
  Example best;
  for (std::int64_t i = 0; i < report.queries; ++i) {
    const std::int64_t first = report.key_begin.at<std::int64_t>(batch, i);
    if (report.key_end.at<std::int64_t>(batch, i) - first < 2) continue;
    const double value = number_at(rows != nullptr ? *rows : report.max_weight, {batch, head, i});
    if (!(value > best.value) && best.telling) continue;
    const AttendedRow row = attended_row(document, batch, head, i, 1);
    if (row.top.empty() || std::isnan(value)) continue;
    const std::int64_t key = row.top[0].key;
    const std::int64_t place = report.position.at<std::int64_t>(batch, i);
    const bool telling = offset != 0 ? key == place + offset
                                     : (key != first || name == name_of(HeadPattern::first_token_sink)) &&
                                           (key != place || name == "self");
    if (telling != best.telling ? telling : value > best.value)
      best = {telling, value, i, key, row.top[0].weight};
  }
  return best;
}

// Isolated, so that words written from right to left keep their sides of the arrow.
std::string word_at(const std::vector<std::string>& tokens, std::int64_t place) {
  if (tokens.empty()) return std::to_string(place);
  return isolated(shortened(token_text(tokens[static_cast<std::size_t>(place)]), kWord));
}

std::string example_text(const AttentionReport& report, const Example& example) {
  if (example.value < 0) return "";
  return word_at(report.query_tokens, example.row) + " → " + word_at(report.key_tokens, example.key) + " " +
         short_share(example.weight);
}

void check_alike(const std::vector<Document>& texts, std::int64_t batch) {
  for (const Document& text : texts) {
    check_index("--batch", batch, text.report.batch, "batch entry", "batch entries");
    if (text.report.heads != texts.front().report.heads)
      refuse_usage("the texts come from different models, with ", text.report.heads, " and ",
                   texts.front().report.heads);
  }
}

HeadStudy study_of(const std::vector<Document>& texts, std::int64_t batch, std::int64_t head) {
  std::vector<std::vector<HeadSummary>> summaries;
  for (const Document& text : texts) summaries.push_back({summary_of(text.report, batch, head)});
  const HeadSummary summary = merge_summaries(summaries).front();
  const std::vector<HeadName> names = summary.names();
  HeadStudy study;
  study.head.entropy = summary.entropy;
  study.head.name = summary.name();
  study.head.score = names.empty() ? kNaN : names.front().score;
  for (const PatternScore& one : summary.patterns)
    study.scores.push_back(std::isnan(one.score) ? one.rest_score : one.score);
  const Document* from = &texts.front();
  Example best;
  for (const Document& text : texts)
    if (const Example one = best_example(text, batch, head, names); one.value > best.value) {
      best = one;
      from = &text;
    }
  study.head.example = example_text(from->report, best);
  study.head.map = head_map(*from, batch, head, kMaxCells);
  return study;
}

// Studies all heads of batch entry `batch` over the texts. Throws UsageError if a text has no such batch
// entry or if the texts differ in their number of heads.
std::vector<HeadStudy> study_heads(const std::vector<Document>& texts, std::int64_t batch) {
  check_alike(texts, batch);
  std::vector<HeadStudy> studies;
  for (std::int64_t head = 0; head < texts.front().report.heads; ++head)
    studies.push_back(study_of(texts, batch, head));
  return studies;
}

ScoreChange change_between(const HeadStudy& from, const HeadStudy& to) {
  ScoreChange most;
  for (std::size_t p = 0; p < from.scores.size(); ++p) {
    const double change = to.scores[p] - from.scores[p];
    if (!(std::abs(change) > most.size)) continue;
    most = {std::abs(change),
            std::string(name_of(static_cast<HeadPattern>(p))) + formatted(" %+.2f", change)};
  }
  return most;
}

constexpr const char* kAtlasDescription =
    "draw all heads of a model as one poster: PNG, SVG or PDF\n"
    "\n"
    "The A3 page shows layers from top to bottom and heads from left to right. Each head has its map, its "
    "name and score, its entropy, and the row that supports the name most.";

constexpr const char* kAtlasExamples =
    "Examples:\n"
    "  heed atlas --model induction 'the cat sat on the mat and the cat sat' \\\n"
    "      --out atlas.svg\n"
    "  heed atlas doc.safetensors --out atlas.pdf\n"
    "  heed atlas --model after --difference before 'to be or not to be or' \\\n"
    "      --out change.png\n";

struct AtlasArguments {
  std::string document;
  std::vector<std::string> words;
  std::string model;
  std::vector<std::string> text_files;
  GivenTokens given;
  std::string difference;
  std::string out;
  std::string title;
  std::int64_t batch = 0;
};

// A text, and the option or argument that named it.
struct NamedText {
  std::string source;
  std::string text;
};

std::vector<NamedText> given_texts(const AtlasArguments& arguments) {
  std::vector<NamedText> texts;
  if (!arguments.document.empty()) texts.push_back({"WORDS", arguments.document});
  for (const std::string& path : arguments.text_files) texts.push_back({name_of_text(path), file_text(path)});
  return texts;
}

std::vector<Document> read_all(const AtlasArguments& arguments, const std::string& source) {
  std::vector<Document> documents;
  if (arguments.model.empty()) {
    documents.push_back(open_looked_at(source));
    return documents;
  }
  const heed::Model model = read_model(source, arguments.given.fast);
  for (const NamedText& text : given_texts(arguments))
    documents.push_back(read_with_model(model, read_tokens_of(model, text.text, text.source)));
  if (!arguments.given.empty())
    documents.push_back(read_with_model(model, read_given_tokens(model, arguments.given)));
  return documents;
}

void check_arguments(const CLI::App& app, const AtlasArguments& arguments) {
  require_option(app, "--out", "the picture to write: .png, .svg or .pdf");
  (void)picture_format("--out", arguments.out);
  std::vector<NamedFile> inputs;
  for (const std::string& path : arguments.text_files) inputs.push_back({"--text", path});
  for (NamedFile& file : files_of(arguments.given)) inputs.push_back(std::move(file));
  check_given_tokens(arguments.model, arguments.given, !arguments.document.empty());
  if (arguments.model.empty()) {
    if (arguments.document.empty())
      refuse_usage("no input is given; DOC.safetensors, or --model DIR and WORDS, is expected");
    check_document("atlas", arguments.document, arguments.words);
    if (given(app, "--text")) refuse_usage("--text is given without --model, which would read it");
    inputs.push_back({"DOC", arguments.document});
    inputs.push_back({"--difference", arguments.difference});
  } else {
    if (given(app, "--batch"))
      refuse_usage("--batch is given together with --model, which reads one text at a time");
    if (arguments.document.empty() && arguments.text_files.empty() && arguments.given.empty())
      refuse_usage("no text is given; WORDS or --text FILE is expected after --model DIR");
  }
  check_outputs(inputs, {{"--out", arguments.out}});
}

std::string name_of_source(const std::string& source) {
  const std::filesystem::path path(source);
  return token_text((path.has_filename() ? path : path.parent_path()).filename().string());
}

// The text as typed, its file's name, its tokens as a sentence, or the numbers of rows and keys.
std::string words_of(const AtlasArguments& arguments, const AttentionReport& report) {
  const std::string typed = arguments.model.empty() ? "" : arguments.document;
  if (typed.empty() && !arguments.text_files.empty())
    return name_of_source(name_of_text(arguments.text_files.front()));
  const std::string text =
      typed.empty() ? text_of(report.query_tokens, kTextColumns) : quoted_text(typed, kTextColumns);
  return text.empty() ? counted(report.queries, "row") + ", " + counted(report.keys, "key") : text;
}

std::string about_heads(const AttentionReport& report) {
  std::string text = counted(report.heads, "head");
  if (!report.layers.empty()) text = counted(std::ssize(report.layers), "layer") + ", " + text;
  return text;
}

void add_layers(const AttentionReport& report, AtlasPage& page) {
  std::int64_t head = 0;
  for (const LayerHeads& layer : report.layers) {
    std::string name = name_of_head(report, head);
    name.resize(name.rfind(", "));
    page.layers.push_back(printable(name));
    page.in_layers.push_back(layer.heads);
    head += layer.heads;
  }
}

AtlasPage page_of(const AtlasArguments& arguments, const std::vector<Document>& texts) {
  const AttentionReport& report = texts.front().report;
  AtlasPage page;
  page.title = arguments.title.empty()
                   ? name_of_source(arguments.model.empty() ? arguments.document : arguments.model)
                   : printable(arguments.title);
  page.about.push_back(about_heads(report) + "; " +
                       (texts.size() == 1 ? words_of(arguments, report)
                                          : "means over " + counted(std::ssize(texts), "text") +
                                                ", maps of the text with the best example"));
  return page;
}

AtlasPage plain_page(const AtlasArguments& arguments, const std::vector<Document>& texts) {
  AtlasPage page = page_of(arguments, texts);
  const AttentionReport& report = texts.front().report;
  std::vector<HeadStudy> studies = study_heads(texts, arguments.batch);
  for (std::size_t head = 0; head < studies.size(); ++head)
    page.cards.push_back({printable(head_label(report, static_cast<std::int64_t>(head))),
                          std::move(studies[head].head), std::nullopt, ""});
  add_layers(report, page);
  return page;
}

AtlasPage difference_page(const AtlasArguments& arguments, const std::vector<Document>& texts) {
  AtlasPage page = page_of(arguments, texts);
  const std::vector<Document> others = read_all(arguments, arguments.difference);
  const AttentionReport& report = texts.front().report;
  const AttentionReport& other = others.front().report;
  if (report.heads != other.heads || report.layers.size() != other.layers.size())
    refuse_usage("--difference has ", about_heads(other), "; ", about_heads(report),
                 ", as in the other model, are expected");
  std::vector<HeadStudy> before = study_heads(others, arguments.batch);
  std::vector<HeadStudy> after = study_heads(texts, arguments.batch);
  std::vector<ScoreChange> changes;
  for (std::size_t head = 0; head < after.size(); ++head)
    changes.push_back(change_between(before[head], after[head]));
  std::vector<std::size_t> order(after.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t head) { return changes[head].size; });
  order.resize(std::min(order.size(), kMaxChanged));
  for (const std::size_t head : order)
    page.cards.push_back({printable(head_label(report, static_cast<std::int64_t>(head))),
                          std::move(before[head].head), std::move(after[head].head), changes[head].text});
  if (arguments.title.empty()) page.title = name_of_source(arguments.difference) + "  ⇒  " + page.title;
  page.about.push_back("the " + counted(std::ssize(order), "head") + " of " + std::to_string(after.size()) +
                       " whose scores changed most, the largest change first");
  return page;
}

// "poster.png" for the first page, "poster-2.png" for the second.
std::string page_file(const std::string& out, std::size_t page) {
  if (page == 0) return out;
  const std::size_t point = out.rfind('.');
  return out.substr(0, point) + "-" + std::to_string(page + 1) + out.substr(point);
}

void run_atlas(const CLI::App& app, AtlasArguments& arguments) {
  check_arguments(app, arguments);
  if (!arguments.model.empty())  // the text is read once
    arguments.document = typed_text(joined_words(arguments.document, arguments.words));
  const std::vector<Document> texts =
      read_all(arguments, arguments.model.empty() ? arguments.document : arguments.model);
  const AtlasPage page =
      arguments.difference.empty() ? plain_page(arguments, texts) : difference_page(arguments, texts);
  if (page.cards.empty()) refuse_usage("DOC has no heads; at least one is expected");
  const std::vector<std::string> files = draw_atlas(page, picture_format("--out", arguments.out));
  for (std::size_t n = 0; n < files.size(); ++n) io::write_text(page_file(arguments.out, n), files[n]);
  std::cout << "Drew " << counted(std::ssize(page.cards), "head") << " on "
            << (files.size() == 1 ? "A3, " : std::to_string(files.size()) + " pages of A3, ")
            << printable(arguments.out);
  if (files.size() > 1) std::cout << " to " << printable(page_file(arguments.out, files.size() - 1));
  std::cout << ".\n";
}

}  // namespace

Command add_atlas(CLI::App& heed) {
  CLI::App* app = add_command(heed, "atlas", kAtlasDescription);
  const auto arguments = std::make_shared<AtlasArguments>();
  add_subject_arguments(*app, arguments->document, arguments->words);
  begin_group(*app, "Model");
  add_model_option(*app, arguments->model);
  add_texts_option(
      *app, "--text", "FILE", arguments->text_files,
      "a text file to read; may be repeated: scores and entropies are then means over all texts");
  add_given_tokens(*app, arguments->given);
  begin_group(*app, "Questions");
  add_text(*app, "--difference", "OTHER", arguments->difference,
           "compare with OTHER, an earlier model or document: the heads whose scores changed most come "
           "first, each with OTHER's map on its left");
  add_integer(*app, "--batch", {0}, arguments->batch,
              "draw this batch entry of DOC, counted from 0 (default 0)");
  begin_group(*app, "Results");
  add_text(*app, "--out", "FILE", arguments->out, "the picture to write: .png, .svg or .pdf");
  add_text(*app, "--title", "TEXT", arguments->title,
           "title of the poster (default: the file's or model's name)");
  finish_help(*app, {"DOC --out FILE [options]", "--model DIR WORDS --out FILE [options]"}, kAtlasExamples);
  return {app, [app, arguments] { run_atlas(*app, *arguments); }};
}

}  // namespace heed::cli
