#include "trained_model.hpp"

#include <filesystem>

namespace heed::cli {

std::string model_folder(const std::string& name) {
  if (name != "induction" && name != "stories") return name;
  std::error_code error;
  const std::filesystem::path command = std::filesystem::read_symlink("/proc/self/exe", error);
  return (command.parent_path() / HEED_MODELS_FROM_COMMAND / name).lexically_normal().string();
}

heed::Model read_model(const std::string& name) { return load_model(model_folder(name)); }

TrainedModel read_trained_model(const std::string& name) { return load_trained_model(model_folder(name)); }

}  // namespace heed::cli
