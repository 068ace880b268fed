// Reads arbitrary bytes as a GGUF file. Either the file is refused with a message that names it, or the model
// runs on three tokens, whatever it computes.
#include <cstddef>
#include <cstdint>

#include "model_folder.hpp"

namespace {

using heed::fuzz::Bytes;
using heed::fuzz::MemoryFolder;

void use(const heed::Model& model) {
  heed::fuzz::run_on_three_tokens(model);
  if (model.tokenizer() != nullptr) (void)model.tokenizer()->encode("a b");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static MemoryFolder folder;
  folder.put("m.gguf", Bytes(data, size));
  try {
    use(heed::load_model(folder / "m.gguf"));
  } catch (const heed::Error& error) {
    heed::fuzz::require_path_in(error, folder / "m.gguf");
  }
  return 0;
}
