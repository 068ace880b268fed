#include "notebook.hpp"

#include <algorithm>
#include <exception>
#include <iostream>

#include "heed/io/tensors.hpp"
#include "torch_print.hpp"

namespace lesson {

void Notebook::section(const std::string& title) { std::cout << "\n## " << title << "\n\n"; }

void Notebook::print(const heed::Vocabulary& dictionary) {
  std::cout << '{';
  for (std::int64_t id = 0; id < dictionary.size(); ++id)
    std::cout << (id > 0 ? ", '" : "'") << dictionary.word(id) << "': " << id;
  std::cout << "}\n";
}

void Notebook::print(const std::string& name, const heed::TensorView& tensor) {
  keep(name, tensor);
  std::cout << name << ":\n" << torch_text(tensor) << '\n';
}

void Notebook::print_shape(const std::string& name, const heed::TensorView& tensor) {
  keep(name, tensor);
  std::cout << name << ".shape: " << heed::to_string(tensor.shape()) << '\n';
}

// The notebooks print some tensors twice, so a name that is already stored is skipped.
void Notebook::keep(const std::string& name, const heed::TensorView& tensor) {
  if (std::ranges::find(kept_, name, &std::pair<std::string, heed::Tensor>::first) == kept_.end())
    kept_.emplace_back(name, heed::Tensor::copy_of(tensor));
}

void Notebook::save(const std::string& path) const {
  std::vector<std::pair<std::string, heed::TensorView>> views;
  for (const auto& [name, tensor] : kept_) views.emplace_back(name, tensor);
  heed::io::write_safetensors(path, views);
}

int run(int argc, char** argv, void (*lesson)(Notebook&)) {
  try {
    Notebook notebook;
    lesson(notebook);
    if (argc > 1) notebook.save(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

}  // namespace lesson
