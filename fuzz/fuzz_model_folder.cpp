// A folder of Hugging Face's from any bytes: it is refused in one sentence that names the folder, or the
// model reads three tokens, whatever numbers come out.
//
// An input is the lengths of config.json and of model.safetensors.index.json (two bytes each; no index where
// its length is 0), these two, and model.safetensors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "heed/model.hpp"

// Memory that cannot be had is an Error, not the sanitizer's end of the program.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace {

namespace fs = std::filesystem;
using heed::fuzz::MemoryFile;
using heed::fuzz::require;
using Bytes = std::span<const std::uint8_t>;

// Files that lie in memory; the index is there at times.
class ModelFolder {
 public:
  ModelFolder() {
    std::string name = (fs::temp_directory_path() / "heed-fuzz-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr);
    path_ = name;
    fs::create_symlink(config_.path(), path_ / "config.json");
    fs::create_symlink(model_.path(), path_ / "model.safetensors");
  }
  ~ModelFolder() { fs::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

  void put(Bytes config, Bytes index, Bytes model) const {
    const fs::path link = path_ / "model.safetensors.index.json";
    fs::remove(link);
    if (!index.empty()) fs::create_symlink(index_.path(), link);
    config_.put(config.data(), config.size());
    index_.put(index.data(), index.size());
    model_.put(model.data(), model.size());
  }

 private:
  MemoryFile config_, index_, model_;
  fs::path path_;
};

Bytes next_part(Bytes& input) {
  if (input.size() < 2) return {};
  const std::size_t length = std::min<std::size_t>(input[0] + 256U * input[1], input.size() - 2);
  const Bytes taken = input.subspan(2, length);
  input = input.subspan(2 + length);
  return taken;
}

void use(const heed::Model& model) {
  const std::int64_t last = model.info().vocabulary - 1;
  std::vector<std::int64_t> ids = {0, last, last / 2};
  if (model.info().fixed_context && model.info().context < 3) ids.resize(1);
  const auto count = static_cast<std::int64_t>(ids.size());
  const heed::Tensor hidden = model.hidden_states(heed::TensorView(ids.data(), {count}), {}, 1);
  if (model.info().predicts) (void)model.logits(hidden, 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ModelFolder folder;
  Bytes input(data, size);
  const Bytes config = next_part(input), index = next_part(input);
  folder.put(config, index, input);
  try {
    use(heed::load_model(folder.path()));
  } catch (const heed::Error& error) {
    const std::string message = error.what();
    const bool expected =
        error.code() != heed::ErrorCode::io || message.find(folder.path()) != std::string::npos;
    if (!expected) std::cerr << message << std::endl;
    require(expected);
  }
  return 0;
}
