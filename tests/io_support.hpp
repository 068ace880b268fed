// Shared by the tests of files: a temporary folder, and functions that read and write bytes.
#pragma once

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace heed::test {

/// A new folder in the system's folder for temporary files, removed with its contents at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "heed-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  /// The sorted names of the folder's files.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// GCC and Clang indicate sanitizers in different ways.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

/// The reason why the function below returns nothing.
inline constexpr const char* kUnmeasured = kSanitized ? "a sanitizer's own memory hides what a call takes"
                                                      : "/proc/self does not tell what a call takes at most";

/// The largest growth of the process's memory during `call`, in bytes. Returns nothing if it cannot be
/// measured: under a sanitizer, whose own memory hides it, or without Linux's /proc.
inline std::optional<std::int64_t> peak_memory_of(const std::function<void()>& call) {
  if (kSanitized) {
    call();
    return std::nullopt;
  }
  const auto status = [](const std::string& key) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with(key)) return std::stoll(line.substr(key.size() + 1)) * 1024;
    return 0LL;
  };
  malloc_trim(0);
  write_file("/proc/self/clear_refs", "5");  // resets the peak to the current size
  const std::int64_t before = status("VmHWM");
  if (before == 0 || before > status("VmRSS") + (std::int64_t{1} << 20)) return std::nullopt;
  call();
  return status("VmHWM") - before;
}

/// A limit on file sizes simulates a full disk: write(2) fails in the middle of the data.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace heed::test
