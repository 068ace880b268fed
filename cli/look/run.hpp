// Folders from heed.transformers.capture(to=…), with one safetensors file per call of a layer.
#pragma once

#include <string>

#include "look/arguments.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// Whether a path is a folder.
[[nodiscard]] bool is_folder(const std::string& path);

/// Prints each call's layer, its contents and, for each head, the means over its rows. --layer selects the
/// calls of one layer. Throws Error (io) for a folder without calls, and for a file that is no captured call.
void look_at_run(const TextOutput& output, const LookArguments& arguments);

}  // namespace heed::cli
