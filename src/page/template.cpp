#include "page/template.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/message.hpp"
#include "heed/error.hpp"

namespace heed::detail {

// In JSON, < only occurs in strings, where it can be escaped. So no text can end the element or open a
// comment.
std::string script_json(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
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

std::string attribute_text(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else if (c == '<')
      safe += "&lt;";
    else
      safe += c;
  }
  return safe;
}

std::string all_files(std::span<const PageFile> files, std::string_view ending) {
  std::string all;
  for (const PageFile& file : files)
    if (file.name.ends_with(ending)) all += file.text;
  return all;
}

std::string_view file_named(std::span<const PageFile> files, std::string_view name) {
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const PageFile& file) { return file.name == name; });
  if (found == files.end()) refuse(ErrorCode::internal, "the page's ", name, " is missing");
  return found->text;
}

}  // namespace heed::detail
