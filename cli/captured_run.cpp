#include "captured_run.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "heed/error.hpp"

namespace heed::cli {
namespace {

constexpr const char* kRunFormat = "heed-run-1";
constexpr std::size_t kMostFiles = 1'000'000;
constexpr std::size_t kMostText = 65536;  // bytes of a metadata value

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none);
}

std::vector<std::string> captured_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") && name.find("-layer-") != std::string::npos &&
        files.size() < kMostFiles)
      files.push_back(entry.path().string());
  }
  if (files.empty())
    throw Error(ErrorCode::io, folder + " is a folder without captured calls, NNNN-layer-LL.safetensors");
  std::sort(files.begin(), files.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return files;
}

void require_captured_call(const std::string& path, const io::SafetensorsReader& file) {
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kRunFormat)
    throw Error(ErrorCode::io, path + " is no captured call: its metadata do not say format '" +
                                   std::string(kRunFormat) + "'");
}

nlohmann::ordered_json captured_value(const io::SafetensorsReader& file, const std::string& name) {
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end() || found->second.size() > kMostText) return nullptr;
  return nlohmann::ordered_json::parse(found->second, nullptr, false);
}

}  // namespace heed::cli
