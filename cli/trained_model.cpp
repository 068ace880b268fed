#include "trained_model.hpp"

#include <filesystem>

#include "command.hpp"

namespace heed::cli {

std::string model_folder(const std::string& name) {
  if (name != "induction" && name != "stories") return name;
  std::error_code error;
  const std::filesystem::path command = std::filesystem::read_symlink("/proc/self/exe", error);
  return (command.parent_path() / HEED_MODELS_FROM_COMMAND / name).lexically_normal().string();
}

std::string model_file(const std::string& name) {
  const std::string folder = model_folder(name);
  return folder.ends_with(".gguf") ? folder : folder + "/model.safetensors";
}

void refuse_model(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  if (path.ends_with(".gguf") || (is_folder && std::filesystem::exists(path + "/config.json", error)))
    throw UsageError("DOC is '" + path +
                     "', which is a model; --model before it, and words behind it, are expected");
}

heed::Model read_model(const std::string& name) { return load_model(model_folder(name)); }

TrainedModel read_trained_model(const std::string& name) { return load_trained_model(model_folder(name)); }

}  // namespace heed::cli
