// Files of settings beside a tokenizer: tokenizer_config.json and its like.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/shared/json_part.hpp"

namespace heed::detail {

/// An object of JSON in a file of a folder, without members where there is no such file. Throws Error (io).
class FolderSettings {
 public:
  FolderSettings(const std::string& folder, const char* name);
  FolderSettings(const FolderSettings&) = delete;
  FolderSettings& operator=(const FolderSettings&) = delete;

  [[nodiscard]] const nlohmann::json& values() const { return values_; }
  [[nodiscard]] const JsonPart& part() const { return part_; }
  /// Names of the members in the order of the file.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  nlohmann::json read(const std::string& path);

  std::vector<std::string> names_;  // before values_, whose reading fills it
  nlohmann::json values_;
  JsonPart part_;  // of values_
};

/// Whether there is a file of that path.
[[nodiscard]] bool is_there(const std::string& path);

}  // namespace heed::detail
