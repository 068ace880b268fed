#include "output_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "command.hpp"
#include "heed/error.hpp"

namespace heed::cli {
namespace {

namespace fs = std::filesystem;

using Identity = std::pair<dev_t, ino_t>;

// The file's identity, independent of its name; nothing if it does not exist.
std::optional<Identity> identity_of(const std::string& path) {
  struct stat status {};
  const int result = path == "-" ? fstat(STDIN_FILENO, &status) : stat(path.c_str(), &status);
  if (result != 0) return std::nullopt;
  return Identity(status.st_dev, status.st_ino);
}

// The path that a write would reach. Links are followed, even if the last one points to no file yet.
fs::path destination_of(const std::string& path) {
  constexpr int kMaxLinks = 40;  // the limit of Linux
  fs::path target = path;
  std::error_code error;
  for (int links = 0; links < kMaxLinks; ++links) {
    const fs::path next = fs::read_symlink(target, error);
    if (error) break;
    target = target.parent_path() / next;
  }
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  return fs::weakly_canonical(folder, error) / target.filename();
}

bool same_file(const std::string& a, const std::string& b) {
  const auto identity = identity_of(a);
  if (identity && identity == identity_of(b)) return true;
  return a != "-" && b != "-" && destination_of(a) == destination_of(b);
}

void check_writable(const NamedFile& output) {
  const fs::path target = destination_of(output.path);
  std::error_code error;
  if (fs::is_directory(target, error)) {
    error = std::make_error_code(std::errc::is_a_directory);
  } else if (access(target.parent_path().c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  } else {
    return;
  }
  detail::refuse(ErrorCode::io, "cannot write '", output.path, "' (", output.option, "): ", error.message());
}

}  // namespace

void check_outputs(std::vector<NamedFile> inputs, std::vector<NamedFile> outputs) {
  for (std::vector<NamedFile>* files : {&inputs, &outputs})
    std::erase_if(*files, [](const NamedFile& file) { return file.path.empty(); });
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    for (const NamedFile& input : inputs) {
      if (!same_file(output.path, input.path)) continue;
      refuse_usage(output.option, " '", output.path, "' is the file that ", input.option,
                   " is read from; an input is never overwritten");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (!same_file(output.path, outputs[j].path)) continue;
      refuse_usage(output.option, " '", output.path, "' is the file that ", outputs[j].option,
                   " goes to; each result needs its own file");
    }
    check_writable(output);
  }
}

}  // namespace heed::cli
