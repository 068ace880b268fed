// Reads arbitrary bytes as the files of `heed generate`, `heed explain --model` and `heed train --resume`.
// Either the files are refused with a message that names the faulty one, or they work. A model then generates
// and is looked at; a training is saved again unchanged.
//
// The first byte of an input chooses the kind. For a checkpoint, all other bytes are the file. For a model
// folder, the lengths of config.json and vocabulary.json follow (two bytes each), then these two files, then
// model.safetensors.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>

#include "heed/model/generate.hpp"
#include "heed/model/look.hpp"
#include "heed/nn/layers.hpp"
#include "heed/nn/train.hpp"
#include "heed/nn/trained_model.hpp"
#include "model_folder.hpp"

extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace {

using heed::fuzz::Bytes;
using heed::fuzz::MemoryFolder;
using heed::fuzz::next_part;
using heed::fuzz::require;

/// A short text that the model accepts: one word, three times if the context allows, or its first and last
/// characters.
std::string words_for(const heed::TrainedModel& trained) {
  const heed::TrainedTokenizer& tokenizer = trained.tokenizer;
  if (tokenizer.is_symbols()) return trained.settings.context > 2 ? "to to to" : "to";
  return tokenizer.text_of(0, {}) +
         (trained.settings.context > 1 ? tokenizer.text_of(tokenizer.size() - 1, {}) : "");
}

// Uses the model as the commands do.
void use(const heed::Model& model, const std::string& words) {
  (void)look_at_text(model, model.tokenize(words, "the words"));
  (void)generate(model, words, {.tokens = 3, .watch = 2}, {}, "the words");
}

void read_folder(MemoryFolder& folder, Bytes input) {
  folder.put("config.json", next_part(input));
  folder.put("vocabulary.json", next_part(input));
  folder.put("model.safetensors", input);
  const heed::TrainedModel trained = heed::load_trained_model(folder.path());
  use(heed::load_model(folder.path()), words_for(trained));
}

void read_training(MemoryFolder& folder, Bytes input) {
  folder.put("model.safetensors", input);
  const std::string path = folder / "model.safetensors", scratch = folder / "scratch.safetensors";
  const heed::TrainSettings settings = heed::read_checkpoint_settings(path);
  const heed::TrainData data = heed::induction_data(settings);
  heed::TrainState state = heed::read_checkpoint(path, data);
  save_checkpoint(scratch, state);
  const heed::TrainState again = heed::read_checkpoint(scratch, data);
  require(again.step == state.step && again.marks.size() == state.marks.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static MemoryFolder folder;
  heed::nn::set_blas_threads(1);
  const Bytes input(data, size);
  try {
    if (!input.empty() && input[0] % 2 == 0) read_folder(folder, input.subspan(1));
    if (!input.empty() && input[0] % 2 == 1) read_training(folder, input.subspan(1));
  } catch (const heed::Error& error) {
    // An io error must name the folder. Non-finite weights show only when the model runs, with another code.
    // A checkpoint may be of a text; its message starts with "the text".
    const std::string message = error.what();
    const bool expected =
        error.code() == heed::ErrorCode::io                 ? message.find(folder.path()) != std::string::npos
        : error.code() == heed::ErrorCode::invalid_argument ? message.starts_with("the text ")
                                                            : true;
    if (!expected) std::cerr << message << std::endl;
    require(expected);
  }
  return 0;
}
