#include "look/heads.hpp"

#include <algorithm>
#include <iostream>
#include <utility>

#include "command.hpp"
#include "heed/io/tensors.hpp"
#include "heed/model/model.hpp"
#include "look/heads_order.hpp"
#include "look/heads_print.hpp"
#include "look/map.hpp"
#include "look/print.hpp"
#include "look/tables.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

// Whether the answer needs the queries and keys of all layers, and not only the table of heads.
bool needs_call(const HeadsQuestion& question) {
  return question.page.is_drawn() || question.page.is_checked() || question.map.rows > 0 ||
         question.draw_mask || question.price;
}

// The table of heads, computed while the model runs. Nothing else of a layer is kept.
TextLook table_of(const Model& model, const ModelTokens& tokens, const LookSource& source,
                  const SharedOptions& shared, const std::vector<TokenSpan>& needle) {
  ProgressBar bar;
  TextLookOptions options;
  options.report.received = shared.received;
  options.report.progress = [&](std::string_view what, double share) { bar.show(what, share); };
  options.by = source.by;
  options.layer = layer_of(model, source);
  options.keep_rows = false;
  options.needle = needle;
  options.threads = source.call.options.threads;
  return look_at_text(model, tokens, options);
}

Document document_of_table(TextLook table) {
  Document document;
  document.report = std::move(table.report);
  document.has_report = true;
  return document;
}

Needle needle_in(const SourceText& text, const std::string& words) {
  Needle needle;
  if (words.empty()) return needle;
  needle.spans = spans_of(text.text, text.tokens, words);
  if (needle.spans.empty())
    refuse_usage("--needle is '", words, "', which is not in the text; words of the text are expected");
  return needle;
}

void check_heads(const Subject& subject, const HeadsQuestion& question) {
  const Document& document = subject.document;
  if (question.map.rows > 0 && (axis_size(document, 2) == 0 || key_count(document) == 0))
    refuse_usage("--map is given for a call without queries or keys");
  check_page(document, question.page);
  for (const auto& [option, is_given] :
       {std::pair("--price", question.price), std::pair("--top-k", subject.shared.top_k.has_value())})
    if (is_given && document.has_report)
      refuse_usage(option, " is given together with DOC, whose summary is already computed");
  if (question.sort == "received" && document.has_report && document.report.received.rank() != 3)
    refuse_usage("--sort is 'received', which DOC lacks because it was saved with --no-received");
}

Json heads_json(const Document& document, const std::vector<HeadSummary>& heads, const Needle& needle) {
  Json list = Json::array();
  for (const HeadSummary& head : heads) {
    Json json = {{"batch", head.batch},
                 {"head", head.head},
                 {"label", head_label(document.report, head.head)},
                 {"name", head.name()},
                 {"rows", head.rows},
                 {"nan_rows", head.nan_rows},
                 {"entropy", head.entropy},
                 {"max_weight", head.max_weight},
                 {"distance", head.distance},
                 {"sink", head.first},
                 {"self", head.self},
                 {"previous", head.previous},
                 {"next", head.next},
                 {"induction", head.induction}};
    add_names(head, json);
    if (document.report.received.rank() == 3) {
      json["received"] = Json::array();
      for (std::size_t k = 0; k < head.most_received.size(); ++k)
        json["received"].push_back(key_json(document, head.most_received[k], head.most_received_weight[k]));
    }
    if (!needle.retrieval.empty()) {
      const Retrieval& found = needle.by(head);
      json["needle"] = {{"last", found.last}, {"mean", found.mean}, {"rows", found.rows}};
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json received_json(const Document& document, const std::vector<ReceivedKey>& keys) {
  Json list = Json::array();
  for (const ReceivedKey& one : keys)
    list.push_back(
        {{"key", one.key}, {"token", token_at(document.report.key_tokens, one.key)}, {"weight", one.weight}});
  return list;
}

Json cost_json(const std::vector<CostLine>& cost) {
  Json list = Json::array();
  for (const CostLine& line : cost)
    list.push_back({{"what", line.what},
                    {"seconds", line.made ? Json(line.seconds) : Json()},
                    {"times", line.made ? Json(line.times) : Json()},
                    {"bytes", line.bytes},
                    {"estimated", line.estimated}});
  return list;
}

std::string heads_csv(const Document& document, const std::vector<HeadSummary>& heads) {
  std::vector<std::string> columns = {"batch",      "head",      "label",          "name",       "rows",
                                      "nan_rows",   "choices",   "entropy",        "max_weight", "distance",
                                      "sink",       "self",      "previous",       "next",       "induction",
                                      "name_score", "runner_up", "runner_up_score"};
  for (const char* score : {"score_", "rest_score_"})
    for (std::string column : pattern_columns()) {
      std::replace(column.begin(), column.end(), '-', '_');
      columns.push_back(score + column);
    }
  std::string text = csv_line(columns);
  for (const HeadSummary& head : heads) {
    std::vector<std::string> fields = {std::to_string(head.batch), std::to_string(head.head),
                                       csv_field(head_label(document.report, head.head)), head.name()};
    for (const std::int64_t rows : {head.rows, head.nan_rows, head.choices})
      fields.push_back(std::to_string(rows));
    for (const double value : {head.entropy, head.max_weight, head.distance, head.first, head.self,
                               head.previous, head.next, head.induction})
      fields.push_back(csv_number(value));
    const std::vector<HeadName> names = head.names();
    const auto runner_up = head.runner_up();
    fields.push_back(names.empty() ? "" : csv_number(names.front().score));
    fields.push_back(runner_up ? name_of(*runner_up) : "");
    fields.push_back(runner_up ? csv_number(runner_up->score) : "");
    for (const PatternScore& score : head.patterns) fields.push_back(csv_number(score.score));
    for (const PatternScore& score : head.patterns) fields.push_back(csv_number(score.rest_score));
    text += csv_line(fields);
  }
  return text;
}

struct Summary {
  std::vector<HeadSummary> heads;
  std::vector<ReceivedKey> received;  // for a model
  Tensor map;                         // empty if not requested
  std::optional<DocumentCheck> check;
};

Json summary_json(const Document& document, const HeadsQuestion& question, const Needle& needle,
                  const Summary& summary, bool by_model) {
  Json json = {{"summary", heads_json(document, summary.heads, needle)}};
  if (by_model) json["received"] = received_json(document, summary.received);
  if (question.map.rows > 0) json["map"] = values_json(summary.map);
  if (question.draw_mask) json["masks"] = masks_json(document, summary.heads);
  if (summary.check) {
    json["checks"] = checks_json(*summary.check);
    json["checked"] = checked_json(*summary.check);
  }
  if (!document.report.cost.empty()) json["cost"] = cost_json(document.report.cost);
  return json;
}

// Whether nothing is asked but pictures.
bool only_draws(const HeadsQuestion& question) {
  const PageOptions& page = question.page;
  const bool asks = !question.sort.empty() || question.brief || question.find || !question.needle.empty() ||
                    question.top || question.map.rows > 0 || question.draw_mask || question.price ||
                    page.is_checked() || page.serve;
  return page.is_drawn() && !asks;
}

void print_drawn(const TextOutput& output, const Document& document, const PageOptions& page) {
  const std::string heads = counted(document.report.heads, "head");
  if (!page.png.empty()) output.stream << "Drew " << heads << ", " << printable(page.png) << ".\n";
  if (!page.html.empty())
    output.stream << "Drew " << heads << " on a page, " << printable(page.html)
                  << ": open it in a browser.\n";
}

void print_summary(const Subject& subject, const HeadsQuestion& question, const Needle& needle,
                   const Summary& summary) {
  const TextOutput output = standard_output();
  const Document& document = subject.document;
  if (only_draws(question)) return print_drawn(output, document, question.page);
  print_call(output, document);
  if (subject.source.by == WeighedBy::norm)
    output.stream << "each weight is a share of what its row moves: weight times norm of the moved value\n";
  print_answer(output, document, summary.heads, question, needle);
  print_most_received(output, document, summary.received, summary.heads.size());
  if (question.map.rows > 0) print_map(output, document, summary.map, summary.heads);
  if (question.draw_mask) print_masks(output, document, summary.heads);
  if (summary.check) print_check(output, document, *summary.check);
  const std::vector<CostLine>& cost = document.report.cost;
  if (!cost.empty() && question.price) print_cost(output, cost);
  if (!question.page.html.empty() || !question.page.png.empty()) output.stream << '\n';
  print_drawn(output, document, question.page);
}

void answer(Subject subject, const HeadsQuestion& question, Needle needle, const std::string& command) {
  const Document& document = subject.document;
  const LookSource& source = subject.source;
  const SharedOptions& shared = subject.shared;
  const PageOptions& options = question.page;
  check_heads(subject, question);
  subject.complete({.map = options.is_drawn() ? saved_map(document) : question.map,
                    .cost = (source.model.empty() || question.price) && !source.attend});
  if (needle.retrieval.empty() && !needle.spans.empty())
    needle.retrieval = retrieval_of(document, needle.spans);
  Summary summary;
  summary.check = check_of(subject, options);
  const LookPage page = options.has_page() ? look_page(subject, options, command, summary.check) : LookPage();
  if (!options.html.empty()) write_html(options.html, page.html);
  if (!options.png.empty())
    write_look_picture(options.png, subject, sorted_heads(subject, question), options);
  summary.heads = ranked_heads(subject, question, needle);
  if (!source.model.empty()) summary.received = most_received(document, summary.heads);
  if (question.map.rows > 0) summary.map = attention_map(document, question.map);
  if (!shared.csv.empty()) io::write_text(shared.csv, heads_csv(document, summary.heads));
  if (shared.json)
    print_json(document, summary_json(document, question, needle, summary, !source.model.empty()));
  else
    print_summary(subject, question, needle, summary);
  if (options.serve) serve_document(document, page.html, options.port);
  if (summary.check) require_that_it_holds(*summary.check, options.check ? "--check" : "--proof");
}

}  // namespace

void add_heads_options(CLI::App& app, HeadsQuestion& question) {
  add_choice(
      app, "--sort", sort_columns(), [&](std::size_t i) { question.sort = sort_columns()[i]; },
      "sort the heads of the summary by this column, largest first")
      ->type_name("COLUMN");
  add_choice(
      app, "--find", pattern_columns(), [&](std::size_t i) { question.find = static_cast<HeadPattern>(i); },
      "list the heads that have this name or come nearest, best first")
      ->type_name("NAME");
  add_text(app, "--needle", "WORDS", question.needle,
           "with --model: list the heads that find these words of the text, by the weight that the last "
           "token gives them");
  add_integer(app, "--top", {1}, question.top,
              "list only N heads of the summary (default: all; 10 with --find or --needle)");
  add_flag(app, "--brief", question.brief, "print one line per head, the best fit to its name first");
  add_map_option(app, question.map, "also draw the weights of each head, summed into R x C bins");
  add_flag(app, "--draw-mask", question.draw_mask,
           "also draw what the masks allow, and print how much of the square is computed");
  add_flag(app, "--price", question.price, "print what the summary cost");
}

void answer_heads(const LookSource& source, const SharedOptions& shared, const HeadsQuestion& question,
                  const std::string& command) {
  if (source.model.empty()) return answer({read_document(source), source, shared}, question, {}, command);
  const Model model = read_model(source.model, source.given.fast);
  const SourceText text = read_text(model, source);
  Needle needle = needle_in(text, question.needle);
  if (needs_call(question) || !shared.save.empty())
    return answer({document_of(model, text, source), source, shared}, question, std::move(needle), command);
  TextLook table = table_of(model, text.tokens, source, shared, needle.spans);
  needle.retrieval = std::move(table.retrieval);
  answer({document_of_table(std::move(table)), source, shared}, question, std::move(needle), command);
}

void answer_texts(const LookSource& source, const SharedOptions& shared, const HeadsQuestion& question) {
  if (question.sort == "received")
    refuse_usage("--sort is 'received', which a summary of several texts lacks");
  const Model model = read_model(source.model, source.given.fast);
  std::vector<std::vector<HeadSummary>> summaries;
  Document first;  // the merged summaries have its call
  std::int64_t tokens = 0;
  const auto read = [&](const std::string& text, const std::string& name) {
    Document document =
        document_of_table(table_of(model, read_tokens_of(model, text, name), source, shared, {}));
    tokens += document.report.queries;
    summaries.push_back(document.report.summaries);
    if (summaries.size() == 1) first = std::move(document);
  };
  if (!source.text.empty()) read(source.text, "WORDS");
  for (const std::string& path : source.texts) read(file_text(path), path);
  first.report.summaries = merge_summaries(summaries);
  first.report.received = {};
  const Subject subject(std::move(first), source, shared);
  const Document& document = subject.document;
  const std::vector<HeadSummary> heads = ranked_heads(subject, question, {});
  if (!shared.csv.empty()) io::write_text(shared.csv, heads_csv(document, heads));
  if (shared.json) {
    const Json summary = heads_json(document, heads, {});
    std::cout << Json({{"texts", summaries.size()}, {"tokens", tokens}, {"summary", summary}}).dump() << '\n';
    return;
  }
  const TextOutput output = standard_output();
  output.stream << counted(document.report.heads, "head") << " over " << counted(summaries.size(), "text")
                << " of " << counted(tokens, "token") << " in total\n";
  print_answer(output, document, heads, question, {});
}

}  // namespace heed::cli
