// Any bytes as a GGUF file: it is refused in one sentence that names it, or the model reads three tokens,
// whatever numbers come out.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
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
using heed::fuzz::require;

// The name ends in ".gguf".
class NamedFile {
 public:
  NamedFile() {
    std::string name = (fs::temp_directory_path() / "heed-fuzz-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    fs::create_symlink(file.path(), path());
  }
  ~NamedFile() { fs::remove_all(folder_); }
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  [[nodiscard]] std::string path() const { return (folder_ / "m.gguf").string(); }

  heed::fuzz::MemoryFile file;

 private:
  fs::path folder_;
};

void use(const heed::Model& model) {
  const std::int64_t last = model.info().vocabulary - 1;
  std::vector<std::int64_t> ids = {0, last, last / 2};
  if (model.info().context < 3) ids.resize(1);
  const heed::Tensor hidden =
      model.hidden_states(heed::TensorView(ids.data(), {static_cast<std::int64_t>(ids.size())}), {}, 1);
  if (model.info().predicts) (void)model.logits(hidden, 1);
  if (model.tokenizer() != nullptr) (void)model.tokenizer()->encode("a b");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const NamedFile named;
  named.file.put(data, size);
  try {
    use(heed::load_model(named.path()));
  } catch (const heed::Error& error) {
    // Scores of numbers that are none are the model's.
    const std::string message = error.what();
    const bool expected =
        error.code() != heed::ErrorCode::io || message.find(named.path()) != std::string::npos;
    if (!expected) std::cerr << message << std::endl;
    require(expected);
  }
  return 0;
}
