#include "look/tables.hpp"
#include "text.hpp"

#include <cmath>
#include <iostream>

namespace heed::cli {
namespace {

Json name_json(const HeadName& name) {
  return {{"name", name_of(name)}, {"score", name.score}, {"of_rest", name.of_rest}};
}

// The elements from `at` on, as lists over the axes from `axis` on.
Json nested(const Tensor& tensor, int axis, std::size_t& at) {
  if (axis == tensor.rank()) {
    const std::size_t element = at++;
    if (tensor.dtype() == DType::boolean) return tensor.values<bool>()[element];
    if (tensor.dtype() == DType::i64) return tensor.values<std::int64_t>()[element];
    if (tensor.dtype() == DType::f64) return tensor.values<double>()[element];
    return tensor.values<float>()[element];
  }
  Json list = Json::array();
  for (std::int64_t i = 0; i < tensor.size(axis); ++i) list.push_back(nested(tensor, axis + 1, at));
  return list;
}

}  // namespace

void print_json(const Document& document, const Json& members) {
  const AttentionReport& report = document.report;
  Json options = Json::object();
  for (const auto& [name, value] : report.options) options[name] = value;
  Json object = {{"batch", report.batch},
                 {"heads", report.heads},
                 {"kv_heads", report.kv_heads},
                 {"queries", report.queries},
                 {"keys", report.keys},
                 {"head_dim", report.head_dim},
                 {"dtype", name_of(report.dtype)},
                 {"kernel", report.kernel},
                 {"isa", report.isa},
                 {"options", options}};
  object.update(members);
  std::cout << object.dump() << '\n';
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

Json key_json(const Document& document, std::int64_t key, double weight) {
  Json json = {{"key", key}};
  if (!document.report.key_tokens.empty()) json["token"] = token_at(document.report.key_tokens, key);
  json["weight"] = weight;
  return json;
}

Json values_json(const Tensor& tensor) {
  std::size_t at = 0;
  return nested(tensor, 0, at);
}

std::string token_at(const std::vector<std::string>& tokens, std::int64_t index) {
  return tokens.empty() ? "" : tokens[static_cast<std::size_t>(index)];
}

std::string csv_field(const std::string& text) {
  const bool formula = !text.empty() && std::string("=+-@\t\r").find(text[0]) != std::string::npos;
  const std::string safe = formula ? "'" + text : text;
  if (safe.find_first_of(",\"\r\n") == std::string::npos) return safe;
  std::string quoted = "\"";
  for (const char c : safe) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string csv_number(double value) { return std::isnan(value) ? "nan" : formatted("%.9g", value); }

std::string csv_line(const std::vector<std::string>& fields) {
  return detail::joined_texts(fields, ",") + "\r\n";
}

}  // namespace heed::cli
