#include "heed/inspect/document.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "attention/masks/saved_mask.hpp"
#include "core/message.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "inspect/document_format.hpp"
#include "inspect/pattern_scores.hpp"
#include "inspect/tile.hpp"
#include "inspect/token_sets.hpp"
#include "io/json_text.hpp"

namespace heed {
namespace detail {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFarthest = std::int64_t{1} << 61;  // an offset of 2^60 and a tensor's length

class DocumentReader {
 public:
  explicit DocumentReader(const std::string& path) : path_(path), file_(path) {}

  Document read() {
    const auto format = file_.metadata().find("format");
    const std::string text = format == file_.metadata().end() ? "" : format->second;
    if (text == kExplainFormat) return read_explanation();
    // Written by frameworks into parameter files.
    if (text == "pt" || text == "tf" || text == "flax" || text == "np")
      fail(
          "holds the parameters of a model, not a call of attention; heed look --model FOLDER WORDS looks at "
          "a model");
    if (text != kLookFormat)
      fail("is not a document of heed look or heed explain: the format in its metadata is not '", kLookFormat,
           "' or '", kExplainFormat, "'");
    return read_look();
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... what) const {
    detail::refuse(ErrorCode::io, path_, " ", what...);
  }

  // A null value, which is never valid here, if a limit is exceeded.
  [[nodiscard]] Json metadata(const std::string& name, const JsonLimits& limits = {}) const {
    const auto found = file_.metadata().find(name);
    if (found == file_.metadata().end()) fail("has no '", name, "' in its metadata");
    std::optional<Json> json = json_of(found->second, limits);
    if (!json) fail("has metadata '", name, "' that is not JSON");
    return std::move(*json);
  }

  // Calls work for each element of a list, over all of its pieces. Returns false if a piece is no list or
  // exceeds the limits.
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
      fail("has '", name, "' that is not a list of ", expected, " texts");
    return words;
  }

  // Missing in older documents, written before token ids existed.
  std::vector<std::int64_t> token_ids(const char* name, std::int64_t expected) const {
    if (!file_.contains(name)) return {};
    const Tensor ids = saved_tensor(name, {expected}, true);
    return {ids.values<std::int64_t>().begin(), ids.values<std::int64_t>().end()};
  }

  // Reads a tensor of the file as [B, H, L, D].
  TensorView main_tensor(const char* name, Document& document) const {
    Tensor tensor = file_.read(name);
    if (tensor.rank() < 2 || tensor.rank() > 4 || !is_floating(tensor.dtype()))
      fail("has ", name, " of dtype ", tensor.dtype(), " and shape ", tensor.shape(),
           "; floats with 2 to 4 axes are expected");
    return lifted(document.tensors.emplace_back(std::move(tensor)).view());
  }

  Document read_explanation() const {
    Document document;
    document.tensors.reserve(3);
    document.query = main_tensor("query", document);
    document.key = main_tensor("key", document);
    document.value = main_tensor("value", document);
    const Json causal = metadata("causal");
    const Json scale = metadata("scale");
    if (!causal.is_boolean() || !scale.is_number()) fail("has no causal (true or false) or scale (a number)");
    document.options.causal = causal.get<bool>();
    document.options.scale = scale.get<double>();
    document.report.query_tokens = tokens("tokens", document.query.size(2), false);
    document.report.key_tokens = tokens("context_tokens", document.key.size(2), false);
    return document;
  }

  Document read_look() {
    Document document;
    document.tensors.reserve(2 + std::size(kOptionTensors));
    document.query = main_tensor("query", document);
    document.key = main_tensor("key", document);
    document.value = document.key;
    document.has_value = false;
    document.has_report = true;
    read_options(document);
    read_tensors(document);
    try {
      (void)attention_tile(document, {});
    } catch (const Error& error) {
      fail("does not hold a valid call of attention: ", error.what());
    }
    document.report.query_tokens = tokens("tokens", document.query.size(2), true);
    document.report.key_tokens = tokens("key_tokens", document.key.size(2), true);
    document.report.query_token_ids = token_ids(kTokenIds, document.query.size(2));
    document.report.key_token_ids = token_ids(kKeyTokenIds, document.key.size(2));
    if (document.report.induction.rank() == 3 && !tells_copies(document.report))
      fail("has induction scores without tokens");
    read_summaries(document.report);
    read_layers(document.report);
    return document;
  }

  // Documents of a single call have no layers.
  void read_layers(AttentionReport& report) const {
    if (file_.metadata().count("layers") == 0) return;
    std::int64_t left = report.heads;
    bool fits = true;
    expecting("layers", [&] {
      fits = each_in_list("layers", {},
                          [&](const Json& json) {
                            const std::int64_t heads = whole(json.at(1));
                            fits = fits && heads >= 1 && heads <= left;
                            if (!fits) return;
                            report.layers.push_back({json.at(0).get<std::string>(), heads});
                            left -= heads;
                          }) &&
             fits;
    });
    if (!fits || left != 0) fail("has layers whose heads do not add up to its ", report.heads, " heads");
  }

  // nlohmann throws if a value has another type than work expects.
  template <class Work>
  void expecting(const char* name, Work work) const {
    try {
      work();
    } catch (const Json::exception&) {
      fail("has metadata '", name, "' with values of unexpected kinds");
    }
  }

  void read_options(Document& document) const {
    try {
      read_checked_options(document);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) throw;
      fail("does not hold a valid call of attention: ", error.what());
    }
  }

  void read_checked_options(Document& document) const {
    expecting("call", [&] {
      const Json json = metadata("call");
      AttentionOptions& options = document.options;
      options.causal = json.at("causal").get<bool>();
      options.align =
          json.at("align").get<std::string>() == "bottom-right" ? Align::bottom_right : Align::top_left;
      options.window = {whole(json.at("window").at(0)), whole(json.at("window").at(1))};
      options.softcap = json.at("softcap").get<double>();
      if (json.contains("scale")) options.scale = json["scale"].get<double>();
      if (json.contains("query_offset")) options.query_offset = whole(json["query_offset"]);
    });
    if (file_.contains(kMaskFirst) || file_.contains(kMaskKeys))
      document.options.sparse_mask =
          restored_runs(file_.read(kMaskFirst), file_.read(kMaskKeys), document.key.size(2));
    read_score_mod(document);
    for (const OptionTensor& option : kOptionTensors)
      if (file_.contains(option.name))
        document.options.*option.view = document.tensors.emplace_back(file_.read(option.name)).view();
  }

  void read_score_mod(Document& document) const {
    const Json call = metadata("call");
    if (!call.is_object() || !call.contains("score_mod")) return;
    std::vector<std::pair<std::string, Tensor>> arrays;
    std::vector<std::pair<std::string, TensorView>> views;
    const std::string prefix = kScoreArray;
    for (const std::string& name : file_.names())
      if (name.starts_with(prefix)) arrays.emplace_back(name.substr(prefix.size()), file_.read(name));
    for (const auto& [name, array] : arrays) views.emplace_back(name, array);
    expecting("call", [&] {
      document.options.score_mod = ScoreMod::expression(call["score_mod"].get<std::string>(), views);
    });
  }

  // Checked, because nlohmann would convert 1.5 or 2^63 to some integer.
  [[nodiscard]] std::int64_t whole(const Json& json) const {
    if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX))
      fail("has a number in its metadata that is not a whole number of 64 bits");
    return json.get<std::int64_t>();
  }

  Tensor saved_tensor(const char* name, const Dims& shape, bool whole_numbers) const {
    Tensor tensor = file_.read(name);
    const bool fits = whole_numbers ? tensor.dtype() == DType::i64
                                    : tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64;
    if (!fits || tensor.shape() != shape)
      fail("has ", name, " of dtype ", tensor.dtype(), " and shape ", tensor.shape(), "; ",
           whole_numbers ? "i64 " : "f32 or f64 ", shape, " is expected");
    return tensor;
  }

  void read_tensors(Document& document) const {
    const TensorView& query = document.query;
    const TensorView& key = document.key;
    AttentionReport& report = document.report;
    report.batch = query.size(0);
    report.heads = query.size(1);
    report.kv_heads = key.size(1);
    report.queries = query.size(2);
    report.keys = key.size(2);
    report.head_dim = query.size(3);
    report.dtype = query.dtype();
    for (const SavedTensor& each : kSavedTensors) {
      if (!each.needed && !file_.contains(each.name)) continue;
      const bool place = each.axis == Axis::place;
      const std::int64_t length = each.axis == Axis::key ? report.keys : report.queries;
      const Dims shape = place ? Dims{report.batch, length} : Dims{report.batch, report.heads, length};
      report.*each.tensor = saved_tensor(each.name, shape, place);
    }
    check_places(report);
    read_top_k(report);
    if (!file_.contains("map")) return;
    const Dims map = file_.shape("map");
    if (map.size() != 4 || map[2] == 0 || map[3] == 0) fail("has a map of shape ", to_string(map));
    report.map = pool_map(saved_tensor("map", {report.batch, report.heads, map[2], map[3]}, false));
  }

  // Checks positions and key ranges, because they are used as indices.
  void check_places(const AttentionReport& report) const {
    const auto position = report.position.values<std::int64_t>();
    const auto begin = report.key_begin.values<std::int64_t>();
    const auto end = report.key_end.values<std::int64_t>();
    for (std::size_t i = 0; i < position.size(); ++i) {
      if (position[i] < -kFarthest || position[i] > kFarthest)
        fail("has ", position[i], " in position; -2^61 to 2^61 is expected");
      if (begin[i] < 0 || end[i] < begin[i] || end[i] > report.keys)
        fail("has a row whose keys are ", begin[i], " to ", end[i], ", of ", report.keys);
    }
  }

  void read_top_k(AttentionReport& report) const {
    const Dims found = file_.shape("top_k_index");
    const Dims shape{report.batch, report.heads, report.queries, found.size() == 4 ? found[3] : 0};
    report.top_k_index = saved_tensor("top_k_index", shape, true);
    report.top_k_weight = saved_tensor("top_k_weight", shape, false);
    for (const std::int64_t j : report.top_k_index.values<std::int64_t>())
      if (j < -1 || j >= report.keys) fail("has ", j, " in top_k_index, but ", counted(report.keys, "key"));
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
    if (!fits) fail("does not have one summary for each of its ", heads, " heads");
  }

  static double number(const Json& value) {
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }

  std::int64_t offset_of(std::int64_t offset, const AttentionReport& report) const {
    const std::int64_t farthest = kFarthest + std::max(report.queries, report.keys);
    if (offset < -farthest || offset > farthest)
      fail("has a head whose fixed offset is ", offset, "; its size may be ", farthest, " at most");
    return offset;
  }

  void read_patterns(const Json& json, const AttentionReport& report, HeadSummary& head) const {
    head.choices = whole(json.at("choices"));
    for (std::size_t i = 0; i < kHeadPatterns; ++i) {
      PatternScore score{.pattern = static_cast<HeadPattern>(i)};
      const bool is_older = score.pattern == HeadPattern::fixed_offset && json.at("patterns").size() == i;
      if (!is_older) {
        const Json& one = json.at("patterns").at(i);
        score.rows = whole(one.at(0));
        score.all = {number(one.at(1)), number(one.at(2))};
        score.rest = {number(one.at(3)), number(one.at(4))};
        if (score.pattern == HeadPattern::fixed_offset) score.offset = offset_of(whole(one.at(5)), report);
      }
      complete_score(score);
      head.patterns.push_back(score);
    }
  }

  // Reads the five scores of older documents, by all weights; these lack the number of rows.
  void read_older_scores(const Json& scores, HeadSummary& head) const {
    constexpr std::array kOlder = {HeadPattern::previous_token, HeadPattern::induction,
                                   HeadPattern::first_token_sink, HeadPattern::local, HeadPattern::uniform};
    head.choices = head.rows;
    for (int i = 0; i < kHeadPatterns; ++i) {
      PatternScore score{.pattern = static_cast<HeadPattern>(i)};
      const auto place = std::ranges::find(kOlder, score.pattern);
      const double found = place == kOlder.end()
                               ? std::nan("")
                               : number(scores.at(static_cast<std::size_t>(place - kOlder.begin())));
      if (!std::isnan(found)) {
        score.rows = head.rows;
        score.all = {found * static_cast<double>(head.rows), static_cast<double>(head.rows)};
      }
      complete_score(score);
      head.patterns.push_back(score);
    }
  }

  HeadSummary summary(const Json& json, const AttentionReport& report) const {
    HeadSummary head;
    const auto place = std::ssize(report.summaries);
    head.batch = place / report.heads;
    head.head = place % report.heads;
    head.rows = whole(json.at("rows"));
    head.nan_rows = whole(json.at("nan_rows"));
    for (const SummaryField& field : kSummaryFields) head.*field.value = number(json.at(field.name));
    if (json.contains("patterns"))
      read_patterns(json, report, head);
    else
      read_older_scores(json.at("scores"), head);
    for (const Json& key : json.at("most_received")) {
      head.most_received.push_back(whole(key));
      if (head.most_received.back() < 0 || head.most_received.back() >= report.keys)
        fail("has a summary with a key outside its keys");
    }
    for (const Json& weight : json.at("most_received_weight"))
      head.most_received_weight.push_back(number(weight));
    if (head.most_received.size() != head.most_received_weight.size())
      fail("has a summary with different numbers of keys and weights");
    return head;
  }

  std::string path_;
  io::SafetensorsReader file_;
};

}  // namespace
}  // namespace detail

void fill_report(Document& document, ReportOptions wanted) {
  if (!document.has_value) detail::refuse("the document has no values, so no report can be made");
  wanted.query_tokens = document.report.query_tokens;
  wanted.key_tokens = document.report.key_tokens;
  wanted.query_token_ids = document.report.query_token_ids;
  wanted.key_token_ids = document.report.key_token_ids;
  std::vector<LayerHeads> layers = std::move(document.report.layers);
  document.report = make_report(document.query, document.key, document.value, document.options, wanted);
  document.report.layers = std::move(layers);
  document.has_report = true;
  for (TensorView* view : {&document.query, &document.key, &document.value}) *view = detail::lifted(*view);
}

Document open_document(const std::string& path) { return detail::DocumentReader(path).read(); }

WeightTile attention_tile(const Document& document, const TileRange& range) {
  return attention_tile(document.query, document.key, document.options, document.report.lse, range);
}

}  // namespace heed
