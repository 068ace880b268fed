#include "who/answer.hpp"

#include <cmath>
#include <utility>

#include "json.hpp"
#include "looked_at.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

Json one_json(const Document& document, const PairWeight& one, std::int64_t top_k) {
  const AttentionReport& report = document.report;
  const HeadPlace place = place_of(report, one.head);
  Json json = {{"label", head_label(report, one.head)}, {"head", place.head}};
  if (place.layer >= 0) json["layer"] = place.layer;
  if (report.batch > 1) json["batch"] = one.batch;
  json["looks_like"] = summary_of(report, one.batch, one.head).name();
  json["weight"] = one.weight;
  json["rank"] = std::isnan(one.weight) ? Json() : Json(one.rank);
  json["row"] = one.row;
  json["key"] = one.key;
  json["top"] = Json::array();
  for (const auto& [key, weight] : attended_row(document, one.batch, one.head, one.row, top_k).top) {
    Json top = {{"key", key}, {"weight", weight}};
    if (!report.key_tokens.empty()) top["token"] = report.key_tokens[static_cast<std::size_t>(key)];
    json["top"].push_back(std::move(top));
  }
  return json;
}

Json answer_json(const PairAnswer& answer, std::int64_t top_k) {
  Json json = {{"rows", answer.rows}, {"keys", answer.keys}, {"heads", Json::array()}};
  for (const PairWeight& one : answer.heads) json["heads"].push_back(one_json(answer.document, one, top_k));
  return json;
}

}  // namespace

PairAnswer answer_pair(Document document, const std::string& row, const std::string& key,
                       const std::string& of_text, const std::string& hint) {
  PairAnswer answer{std::move(document), {}, {}, {}};
  const AttentionReport& report = answer.document.report;
  answer.rows = word_places("ROW" + of_text, row, report.query_tokens, report.queries);
  answer.keys = word_places("KEY" + of_text, key, report.key_tokens, report.keys, hint);
  answer.heads = heads_by_pair(answer.document, answer.rows, answer.keys);
  return answer;
}

Json pair_json(const PairAnswer& answer, const PairAnswer* against, const PairPrinting& printing) {
  Json json = {{"row", printing.row}, {"key", printing.key}};
  json.update(answer_json(answer, printing.top_k));
  if (against != nullptr) json["against"] = answer_json(*against, printing.top_k);
  return json;
}

}  // namespace heed::cli
