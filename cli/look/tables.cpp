#include "look/tables.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "looked_at.hpp"

namespace heed::cli {
namespace {

using Json = nlohmann::ordered_json;

// Quotes a field if needed. Spreadsheets run text that begins with =, +, - or @ as a formula, so such text
// gets a leading '.
std::string csv_field(const std::string& text) {
  const bool formula = !text.empty() && std::string("=+-@\t\r").find(text[0]) != std::string::npos;
  const std::string safe = formula ? "'" + text : text;
  if (safe.find_first_of(",\"\r\n") == std::string::npos) return safe;
  std::string quoted = "\"";
  for (const char c : safe) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

// Enough digits to recover the same f32.
std::string csv_number(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

std::string line_of(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (line.empty() ? "" : ",") + field;
  return line + "\r\n";
}

std::string word(const std::vector<std::string>& tokens, std::int64_t index) {
  return tokens.empty() ? "" : tokens[static_cast<std::size_t>(index)];
}

// A pattern name as part of a column name: "first_token_sink".
std::string column_of(HeadPattern pattern) {
  std::string name(name_of(pattern));
  for (char& c : name)
    if (c == '-' || c == ' ') c = '_';
  return name;
}

Json name_json(const HeadName& name) {
  return {{"name", name_of(name.pattern)}, {"score", name.score}, {"of_rest", name.of_rest}};
}

Json key_json(const Document& document, std::int64_t key, double weight) {
  Json json = {{"key", key}};
  if (!document.report.key_tokens.empty()) json["token"] = word(document.report.key_tokens, key);
  json["weight"] = weight;
  return json;
}

Json nested(const Tensor& tensor, int axis, std::int64_t& at) {
  Json list = Json::array();
  for (std::int64_t i = 0; i < tensor.size(axis); ++i) {
    if (axis + 1 < tensor.rank())
      list.push_back(nested(tensor, axis + 1, at));
    else if (tensor.dtype() == DType::boolean)
      list.push_back(tensor.values<bool>()[static_cast<std::size_t>(at++)]);
    else if (tensor.dtype() == DType::f64)
      list.push_back(tensor.values<double>()[static_cast<std::size_t>(at++)]);
    else
      list.push_back(tensor.values<float>()[static_cast<std::size_t>(at++)]);
  }
  return list;
}

}  // namespace

Json call_json(const Document& document) {
  const AttentionReport& report = document.report;
  Json options = Json::object();
  for (const auto& [name, value] : report.options) options[name] = value;
  return {{"batch", report.batch},
          {"heads", report.heads},
          {"kv_heads", report.kv_heads},
          {"queries", report.queries},
          {"keys", report.keys},
          {"head_dim", report.head_dim},
          {"dtype", name_of(report.dtype)},
          {"kernel", report.kernel},
          {"isa", report.isa},
          {"options", options}};
}

void add_names(const HeadSummary& head, Json& json) {
  json["names"] = Json::array();
  for (const HeadName& name : head.names()) json["names"].push_back(name_json(name));
  const auto runner_up = head.runner_up();
  json["runner_up"] = runner_up ? name_json(*runner_up) : Json(nullptr);
  for (const PatternScore& score : head.patterns) {
    const std::string name(name_of(score.pattern));
    json["scores"][name] = score.score;
    json["rest_scores"][name] = score.rest_score;
    json["score_rows"][name] = score.rows;
  }
}

Json heads_json(const Document& document, const std::vector<HeadSummary>& heads) {
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
    list.push_back(std::move(json));
  }
  return list;
}

Json cost_json(const std::vector<CostLine>& cost) {
  Json list = Json::array();
  for (const CostLine& line : cost) {
    list.push_back({{"what", line.what},
                    {"seconds", line.made ? Json(line.seconds) : Json()},
                    {"times", line.made ? Json(line.times) : Json()},
                    {"bytes", line.bytes},
                    {"estimated", line.estimated}});
  }
  return list;
}

Json rows_json(const Document& document, const std::vector<AttendedRow>& rows) {
  Json list = Json::array();
  for (const AttendedRow& row : rows) {
    Json json = {{"batch", row.batch},
                 {"head", row.head},
                 {"label", head_label(document.report, row.head)},
                 {"row", row.row}};
    if (!document.report.query_tokens.empty()) json["token"] = word(document.report.query_tokens, row.row);
    json["entropy"] = row.entropy;
    json["distance"] = row.distance;
    json["keys"] = Json::array();
    for (const AttendedRow::Key& key : row.top)
      json["keys"].push_back(key_json(document, key.key, key.weight));
    list.push_back(std::move(json));
  }
  return list;
}

Json evictions_json(const std::vector<Eviction>& evictions, const LookArguments& arguments) {
  Json list = Json::array();
  for (const Eviction& eviction : evictions) {
    const Tensor& gone = eviction.trace.gone;
    const Tensor& dropped = eviction.trace.dropped;
    const std::int64_t queries = dropped.size(2);
    Json json = {{"policy", eviction.policy}, {"prompt", eviction.prompt}};
    json["keys"] = Json::array();
    for (std::int64_t b = 0; b < gone.size(0); ++b) {
      if (b != arguments.batch.value_or(b)) continue;
      Json kept = Json::array(), rows = Json::array();
      for (std::int64_t j = 0; j < gone.size(1); ++j) {
        const std::int64_t row = gone.at<std::int64_t>(b, j);
        if (row == queries) kept.push_back(j);
        rows.push_back(row == queries ? Json() : Json(row));
      }
      json["keys"].push_back({{"batch", b}, {"kept", kept}, {"gone_at_row", rows}});
    }
    json["heads"] = Json::array();
    for (const HeadLoss& head : losses_of(eviction, arguments)) {
      Json rows = Json::array();
      for (std::int64_t i = 0; i < queries; ++i)
        rows.push_back(number_at(dropped, {head.batch, head.head, i}));
      json["heads"].push_back(
          {{"batch", head.batch}, {"head", head.head}, {"mean", head.mean}, {"dropped", rows}});
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json values_json(const Tensor& tensor) {
  std::int64_t at = 0;
  return nested(tensor, 0, at);
}

std::string heads_csv(const Document& document, const std::vector<HeadSummary>& heads) {
  std::vector<std::string> columns = {"batch",      "head",      "label",          "name",       "rows",
                                      "nan_rows",   "choices",   "entropy",        "max_weight", "distance",
                                      "sink",       "self",      "previous",       "next",       "induction",
                                      "name_score", "runner_up", "runner_up_score"};
  for (const char* look : {"score_", "rest_score_"})
    for (int i = 0; i < kHeadPatterns; ++i) columns.push_back(look + column_of(static_cast<HeadPattern>(i)));
  std::string text = line_of(columns);
  for (const HeadSummary& head : heads) {
    std::vector<std::string> fields = {std::to_string(head.batch), std::to_string(head.head),
                                       csv_field(head_label(document.report, head.head)),
                                       std::string(head.name())};
    for (const std::int64_t rows : {head.rows, head.nan_rows, head.choices})
      fields.push_back(std::to_string(rows));
    for (const double value : {head.entropy, head.max_weight, head.distance, head.first, head.self,
                               head.previous, head.next, head.induction})
      fields.push_back(csv_number(value));
    const std::vector<HeadName> names = head.names();
    const auto runner_up = head.runner_up();
    fields.push_back(names.empty() ? "" : csv_number(names.front().score));
    fields.push_back(runner_up ? std::string(name_of(runner_up->pattern)) : "");
    fields.push_back(runner_up ? csv_number(runner_up->score) : "");
    for (const PatternScore& score : head.patterns) fields.push_back(csv_number(score.score));
    for (const PatternScore& score : head.patterns) fields.push_back(csv_number(score.rest_score));
    text += line_of(fields);
  }
  return text;
}

std::string rows_csv(const Document& document, const std::vector<AttendedRow>& rows) {
  std::string text = line_of({"batch", "head", "row", "row_token", "key", "key_token", "weight"});
  for (const AttendedRow& row : rows) {
    const auto add = [&](std::int64_t key, double weight) {
      text += line_of({std::to_string(row.batch), std::to_string(row.head), std::to_string(row.row),
                       csv_field(word(document.report.query_tokens, row.row)), std::to_string(key),
                       csv_field(word(document.report.key_tokens, key)), csv_number(weight)});
    };
    for (std::size_t j = 0; j < row.weights.size(); ++j) add(static_cast<std::int64_t>(j), row.weights[j]);
    if (row.weights.empty())
      for (const AttendedRow::Key& key : row.top) add(key.key, key.weight);
  }
  return text;
}

std::string evictions_csv(const Document& document, const std::vector<Eviction>& evictions,
                          const LookArguments& arguments) {
  std::string text = line_of({"policy", "prompt", "batch", "head", "row", "row_token", "dropped"});
  for (const Eviction& eviction : evictions)
    for (const HeadLoss& head : losses_of(eviction, arguments))
      for (std::int64_t i = 0; i < document.report.queries; ++i)
        text += line_of({eviction.policy, std::to_string(eviction.prompt), std::to_string(head.batch),
                         std::to_string(head.head), std::to_string(i),
                         csv_field(word(document.report.query_tokens, i)),
                         csv_number(number_at(eviction.trace.dropped, {head.batch, head.head, i}))});
  return text;
}

std::string tile_csv(const WeightTile& tile, const std::vector<std::int64_t>& heads) {
  std::string text = line_of({"batch", "head", "row", "key", "allowed", "weight"});
  const TileRange& range = tile.range;
  for (std::int64_t b = 0; b < tile.weights.size(0); ++b)
    for (std::int64_t h = 0; h < tile.weights.size(1); ++h)
      for (std::int64_t i = 0; i < tile.weights.size(2); ++i)
        for (std::int64_t j = 0; j < tile.weights.size(3); ++j)
          text += line_of({std::to_string(std::max<std::int64_t>(range.batch, 0) + b),
                           std::to_string(heads.empty() ? h : heads[static_cast<std::size_t>(h)]),
                           std::to_string(range.row_begin + i), std::to_string(range.key_begin + j),
                           tile.allowed.at<bool>(b, h, i, j) ? "1" : "0",
                           csv_number(number_at(tile.weights, {b, h, i, j}))});
  return text;
}

}  // namespace heed::cli
