// What `heed generate`, `heed explain --model` and `heed train --resume` read: whatever the bytes are, the
// files are refused in one sentence that names the one at fault, or the model writes and shows what it does,
// and a training can be saved again as it was.
//
// The first byte of an input tells which: of a checkpoint, all others are the file. Of a model's folder there
// follow the lengths of config.json and vocabulary.json (two bytes each), these two, and model.safetensors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>

#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "heed/model_generate.hpp"
#include "heed/nn.hpp"
#include "heed/train.hpp"
#include "heed/trained_model.hpp"

// Memory that cannot be had is an Error, not the sanitizer's end of the program.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace {

namespace fs = std::filesystem;
using heed::fuzz::MemoryFile;
using heed::fuzz::require;
using Bytes = std::span<const std::uint8_t>;

/// A folder whose files lie in memory.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "heed-fuzz-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr);
    path_ = name;
    fs::create_symlink(config.path(), path_ / "config.json");
    fs::create_symlink(vocabulary.path(), path_ / "vocabulary.json");
    fs::create_symlink(model.path(), path_ / "model.safetensors");
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string path() const { return path_.string(); }
  /// A place for a file that is written anew.
  [[nodiscard]] std::string scratch() const { return path() + "/scratch.safetensors"; }

  MemoryFile config, vocabulary, model;

 private:
  fs::path path_;
};

/// The next bytes of an input, as many as two bytes say or as there are.
Bytes take(Bytes& input) {
  if (input.size() < 2) return {};
  const std::size_t length = std::min<std::size_t>(input[0] + 256U * input[1], input.size() - 2);
  const Bytes taken = input.subspan(2, length);
  input = input.subspan(2 + length);
  return taken;
}

/// The first tokens that the model knows, and one of them again.
std::string words_for(const heed::TrainedModel& trained) {
  const heed::Tokenizer& tokenizer = trained.tokenizer;
  if (tokenizer.is_symbols()) return trained.settings.context > 2 ? "to to to" : "to";
  return tokenizer.text_of(0, {}) + tokenizer.text_of(tokenizer.size() - 1, {});
}

void use(const heed::TrainedModel& trained) {
  const std::string words = words_for(trained);
  const heed::Reading reading = trained.read(words, "the words");
  for (std::int64_t layer = 0; layer < trained.settings.layers; ++layer) {
    heed::Document call = document_of_layer(reading, layer);
    fill_report(call, {.full_weights_cells = heed::kFullWeightsCells});
  }
  (void)trained.expected_after(reading, static_cast<std::int64_t>(reading.tokens.size()) - 1, 3);
}

// The same folder as anybody's. It may be one of another model.
void write_on(const std::string& folder, const std::string& words) {
  (void)generate(heed::load_model(folder), words, {.tokens = 3, .watch = 2}, {}, "the words");
}

void read_folder(const Folder& folder, Bytes input) {
  const Bytes config = take(input), vocabulary = take(input);
  folder.config.put(config.data(), config.size());
  folder.vocabulary.put(vocabulary.data(), vocabulary.size());
  folder.model.put(input.data(), input.size());
  const heed::TrainedModel trained = heed::load_trained_model(folder.path());
  use(trained);
  write_on(folder.path(), words_for(trained));
}

void read_training(const Folder& folder, Bytes input) {
  folder.model.put(input.data(), input.size());
  const std::string path = folder.path() + "/model.safetensors";
  const heed::TrainSettings settings = heed::read_checkpoint_settings(path);
  const heed::TrainData data = heed::induction_data(settings);
  heed::TrainState state = heed::read_checkpoint(path, data);
  save_checkpoint(folder.scratch(), state);
  const heed::TrainState again = heed::read_checkpoint(folder.scratch(), data);
  require(again.step == state.step && again.marks.size() == state.marks.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  heed::nn::set_blas_threads(1);
  const Bytes input(data, size);
  try {
    if (!input.empty() && input[0] % 2 == 0) read_folder(folder, input.subspan(1));
    if (!input.empty() && input[0] % 2 == 1) read_training(folder, input.subspan(1));
  } catch (const heed::Error& error) {
    // Numbers that are none, which no size of a file tells, are the model's; the words may be too many for
    // its context, and the checkpoint that of a text.
    const std::string message = error.what();
    const bool expected = error.code() == heed::ErrorCode::io
                              ? message.find(folder.path()) != std::string::npos
                          : error.code() == heed::ErrorCode::invalid_argument
                              ? message.starts_with("the words has ") || message.starts_with("the text ")
                              : true;
    if (!expected) std::cerr << message << std::endl;
    require(expected);
  }
  return 0;
}
