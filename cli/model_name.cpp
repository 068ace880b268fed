#include "model_name.hpp"

#include <filesystem>
#include <iostream>

#include "command.hpp"
#include "heed/model/model.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

void check_document_name(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  if (path.ends_with(".gguf") || (is_folder && std::filesystem::exists(path + "/config.json", error)))
    refuse_usage("DOC is '", path, "', which is a model; --model before it and words after it are expected");
  const bool looks_like_words = path.find(' ') != path.npos || !std::filesystem::path(path).has_extension();
  if (looks_like_words && !std::filesystem::exists(path, error))
    refuse_usage("DOC is '", path,
                 "', which does not exist; for words, --model DIR is expected before them (--model "
                 "induction comes with heed)");
}

}  // namespace

std::vector<std::string> shipped_models() { return {"induction", "stories"}; }

void add_model_option(CLI::App& app, std::string& target, const std::string& help) {
  add_text(app, "--model", "DIR", target, help)->words(shipped_models());
}

std::string model_file(const std::string& name) {
  const std::string folder = model_folder(name);
  return folder.ends_with(".gguf") ? folder : folder + "/model.safetensors";
}

void check_document(const std::string& command, const std::string& path,
                    const std::vector<std::string>& words) {
  if (!path.empty()) check_document_name(path);
  if (!words.empty())
    refuse_usage("'", words[0], "' is one argument too many (see heed ", command, " --help)");
}

heed::Model read_model(const std::string& name, bool fast) {
  heed::Model model = load_model(name, {fast});
  for (const std::string& note : model.info().notes) std::cerr << "heed: " << printable(note) << std::endl;
  return model;
}

}  // namespace heed::cli
