// A folder that heed.transformers.capture(to=…) wrote: a safetensors file for each call of a layer.
#pragma once

#include <string>

#include "look/arguments.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// Whether a path is a folder.
[[nodiscard]] bool is_folder(const std::string& path);

/// Prints of each call its layer, what it holds and, head by head, the means over its rows: of all calls, or
/// those of
/// --layer. Throws Error (io) for a folder that holds no calls, and for a file that is none.
void look_at_run(const TextOutput& output, const LookArguments& arguments);

}  // namespace heed::cli
