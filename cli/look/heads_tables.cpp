#include "look/heads_tables.hpp"

#include "looked_at.hpp"

namespace heed::cli {
namespace {

// A pattern name as part of a column name: "first_token_sink".
std::string column_of(HeadPattern pattern) {
  std::string name(name_of(pattern));
  for (char& c : name)
    if (c == '-' || c == ' ') c = '_';
  return name;
}

}  // namespace

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
  for (const char* look : {"score_", "rest_score_"})
    for (int i = 0; i < kHeadPatterns; ++i) columns.push_back(look + column_of(static_cast<HeadPattern>(i)));
  std::string text = csv_line(columns);
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
    text += csv_line(fields);
  }
  return text;
}

}  // namespace heed::cli
