// Names of models that are not folders.
#pragma once

#include <string>

namespace heed::detail {

/// Throws Error (io) for a name that is not a folder. The message tells what to type for a model of
/// huggingface.co.
[[noreturn]] void fail_without_folder(const std::string& name);

}  // namespace heed::detail
