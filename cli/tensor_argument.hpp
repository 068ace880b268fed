// Tensors named on the command line: FILE.npy, FILE.safetensors:NAME, or - for a .npy file on standard input.
#pragma once

#include <string>

#include "heed/tensor.hpp"

namespace heed::cli {

struct TensorArgument {
  std::string file;  ///< "-": standard input
  std::string name;  ///< of the tensor in a safetensors file; empty for a .npy file
};

/// Throws UsageError, naming the option, if the text has neither form.
[[nodiscard]] TensorArgument tensor_argument(const std::string& option, const std::string& text);

/// Throws Error (io) if the file cannot be read or has no such tensor.
[[nodiscard]] Tensor read_tensor(const TensorArgument& argument);

}  // namespace heed::cli
