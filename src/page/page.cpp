#include "heed/page.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "heed/error.hpp"
#include "heed/version.hpp"
#include "io/atomic_file.hpp"
#include "page/block.hpp"
#include "page/files.hpp"
#include "page/report.hpp"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

// Valid inside <script>: JSON has no use for < but within strings, where the escape stands for it, so no text
// can end the element or open a comment. What is not UTF-8 becomes U+FFFD.
std::string script_json(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

std::string script() {
  std::string all;
  for (const detail::PageFile& file : detail::page_files())
    if (file.name.ends_with(".js")) all += file.text;
  return all;
}

std::string_view file_named(std::string_view name) {
  const auto files = detail::page_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const detail::PageFile& file) { return file.name == name; });
  if (found == files.end()) throw Error(ErrorCode::internal, "report/" + std::string(name) + " is missing");
  return found->text;
}

void check(const HtmlPage& page) {
  std::int64_t count = 0;
  for (const PageStep& step : page.steps) {
    if (static_cast<int>(step.axes.size()) != step.value.rank())
      throw Error(ErrorCode::invalid_argument,
                  "step '" + step.name + "' names " + std::to_string(step.axes.size()) +
                      " axes; its value has shape " + to_string(step.value.shape()));
    count += step.value.count();
  }
  if (count > kMostPageValues)
    throw Error(ErrorCode::invalid_argument, "the steps have " + std::to_string(count) +
                                                 " values; a page holds " + std::to_string(kMostPageValues) +
                                                 " at most");
}

std::int64_t count_of(const std::vector<std::string>& words) {
  return static_cast<std::int64_t>(words.size());
}

class Writer {
 public:
  explicit Writer(const HtmlPage& page) : page_(page) {}

  void write(const std::string& path) {
    add_tensors();
    io::detail::AtomicFile file(path);
    const auto put = [&](std::string_view text) { file.write(std::as_bytes(std::span(text))); };
    std::string_view rest = file_named("page.html");
    while (!rest.empty()) {
      const std::size_t open = std::min(rest.find("@"), rest.size());
      put(rest.substr(0, open));
      rest.remove_prefix(open);
      if (rest.empty()) break;
      const std::size_t close = rest.find('@', 1);
      fill(rest.substr(1, close - 1), put);
      rest.remove_prefix(close + 1);
    }
    file.commit();
  }

 private:
  void add_tensors() {
    for (const PageStep& step : page_.steps)
      blocks_.push_back(detail::page_block("step-" + step.name, step.value));
    for (const auto& [name, weight] : page_.weights)
      blocks_.push_back(detail::page_block("weight-" + name, weight));
    if (page_.report == nullptr) return;
    detail::PageReport held = detail::page_report(*page_.report);
    report_ = std::move(held.about);
    std::move(held.overview.begin(), held.overview.end(), std::back_inserter(blocks_));
    late_ = std::move(held.in_detail);
  }

  // What stands for @NAME@ in page.html.
  template <class Put>
  void fill(std::string_view name, const Put& put) const {
    if (name == "VERSION") return put(version());
    if (name == "STYLE") return put(file_named("page.css"));
    if (name == "SCRIPT") return put(script());
    if (name == "PAGE") return put(script_json(about()));
    for (const detail::PageBlock& block : name == "DATA" ? blocks_ : late_) {
      put("<script type=\"text/plain\" id=\"data-" + block.name + "\">");
      put(block.data);
      put("</script>\n");
    }
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
            {"query_tokens", page_.query_tokens},
            {"key_tokens", page_.key_tokens},
            {"steps", steps},
            {"tensors", tensors}};
  }

  const HtmlPage& page_;
  std::vector<detail::PageBlock> blocks_;  // what the first picture needs
  std::vector<detail::PageBlock> late_;
  Json report_;
};

}  // namespace

void write_html(const std::string& path, const HtmlPage& page) {
  check(page);
  Writer(page).write(path);
}

}  // namespace heed
