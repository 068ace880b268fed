#include "look/document.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "heed/error.hpp"
#include "heed/io.hpp"
#include "json_text.hpp"
#include "look/document_format.hpp"

namespace heed::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFarthest = std::int64_t{1} << 61;  // an offset of 2^60 and a tensor's length

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(path) {}

  Subject read() {
    const auto format = file_.metadata().find("format");
    const std::string text = format == file_.metadata().end() ? "" : format->second;
    if (text == kExplainFormat) return read_explanation();
    if (text != kLookFormat)
      fail("is no document of heed look or heed explain: its metadata do not say format '" +
           std::string(kLookFormat) + "' or '" + kExplainFormat + "'");
    return read_look();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(ErrorCode::io, path_ + " " + what); }

  // Null, which nothing here may be, where it holds more than the limits.
  [[nodiscard]] Json metadata(const std::string& name, const JsonLimits& limits = {}) const {
    const auto found = file_.metadata().find(name);
    if (found == file_.metadata().end()) fail("has no '" + name + "' in its metadata");
    std::optional<Json> json = json_of(found->second, limits);
    if (!json) fail("has metadata '" + name + "' that are not JSON");
    return std::move(*json);
  }

  // Calls work for what a list holds, in all of its pieces; false where one is no list, or beyond the limits.
  template <class Work>
  bool each_in_list(const std::string& name, const JsonLimits& limits, Work work) const {
    for (std::size_t piece = 1;; ++piece) {
      const std::string text = piece_name(name, piece);
      if (piece > 1 && file_.metadata().count(text) == 0) return true;
      const Json list = metadata(text, limits);
      if (!list.is_array()) return false;
      for (const Json& one : list) work(one);
    }
  }

  std::vector<std::string> tokens(const char* name, std::int64_t expected, bool may_lack) const {
    if (may_lack && file_.metadata().count(name) == 0) return {};
    const auto count = static_cast<std::size_t>(expected);
    std::vector<std::string> words;
    bool fits = true;
    const bool listed = each_in_list(name, {.depth = 1, .values = count + 1}, [&](const Json& word) {
      fits = fits && word.is_string() && words.size() < count;
      if (fits) words.push_back(word.get<std::string>());
    });
    if (!listed || !fits || (words.size() != count && !(may_lack && words.empty())))
      fail("has '" + std::string(name) + "' that are not a list of " + std::to_string(expected) + " texts");
    return words;
  }

  // A tensor of the file as [B, H, L, D].
  TensorView main_tensor(const char* name, AttendInputs& call) const {
    Tensor tensor = file_.read(name);
    if (tensor.rank() < 2 || tensor.rank() > 4 || !is_floating(tensor.dtype()))
      fail("has " + std::string(name) + " of dtype " + std::string(name_of(tensor.dtype())) + " and shape " +
           to_string(tensor.shape()) + "; floats with 2 to 4 axes are expected");
    return lifted(call.tensors.emplace_back(std::move(tensor)));
  }

  Subject read_explanation() const {
    Subject subject;
    AttendInputs& call = subject.call;
    call.tensors.reserve(3);
    call.query = main_tensor("query", call);
    call.key = main_tensor("key", call);
    call.value = main_tensor("value", call);
    const Json causal = metadata("causal");
    const Json scale = metadata("scale");
    if (!causal.is_boolean() || !scale.is_number()) fail("has no causal (true or false) or scale (a number)");
    call.options.causal = causal.get<bool>();
    call.options.scale = scale.get<double>();
    subject.query_tokens = tokens("tokens", call.query.size(2), false);
    subject.key_tokens = tokens("context_tokens", call.key.size(2), false);
    return subject;
  }

  Subject read_look() {
    Subject subject;
    AttendInputs& call = subject.call;
    call.tensors.reserve(2 + kOptionTensors.size());
    call.query = main_tensor("query", call);
    call.key = main_tensor("key", call);
    call.value = call.key;
    subject.has_value = false;
    subject.has_report = true;
    read_options(call);
    read_figures(subject);
    try {
      (void)attention_tile(call.query, call.key, call.options, subject.report.lse, {});
    } catch (const Error& error) {
      fail("holds no call of attention: " + std::string(error.what()));
    }
    subject.query_tokens = tokens("tokens", call.query.size(2), true);
    subject.key_tokens = tokens("key_tokens", call.key.size(2), true);
    subject.report.query_tokens = subject.query_tokens;
    subject.report.key_tokens = subject.key_tokens;
    read_summaries(subject.report);
    return subject;
  }

  // Where a value has another type than work takes it for, nlohmann throws.
  template <class Work>
  void expecting(const char* name, Work work) const {
    try {
      work();
    } catch (const Json::exception&) {
      fail("has metadata '" + std::string(name) + "' that do not hold what is expected there");
    }
  }

  void read_options(AttendInputs& call) const {
    expecting("call", [&] {
      const Json json = metadata("call");
      AttentionOptions& options = call.options;
      options.causal = json.at("causal").get<bool>();
      options.align =
          json.at("align").get<std::string>() == "bottom-right" ? Align::bottom_right : Align::top_left;
      options.window = {whole(json.at("window").at(0)), whole(json.at("window").at(1))};
      options.softcap = json.at("softcap").get<double>();
      if (json.contains("scale")) options.scale = json["scale"].get<double>();
      if (json.contains("query_offset")) options.query_offset = whole(json["query_offset"]);
    });
    for (const OptionTensor& option : kOptionTensors)
      if (file_.contains(option.name))
        call.options.*option.view = call.tensors.emplace_back(file_.read(option.name)).view();
  }

  // nlohmann would turn 1.5 or 2^63 into some whole number.
  [[nodiscard]] std::int64_t whole(const Json& json) const {
    if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX))
      fail("has a number in its metadata that is no whole one of 64 bits");
    return json.get<std::int64_t>();
  }

  Tensor figure(const char* name, const Dims& shape, bool whole_numbers) const {
    Tensor tensor = file_.read(name);
    const bool fits = whole_numbers ? tensor.dtype() == DType::i64
                                    : tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64;
    if (!fits || tensor.shape() != shape)
      fail("has " + std::string(name) + " of dtype " + std::string(name_of(tensor.dtype())) + " and shape " +
           to_string(tensor.shape()) + "; " + (whole_numbers ? "i64 " : "f32 or f64 ") + to_string(shape) +
           " is expected");
    return tensor;
  }

  void read_figures(Subject& subject) const {
    const TensorView& query = subject.call.query;
    const TensorView& key = subject.call.key;
    AttentionReport& report = subject.report;
    report.batch = query.size(0);
    report.heads = query.size(1);
    report.kv_heads = key.size(1);
    report.queries = query.size(2);
    report.keys = key.size(2);
    report.head_dim = query.size(3);
    report.dtype = query.dtype();
    for (const Figure& each : kFigures) {
      if (!each.needed && !file_.contains(each.name)) continue;
      const bool place = each.axis == Axis::place;
      const std::int64_t length = each.axis == Axis::key ? report.keys : report.queries;
      const Dims shape = place ? Dims{report.batch, length} : Dims{report.batch, report.heads, length};
      report.*each.tensor = figure(each.name, shape, place);
    }
    check_places(report);
    read_top_k(report);
    if (!file_.contains("map")) return;
    const Dims map = file_.shape("map");
    if (map.size() != 4 || map[2] == 0 || map[3] == 0) fail("has a map of shape " + to_string(map));
    report.map = pool_map(figure("map", {report.batch, report.heads, map[2], map[3]}, false));
  }

  // What says where rows and keys are, is used as an index, and counted from.
  void check_places(const AttentionReport& report) const {
    const auto position = report.position.values<std::int64_t>();
    const auto begin = report.key_begin.values<std::int64_t>();
    const auto end = report.key_end.values<std::int64_t>();
    for (std::size_t i = 0; i < position.size(); ++i) {
      if (position[i] < -kFarthest || position[i] > kFarthest)
        fail("has " + std::to_string(position[i]) + " in position; -2^61 to 2^61 is expected");
      if (begin[i] < 0 || end[i] < begin[i] || end[i] > report.keys)
        fail("has a row whose keys are " + std::to_string(begin[i]) + " to " + std::to_string(end[i]) +
             ", of " + std::to_string(report.keys));
    }
  }

  void read_top_k(AttentionReport& report) const {
    const Dims found = file_.shape("top_k_index");
    const Dims shape{report.batch, report.heads, report.queries, found.size() == 4 ? found[3] : 0};
    report.top_k_index = figure("top_k_index", shape, true);
    report.top_k_weight = figure("top_k_weight", shape, false);
    for (const std::int64_t j : report.top_k_index.values<std::int64_t>())
      if (j < -1 || j >= report.keys)
        fail("has " + std::to_string(j) + " in top_k_index, with " + std::to_string(report.keys) + " keys");
  }

  void read_summaries(AttentionReport& report) const {
    expecting("call", [&] {
      const Json json = metadata("call");
      report.kernel = json.at("kernel").get<std::string>();
      report.isa = json.at("isa").get<std::string>();
      report.value_dim = whole(json.at("value_dim"));
      report.options = json.at("options").get<std::vector<std::pair<std::string, std::string>>>();
    });
    const auto heads = static_cast<std::size_t>(report.batch * report.heads);
    bool fits = true;
    expecting("summaries", [&] {
      const bool listed = each_in_list("summaries", {}, [&](const Json& json) {
        fits = fits && report.summaries.size() < heads;
        if (fits) report.summaries.push_back(summary(json, report));
      });
      fits = fits && listed && report.summaries.size() == heads;
    });
    if (!fits) fail("has summaries that are not one for each of its " + std::to_string(heads) + " heads");
  }

  HeadSummary summary(const Json& json, const AttentionReport& report) const {
    const auto number = [](const Json& value) {
      return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    };
    HeadSummary head;
    const auto place = static_cast<std::int64_t>(report.summaries.size());
    head.batch = place / report.heads;
    head.head = place % report.heads;
    head.rows = whole(json.at("rows"));
    head.nan_rows = whole(json.at("nan_rows"));
    for (const SummaryField& field : kSummaryFields) head.*field.value = number(json.at(field.name));
    constexpr std::size_t kPatterns = 5;
    for (std::size_t i = 0; i < kPatterns; ++i) {
      const auto pattern = static_cast<HeadPattern>(i);
      const double score = number(json.at("scores").at(i));
      head.patterns.push_back({pattern, score, score >= threshold_of(pattern)});
    }
    for (const Json& key : json.at("most_received")) {
      head.most_received.push_back(whole(key));
      if (head.most_received.back() < 0 || head.most_received.back() >= report.keys)
        fail("has summaries of a key that it does not hold");
    }
    for (const Json& weight : json.at("most_received_weight"))
      head.most_received_weight.push_back(number(weight));
    if (head.most_received.size() != head.most_received_weight.size())
      fail("has summaries whose keys and weights differ in number");
    return head;
  }

  std::string path_;
  io::SafetensorsReader file_;
};

}  // namespace

TensorView lifted(TensorView view) {
  while (view.rank() < 4) view = view.unsqueeze(0);
  return view;
}

Subject read_document(const std::string& path) { return Reader(path).read(); }

}  // namespace heed::cli
