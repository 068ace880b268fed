// The files of web/, compiled in; cmake/EmbedFiles.cmake writes their source.
#pragma once

#include <span>
#include <string_view>

#include "heed/export.hpp"

namespace heed::detail {

struct PageFile {
  std::string_view name;  ///< "page.css"
  std::string_view text;
};

/// A page's files, in the order of src/page/web/CMakeLists.txt, in which the scripts run.
[[nodiscard]] std::span<const PageFile> page_files() noexcept;
/// The living page's files.
[[nodiscard]] HEED_API std::span<const PageFile> living_page_files() noexcept;

}  // namespace heed::detail
