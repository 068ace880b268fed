// Common parts of writing pages: compiled-in files, placeholders in them, and JSON and numbers for scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "heed/export.hpp"
#include "page/block.hpp"
#include "page/files.hpp"

namespace heed::detail {

/// Valid inside <script>, whatever its strings hold. Invalid UTF-8 becomes U+FFFD.
[[nodiscard]] HEED_API std::string script_json(const nlohmann::ordered_json& json);

/// Valid in an attribute between double quotes.
[[nodiscard]] HEED_API std::string attribute_text(std::string_view text);

/// All whose names end so, in their order.
[[nodiscard]] HEED_API std::string all_files(std::span<const PageFile> files, std::string_view ending);

/// Throws Error (internal) where it is not among them.
[[nodiscard]] HEED_API std::string_view file_named(std::span<const PageFile> files, std::string_view name);

/// The element that holds a block.
template <class Put>
void put_block(const PageBlock& block, const Put& put) {
  put("<script type=\"text/plain\" id=\"data-" + attribute_text(block.name) + "\">");
  put(block.data);
  put("</script>\n");
}

/// Writes the text with put(); fill(NAME) writes the replacement of @NAME@.
template <class Put, class Fill>
void put_template(std::string_view text, const Put& put, const Fill& fill) {
  while (!text.empty()) {
    const std::size_t open = text.find('@');
    put(text.substr(0, open));
    if (open == std::string_view::npos) return;
    const std::size_t close = text.find('@', open + 1);
    fill(text.substr(open + 1, close - open - 1));
    text.remove_prefix(close + 1);
  }
}

}  // namespace heed::detail
