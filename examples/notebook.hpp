// What the five programs share: they print named tensors as a notebook does, and remember them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heed/tensor.hpp"
#include "heed/vocabulary.hpp"

namespace lesson {

class Notebook {
 public:
  /// A heading.
  static void section(const std::string& title);
  /// "{'Life': 0, 'dessert': 1, …}".
  static void print(const heed::Vocabulary& dictionary);
  /// "name:" and the tensor as PyTorch prints it.
  void print(const std::string& name, const heed::TensorView& tensor);
  /// "name.shape: [6, 24]" alone.
  void print_shape(const std::string& name, const heed::TensorView& tensor);
  /// Remembers without printing.
  void keep(const std::string& name, const heed::TensorView& tensor);

  /// Writes what was printed or kept to a safetensors file.
  void save(const std::string& path) const;

 private:
  std::vector<std::pair<std::string, heed::Tensor>> kept_;
};

/// The main() of every program: runs the lesson; `program FILE` also writes its tensors to FILE
/// (safetensors). Returns 0, or 1 after saying on standard error what failed.
int run(int argc, char** argv, void (*lesson)(Notebook&));

}  // namespace lesson
