// Resolves a model's name: a folder, a file, or a model that comes with heed.
#include "io/model_folder.hpp"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <string_view>

#include "heed/io/model_folder.hpp"
#include "io/fault.hpp"

namespace heed {
namespace {

namespace fs = std::filesystem;

// The file that holds this function: the command, the library or Python's module.
fs::path own_file() {
  Dl_info info = {};
  link_map* map = nullptr;
  const auto* here = reinterpret_cast<const void*>(&own_file);
  if (dladdr1(here, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return {};
  const bool is_program = map->l_name == nullptr || map->l_name[0] == '\0';
  std::error_code error;
  return fs::canonical(is_program ? "/proc/self/exe" : map->l_name, error);
}

// Whether huggingface.co could have a repository of that name: NAME or OWNER/NAME.
bool may_be_repository(const std::string& name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
  const std::size_t slash = name.find('/');
  return !name.empty() && name.find_first_not_of(kLetters) == name.npos && name.front() != '.' &&
         slash != 0 && slash + 1 != name.size() && slash == name.rfind('/');
}

}  // namespace

bool comes_with_heed(const std::string& name) { return name == "induction" || name == "stories"; }

std::string model_folder(const std::string& name) {
  std::error_code error;
  if (!comes_with_heed(name) || fs::is_directory(name, error)) return name;
  const fs::path folder = own_file().parent_path();
  // Relative to bin or lib, to lib/TRIPLET or a build's python/heed, and inside the package of a wheel.
  for (const char* models : {"../share/heed", "../../share/heed", "command/share/heed"}) {
    const fs::path found = (folder / models / name).lexically_normal();
    if (fs::is_directory(found, error)) return found.string();
  }
  return name;
}

void detail::fail_without_folder(const std::string& name) {
  const std::string subject = io::detail::subject_of(name);
  std::error_code error;
  if (comes_with_heed(name))
    io::detail::fail(subject,
                     "comes with heed, but is not installed beside it; the path of its folder is expected");
  if (fs::exists(name, error) || !may_be_repository(name))
    io::detail::fail(subject,
                     "is not a folder; a model folder with config.json, or a GGUF file, is expected");
  const std::string folder = name.substr(name.rfind('/') + 1);
  io::detail::fail(subject, "is not a folder; these two lines fetch the model of that name, and ./", folder,
                   " is expected then:\n  pip install huggingface_hub\n  hf download ", name,
                   " --include '*.json' '*.safetensors' --local-dir ", folder);
}

}  // namespace heed
