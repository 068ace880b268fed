#include "tensor_argument.hpp"

#include <string_view>

#include "command.hpp"
#include "heed/io/tensors.hpp"

namespace heed::cli {

TensorArgument tensor_argument(const std::string& option, const std::string& text) {
  constexpr std::string_view kSuffix = ".safetensors";
  if (text == "-" || text.ends_with(".npy")) return {text, ""};
  const std::size_t suffix = text.find(std::string(kSuffix) + ":");
  if (suffix != std::string::npos) {
    const std::size_t colon = suffix + kSuffix.size();
    if (colon + 1 < text.size()) return {text.substr(0, colon), text.substr(colon + 1)};
  }
  if (text.ends_with(kSuffix) || suffix != std::string::npos) {
    refuse_usage(option, " is '", text, "', which does not say which tensor of the file; FILE", kSuffix,
                 ":NAME is expected");
  }
  refuse_usage(option, " is '", text,
               "'; FILE.npy, FILE.safetensors:NAME or - (a .npy file on standard input) is expected");
}

Tensor read_tensor(const TensorArgument& argument) {
  if (argument.name.empty()) return io::read_npy(argument.file);
  return io::SafetensorsReader(argument.file).read(argument.name);
}

}  // namespace heed::cli
