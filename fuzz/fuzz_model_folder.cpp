// Reads arbitrary bytes as a Hugging Face model folder. Either it is refused with a message that names the
// folder, or the model runs on three tokens, whatever it computes.
//
// An input begins with the lengths of config.json and model.safetensors.index.json (two bytes each). Length 0
// means that there is no index. These two files and model.safetensors follow.
#include <cstddef>
#include <cstdint>

#include "model_folder.hpp"

using heed::fuzz::Bytes;
using heed::fuzz::MemoryFolder;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static MemoryFolder folder;
  Bytes input(data, size);
  folder.put("config.json", heed::fuzz::next_part(input));
  const Bytes index = heed::fuzz::next_part(input);
  folder.remove("model.safetensors.index.json");
  if (!index.empty()) folder.put("model.safetensors.index.json", index);
  folder.put("model.safetensors", input);
  try {
    heed::fuzz::run_on_three_tokens(heed::load_model(folder.path()));
  } catch (const heed::Error& error) {
    heed::fuzz::require_path_in(error, folder.path());
  }
  return 0;
}
