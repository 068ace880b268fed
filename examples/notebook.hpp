// A notebook shared by the first five lessons: it prints named tensors as PyTorch does and stores them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heed/io/vocabulary.hpp"
#include "heed/tensor.hpp"

namespace lesson {

class Notebook {
 public:
  /// Prints a heading.
  static void section(const std::string& title);
  /// Prints the words and their ids: "{'Life': 0, 'dessert': 1, …}".
  static void print(const heed::Vocabulary& dictionary);
  /// Prints "name:" and the tensor as PyTorch prints it. Also stores the tensor.
  void print(const std::string& name, const heed::TensorView& tensor);
  /// Prints only the shape, "name.shape: [6, 24]". Also stores the tensor.
  void print_shape(const std::string& name, const heed::TensorView& tensor);
  /// Stores the tensor without printing it.
  void keep(const std::string& name, const heed::TensorView& tensor);

  /// Writes all stored tensors to a safetensors file.
  void save(const std::string& path) const;

 private:
  std::vector<std::pair<std::string, heed::Tensor>> kept_;
};

/// The main() of every lesson: runs the lesson. `program FILE` also writes its tensors to FILE (safetensors).
/// Returns 0, or 1 after printing the error to standard error.
int run(int argc, char** argv, void (*lesson)(Notebook&));

}  // namespace lesson
