// Names of models that are not folders.
#pragma once

#include <string>

#include "heed/export.hpp"

namespace heed::detail {

/// Throws Error (io) for a name that is no folder: what to type for a model of huggingface.co.
[[noreturn]] HEED_API void fail_without_folder(const std::string& name);

}  // namespace heed::detail
