// Settings files beside a tokenizer: tokenizer_config.json and the like.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/shared/json_part.hpp"

namespace heed::detail {

/// A JSON object in a file of a folder; empty if the file is missing. Throws Error (io).
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

  std::vector<std::string> names_;  // declared before values_, whose initialisation fills it
  nlohmann::json values_;
  JsonPart part_;  // refers to values_
};

/// Whether a file of that path exists.
[[nodiscard]] bool is_there(const std::string& path);

}  // namespace heed::detail
