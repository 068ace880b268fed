// Shared by the fuzz targets of models: a folder of in-memory files, and a run of the model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "heed/model/model.hpp"

// Makes a failed allocation an Error; by default the sanitizer would end the program.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace heed::fuzz {

using Bytes = std::span<const std::uint8_t>;

/// The next part of an input. Two bytes give its length; it ends with the input if that is shorter.
inline Bytes next_part(Bytes& input) {
  if (input.size() < 2) return {};
  const std::size_t length = std::min<std::size_t>(input[0] + 256U * input[1], input.size() - 2);
  const Bytes taken = input.subspan(2, length);
  input = input.subspan(2 + length);
  return taken;
}

class MemoryFolder {
 public:
  MemoryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "heed-fuzz-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~MemoryFolder() { std::filesystem::remove_all(path_); }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }

  void put(const std::string& name, Bytes content) {
    const MemoryFile& file = files_[name];
    if (!std::filesystem::is_symlink(path_ / name))
      std::filesystem::create_symlink(file.path(), path_ / name);
    file.put(content.data(), content.size());
  }
  void remove(const std::string& name) const { std::filesystem::remove(path_ / name); }

 private:
  std::filesystem::path path_;
  std::map<std::string, MemoryFile> files_;
};

/// Runs the model on the first token, the last, and one between.
inline void run_on_three_tokens(const Model& model) {
  const std::int64_t last = model.info().vocabulary - 1;
  std::vector<std::int64_t> ids = {0, last, last / 2};
  if (model.info().fixed_context && model.info().context < 3) ids.resize(1);
  const Tensor hidden = model.hidden_states(TensorView(ids.data(), {std::ssize(ids)}), {}, 1);
  if (model.info().predicts) (void)model.logits(hidden, 1);
}

/// Requires an io error to name the file. An error about non-finite weights names the model instead.
inline void require_path_in(const Error& error, const std::string& path) {
  const std::string message = error.what();
  const bool expected = error.code() != ErrorCode::io || message.find(path) != std::string::npos;
  if (!expected) std::cerr << message << std::endl;
  require(expected);
}

}  // namespace heed::fuzz
