#include "heed/inspect/page.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/message.hpp"
#include "heed/error.hpp"
#include "heed/version.hpp"
#include "io/atomic_file.hpp"
#include "page/block.hpp"
#include "page/opening.hpp"
#include "page/report.hpp"
#include "page/template.hpp"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

// The bytes of all weights if they were stored.
double matrix_bytes(const AttentionReport& report) {
  const double cells = static_cast<double>(report.batch) * static_cast<double>(report.heads) *
                       static_cast<double>(report.queries) * static_cast<double>(report.keys);
  return cells * (report.dtype == DType::f64 ? 8 : 4);
}

// Counts, each property with its deviation and its bound, and the size of the whole matrix in bytes. A
// deviation of NaN is null.
Json proof_json(const DocumentCheck& check, const AttentionReport& report) {
  Json lines = Json::array();
  for (const CheckLine& line : check.lines)
    lines.push_back({{"what", line.what},
                     {"deviation", std::isfinite(line.deviation) ? Json(line.deviation) : Json()},
                     {"allowed", line.allowed},
                     {"holds", line.holds()}});
  return {{"holds", check.holds()},
          {"rows", check.rows},
          {"keys", check.keys},
          {"bins", check.bins},
          {"nan_rows", check.nan_rows},
          {"lost_rows", check.lost_rows},
          {"bare_heads", check.bare_heads},
          {"matrix_bytes", matrix_bytes(report)},
          {"lines", lines}};
}

// The type of a picture, by the first bytes of its file.
std::string_view picture_type(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return "image/png";
  if (bytes.starts_with("\xff\xd8\xff")) return "image/jpeg";
  return "";
}

void check_picture(const HtmlPage& page) {
  using detail::refuse;
  const PagePicture& picture = *page.picture;
  const std::int64_t keys = page.report == nullptr ? 0 : page.report->keys;
  if (picture_type(picture.bytes).empty())
    refuse("the picture is neither PNG nor JPEG; one of the two is expected");
  if (static_cast<std::int64_t>(picture.bytes.size()) > kMaxPictureBytes)
    refuse("the picture has ", picture.bytes.size(), " bytes; at most ", kMaxPictureBytes, " are expected");
  if (picture.rows < 1 || picture.columns < 1 || picture.first < 0 || picture.first > keys ||
      picture.rows > (keys - picture.first) / picture.columns)
    refuse("the picture has ", picture.rows, " x ", picture.columns, " patches from token ", picture.first,
           " on, but ", detail::there_are(keys, "key"));
}

void check(const HtmlPage& page) {
  if (page.proof != nullptr && page.report == nullptr)
    throw Error(ErrorCode::invalid_argument, "proof is given without its report");
  if (page.beside != 0 &&
      (page.report == nullptr || page.beside < 0 || 2 * page.beside != page.report->heads))
    detail::refuse("beside is ", page.beside, "; half of the heads of the report is expected");
  if (page.picture) check_picture(page);
  std::int64_t count = 0;
  for (const PageStep& step : page.steps) {
    if (static_cast<int>(step.axes.size()) != step.value.rank())
      detail::refuse("step '", step.name, "' names ", detail::counted(step.axes.size(), "axis", "axes"),
                     "; its value has shape ", step.value.shape());
    count += step.value.count();
  }
  if (count > kMaxPageValues)
    detail::refuse("the steps have ", count, " values; at most ", kMaxPageValues, " are expected on a page");
}

std::int64_t count_of(const std::vector<std::string>& words) {
  return static_cast<std::int64_t>(words.size());
}

// All levels of detail, from the most to the least.
std::vector<detail::PageDetail> details_of(const AttentionReport& report) {
  constexpr std::int64_t kLeastBins = 64;  // per side, while something else can be left out
  std::vector<detail::PageDetail> details = {{}};
  if (report.map.empty()) return details;
  const std::int64_t most = std::max(report.map.front().size(2), report.map.front().size(3));
  for (const bool curves : {true, false}) {
    details.push_back({.weights = false, .curves = curves});
    for (std::int64_t bins = 1024; bins >= (curves ? kLeastBins : 1); bins /= 2)
      if (bins < most) details.push_back({.weights = false, .bins = bins, .curves = curves});
  }
  return details;
}

// If all weights would take more than this, the page holds maps instead, within a fair size.
constexpr std::int64_t kMaxWeightBytes = 32'000'000;
constexpr std::int64_t kFairPageBytes = 12'000'000;
constexpr double kBytesOfWeight = 2 * 4.0 / 3;  // 16 bits in base64

std::int64_t bound_of(const HtmlPage& page) {
  if (page.most_bytes != 0 || page.report == nullptr || page.report->map.empty()) return page.most_bytes;
  const auto weights = static_cast<double>(page.report->weights.weights.count());
  return weights * kBytesOfWeight > static_cast<double>(kMaxWeightBytes) ? kFairPageBytes : 0;
}

class Writer {
 public:
  explicit Writer(const HtmlPage& page) : page_(page), bound_(bound_of(page)) {}

  std::string write(const std::string& path) {
    std::string left_out = hold();
    io::detail::AtomicFile file(path);
    render([&](std::string_view text) { file.write(std::as_bytes(std::span(text))); });
    file.commit();
    return left_out;
  }

  std::string text() {
    (void)hold();
    std::string all;
    render([&](std::string_view text) { all += text; });
    return all;
  }

 private:
  // Collects the page's contents; returns what it left out.
  std::string hold() {
    add_tensors();
    return add_report();
  }

  void add_tensors() {
    for (const PageStep& step : page_.steps)
      blocks_.push_back(detail::page_block("step-" + step.name, step.value));
    for (const auto& [name, weight] : page_.weights)
      blocks_.push_back(detail::page_block("weight-" + name, weight));
  }

  void take(detail::PageReport held) {
    report_ = std::move(held.about);
    if (page_.beside > 0)
      if (const auto place = detail::opening_of_difference(*page_.report, page_.beside))
        report_["opening"] = {{"head", place->head}, {"row", place->row}, {"key", place->key}};
    std::move(held.overview.begin(), held.overview.end(), std::back_inserter(blocks_));
    late_ = std::move(held.in_detail);
  }

  // Adds the report in the most detail that fits; returns what was left out.
  std::string add_report() {
    const std::int64_t room = room_for_numbers();
    if (page_.report == nullptr) return "";
    for (detail::PageDetail detail : details_of(*page_.report)) {
      detail.most = room;
      if (std::optional<detail::PageReport> held = detail::page_report(*page_.report, detail)) {
        std::string left_out = std::move(held->left_out);
        take(std::move(*held));
        return left_out;
      }
    }
    if (page_.most_bytes != 0) refuse_bound(page_.most_bytes - room);
    detail::PageReport held = *detail::page_report(*page_.report, {.weights = false});
    std::string left_out = std::move(held.left_out);
    take(std::move(held));
    return left_out;
  }

  // Bytes available to the report's numbers; -1: no limit.
  std::int64_t room_for_numbers() {
    if (bound_ == 0) return -1;
    if (page_.report != nullptr) {
      AttentionReport heads;  // only its summaries
      heads.batch = page_.report->batch;
      heads.heads = page_.report->heads;
      heads.layers = page_.report->layers;
      heads.options = page_.report->options;
      heads.summaries = page_.report->summaries;
      report_ = detail::page_report(heads, {})->about;
    }
    std::int64_t bytes = 500;  // text on what is left out, and digits of sizes not yet known
    render([&](std::string_view text) { bytes += static_cast<std::int64_t>(text.size()); });
    if (page_.most_bytes != 0 && bytes > page_.most_bytes) refuse_bound(bytes);
    return std::max<std::int64_t>(0, bound_ - bytes);
  }

  [[noreturn]] void refuse_bound(std::int64_t least) const {
    detail::refuse("most_bytes is ", page_.most_bytes, "; more than ", least, " is expected for this page");
  }

  template <class Put>
  void render(const Put& put) const {
    detail::put_template(detail::file_named(detail::page_files(), "page.html"), put,
                         [&](std::string_view name) { fill(name, put); });
  }

  // The replacement of @NAME@ in page.html.
  template <class Put>
  void fill(std::string_view name, const Put& put) const {
    if (name == "VERSION") return put(version());
    if (name == "CONNECT") return put(page_.served ? "; connect-src 'self'" : "");
    if (name == "STYLE") return put(detail::all_files(detail::page_files(), ".css"));
    if (name == "SCRIPT") return put(detail::all_files(detail::page_files(), ".js"));
    if (name == "PAGE") return put(detail::script_json(about()));
    for (const detail::PageBlock& block : name == "DATA" ? blocks_ : late_) detail::put_block(block, put);
  }

  Json about() const {
    Json steps = Json::array();
    for (const PageStep& step : page_.steps)
      steps.push_back({{"name", step.name},
                       {"title", step.title},
                       {"formula", step.formula},
                       {"meaning", step.meaning},
                       {"axes", step.axes}});
    Json tensors = Json::object();
    for (const auto* blocks : {&blocks_, &late_})
      for (const detail::PageBlock& block : *blocks) {
        Json& tensor = tensors[block.name];
        tensor = {{"dtype", block.dtype},
                  {"shape", std::vector<std::int64_t>(block.shape.begin(), block.shape.end())}};
        if (block.dtype == "log16") tensor.update({{"low", block.low}, {"step", block.step}});
        if (blocks == &late_) tensor["late"] = true;
      }
    return {{"title", page_.title},
            {"about", page_.about},
            {"heads", page_.heads},
            {"cross", page_.cross},
            {"query_count", page_.report != nullptr ? page_.report->queries : count_of(page_.query_tokens)},
            {"key_count", page_.report != nullptr ? page_.report->keys : count_of(page_.key_tokens)},
            {"report", report_},
            {"look", page_.look},
            {"beside", page_.beside},
            {"picture", picture()},
            {"served", page_.served},
            {"proof", proof()},
            {"query_tokens", page_.query_tokens},
            {"key_tokens", page_.key_tokens},
            {"steps", steps},
            {"tensors", tensors}};
  }

  [[nodiscard]] Json picture() const {
    if (!page_.picture) return {};
    const std::string& bytes = page_.picture->bytes;
    return {{"uri", "data:" + std::string(picture_type(bytes)) + ";base64," +
                        detail::base64(std::as_bytes(std::span(bytes)))},
            {"rows", page_.picture->rows},
            {"columns", page_.picture->columns},
            {"first", page_.picture->first}};
  }

  [[nodiscard]] Json proof() const {
    return page_.proof == nullptr ? Json() : proof_json(*page_.proof, *page_.report);
  }

  const HtmlPage& page_;
  std::int64_t bound_ = 0;                 // bytes of the file; 0: no limit
  std::vector<detail::PageBlock> blocks_;  // for the first picture
  std::vector<detail::PageBlock> late_;
  Json report_;
};

}  // namespace

std::string write_html(const std::string& path, const HtmlPage& page) {
  check(page);
  return Writer(page).write(path);
}

std::string html_text(const HtmlPage& page) {
  check(page);
  return Writer(page).text();
}

}  // namespace heed
