#include "text/folder_settings.hpp"

#include <filesystem>

#include "io/fault.hpp"
#include "io/json_file.hpp"

namespace heed::detail {
namespace {

// Limits as for config.json.
constexpr std::uintmax_t kMaxSettingsMiB = 4;
constexpr JsonLimits kSettingsLimits = {.depth = 16, .members = 100'000, .values = 200'000};

}  // namespace

FolderSettings::FolderSettings(const std::string& folder, const char* name)
    : values_(read(folder + "/" + name)),
      part_(values_, io::detail::subject_of(folder + "/" + name), "settings") {}

nlohmann::json FolderSettings::read(const std::string& path) {
  if (!is_there(path)) return nlohmann::json::object();
  return parsed(io::detail::json_in(path, kMaxSettingsMiB, kSettingsLimits),
                [this](int depth, const std::string& name) {
                  if (depth == 1) names_.push_back(name);
                });
}

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace heed::detail
