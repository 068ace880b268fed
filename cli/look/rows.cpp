#include "look/questions.hpp"

#include <algorithm>

#include "command.hpp"
#include "core/tensor/concatenate.hpp"
#include "heed/io/tensors.hpp"
#include "look/print.hpp"
#include "look/tables.hpp"
#include "looked_at.hpp"
#include "options.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr std::size_t kMaxRows = 100;

// Rows by number, by range and by word, each once, in the order given.
class RowChoice {
 public:
  explicit RowChoice(const Document& document)
      : tokens_(document.report.query_tokens), count_(axis_size(document, 2)) {}

  void add(const RowsQuestion& question) {
    if (question.word) {
      if (tokens_.empty())
        refuse_usage("--token is given, but no tokens are known; --tokens FILE (a line a token) is expected");
      add_words("--token", *question.word);
    }
    if (!question.row) return;
    // A token may contain a comma or a colon.
    if (!whole_number(*question.row) && std::ranges::find(tokens_, *question.row) != tokens_.end())
      return add_words("--row", *question.row);
    for (const std::string& part : split(*question.row, ',')) add_part(part);
  }

  [[nodiscard]] const std::vector<std::int64_t>& rows() const { return rows_; }
  [[nodiscard]] bool was_cut() const { return was_cut_; }

 private:
  [[noreturn]] static void refuse(const std::string& part, const std::string& expected) {
    refuse_value("--row", part, expected + ", counted from 0,");
  }

  void add_words(const std::string& option, const std::string& word) {
    for (const std::int64_t row : word_places(option, word, tokens_, count_)) add_row(row);
  }

  // A number, a range or words.
  void add_part(const std::string& part) {
    const std::vector<std::string> ends = split(part, ':');
    const auto begin = whole_number(ends[0]);
    const auto end = ends.size() == 2 ? whole_number(ends[1]) : std::nullopt;
    if (begin && ends.size() == 1) return add_range(part, *begin, *begin + 1);
    if (begin && end) return add_range(part, *begin, *end);
    if (part.empty() || tokens_.empty())
      refuse(part, std::string("a row (5), rows (5:10)") + (tokens_.empty() ? "" : ", a word") +
                       ", or several separated by commas");
    add_words("--row", part);
  }

  void add_range(const std::string& part, std::int64_t begin, std::int64_t end) {
    if (begin < 0 || end <= begin) refuse(part, "a row, or rows R0:R1 (R0 to R1 - 1)");
    if (begin >= count_)
      refuse_usage("--row is ", part, "; ", there_are(count_, "query", "queries"), ", counted from 0");
    for (std::int64_t row = begin; row < std::min(end, count_); ++row) add_row(row);
    was_cut_ = was_cut_ || end > count_;
  }

  void add_row(std::int64_t row) {
    seen_.resize(static_cast<std::size_t>(count_));
    if (!seen_[static_cast<std::size_t>(row)]) rows_.push_back(row);
    seen_[static_cast<std::size_t>(row)] = true;
  }

  const std::vector<std::string>& tokens_;
  std::int64_t count_;
  std::vector<std::int64_t> rows_;
  std::vector<bool> seen_;
  bool was_cut_ = false;
};

// The rows of every selected head. A single row of --row comes with all its weights.
std::vector<AttendedRow> attended_rows(const Subject& subject, const std::vector<std::int64_t>& chosen,
                                       bool all_weights) {
  const Document& document = subject.document;
  std::vector<AttendedRow> rows;
  for (const std::int64_t row : chosen)
    for (std::int64_t b = 0; b < document.report.batch; ++b)
      for (std::int64_t h = 0; h < document.report.heads; ++h)
        if (subject.includes(b, h))
          rows.push_back(attended_row(document, b, h, row, subject.shared.keys(), all_weights));
  return rows;
}

// All weights of the rows: [B, H, rows, keys] over the selected batch entries and heads.
Tensor weights_of_rows(const Subject& subject, const std::vector<std::int64_t>& chosen) {
  std::vector<Tensor> rows;
  for (const std::int64_t row : chosen)
    rows.push_back(subject.tile({row, row + 1, 0, subject.document.report.keys}).weights);
  return detail::concatenated(rows, 2);
}

Json rows_json(const Document& document, const std::vector<AttendedRow>& rows) {
  Json list = Json::array();
  for (const AttendedRow& row : rows) {
    Json json = {{"batch", row.batch},
                 {"head", row.head},
                 {"label", head_label(document.report, row.head)},
                 {"row", row.row}};
    if (!document.report.query_tokens.empty())
      json["token"] = token_at(document.report.query_tokens, row.row);
    json["entropy"] = row.entropy;
    json["distance"] = row.distance;
    json["keys"] = Json::array();
    for (const AttendedRow::Key& key : row.top)
      json["keys"].push_back(key_json(document, key.key, key.weight));
    list.push_back(std::move(json));
  }
  return list;
}

// One line per row and key. A row requested alone has all its keys, otherwise its heaviest.
std::string rows_csv(const Document& document, const std::vector<AttendedRow>& rows) {
  std::string text = csv_line({"batch", "head", "row", "row_token", "key", "key_token", "weight"});
  for (const AttendedRow& row : rows) {
    const auto add = [&](std::int64_t key, double weight) {
      text += csv_line({std::to_string(row.batch), std::to_string(row.head), std::to_string(row.row),
                        csv_field(token_at(document.report.query_tokens, row.row)), std::to_string(key),
                        csv_field(token_at(document.report.key_tokens, key)), csv_number(weight)});
    };
    for (std::size_t j = 0; j < row.weights.size(); ++j) add(static_cast<std::int64_t>(j), row.weights[j]);
    if (row.weights.empty())
      for (const AttendedRow::Key& key : row.top) add(key.key, key.weight);
  }
  return text;
}

void print_rows(const TextOutput& output, const Document& document, const std::vector<AttendedRow>& rows) {
  std::int64_t last = -1;
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    const AttendedRow& row = rows[i];
    if (row.row != last) print_heading(output, "row " + key_text(document.report.query_tokens, row.row));
    last = row.row;
    print_line(output, "  " + plane_text(document, row.batch, row.head) + ": entropy " +
                           four_digits(row.entropy) + ", distance " + four_digits(row.distance));
    std::vector<std::string> items;
    for (const AttendedRow::Key& key : row.top)
      items.push_back(key_text(document.report.key_tokens, key.key) + " " + fixed(key.weight, 4));
    if (items.empty()) items.emplace_back(std::isnan(row.entropy) ? "NaN" : "no key is allowed");
    print_items(output, items, 4);
  }
  if (rows.size() > kMaxRows)
    output.stream << "… and " << rows.size() - kMaxRows << " more; --csv FILE or --json has all\n";
}

}  // namespace

void add_row_option(CLI::App& app, RowsQuestion& question) {
  add_text_option(
      app, "--row", "ROWS", question.row,
      "show what these queries attend to: 5, 5:10 (5 to 9), 5,7, or a word; or:2 is the second 'or'");
}

void add_token_option(CLI::App& app, RowsQuestion& question) {
  add_text_option(app, "--token", "WORD", question.word, "show what each occurrence of this word attends to");
}

void answer_rows(Subject subject, const RowsQuestion& question) {
  const Document& document = subject.document;
  const SharedOptions& shared = subject.shared;
  RowChoice choice(document);
  choice.add(question);
  std::vector<std::int64_t> ascending = choice.rows();
  std::ranges::sort(ascending);
  subject.complete(report_of_rows(document, std::move(ascending)));
  const bool all_weights = question.row && choice.rows().size() == 1;
  const std::vector<AttendedRow> rows = attended_rows(subject, choice.rows(), all_weights);
  if (!shared.csv.empty()) io::write_text(shared.csv, rows_csv(document, rows));
  if (!shared.npy.empty()) io::write_npy(shared.npy, weights_of_rows(subject, choice.rows()));
  if (shared.json) return print_json(document, {{"rows", rows_json(document, rows)}});
  const TextOutput output = standard_output();
  print_rows(output, document, rows);
  if (choice.was_cut())
    output.stream << "\n--row ends where the tensors end: there are " << document.report.queries
                  << " queries\n";
}

}  // namespace heed::cli
