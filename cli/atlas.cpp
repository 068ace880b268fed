// heed atlas: a poster of all heads of a model.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "atlas/study.hpp"
#include "command.hpp"
#include "given_tokens.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "heed/model/model.hpp"
#include "help.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "output_files.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr std::size_t kMaxChanged = 24;  // cards in a comparison of two models or texts
constexpr int kTextColumns = 110;        // of a text in the title

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
  const std::string text = joined_words(arguments.document, arguments.words);
  if (!text.empty()) texts.push_back({"WORDS", text});
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
      throw UsageError("no input is given; DOC.safetensors, or --model DIR and WORDS, is expected");
    check_document("atlas", arguments.document, arguments.words);
    if (given(app, "--text")) throw UsageError("--text is given without --model, which would read it");
    inputs.push_back({"DOC", arguments.document});
    if (!arguments.difference.empty()) inputs.push_back({"--difference", arguments.difference});
  } else {
    if (given(app, "--batch"))
      throw UsageError("--batch is given together with --model, which reads one text at a time");
    if (arguments.document.empty() && arguments.text_files.empty() && arguments.given.empty())
      throw UsageError("no text is given; WORDS or --text FILE is expected after --model DIR");
  }
  check_outputs(inputs, {{"--out", arguments.out}});
}

std::string name_of_source(const std::string& source) {
  const std::filesystem::path path(source);
  return token_text((path.has_filename() ? path : path.parent_path()).filename().string());
}

// The text as typed, its file's name, its tokens as a sentence, or the numbers of rows and keys.
std::string words_of(const AtlasArguments& arguments, const AttentionReport& report) {
  const std::string typed = arguments.model.empty() ? "" : joined_words(arguments.document, arguments.words);
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
    throw UsageError("--difference has " + about_heads(other) + "; " + about_heads(report) +
                     ", as in the other model, are expected");
  std::vector<HeadStudy> before = study_heads(others, arguments.batch);
  std::vector<HeadStudy> after = study_heads(texts, arguments.batch);
  std::vector<ScoreChange> changes;
  for (std::size_t head = 0; head < after.size(); ++head)
    changes.push_back(change_between(before[head], after[head]));
  std::vector<std::size_t> order(after.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return changes[a].size > changes[b].size; });
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

void run_atlas(const CLI::App& app, const AtlasArguments& arguments) {
  check_arguments(app, arguments);
  const std::vector<Document> texts =
      read_all(arguments, arguments.model.empty() ? arguments.document : arguments.model);
  const AtlasPage page =
      arguments.difference.empty() ? plain_page(arguments, texts) : difference_page(arguments, texts);
  if (page.cards.empty()) throw UsageError("DOC has no heads; at least one is expected");
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
  add_model_option(
      *app, arguments->model,
      "run this model on WORDS: a folder from Hugging Face or heed train, a GGUF file, or induction, "
      "which comes with heed");
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
