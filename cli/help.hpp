// How `--help` looks: grouped, wrapped to 80 columns, with examples at the end.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace heed::cli {

/// Gives the command its --help (which wins over every other argument), its layout, and its closing text.
/// Call it when all options are added. `examples` are printed as they are.
void finish_help(CLI::App& app, const std::string& examples);

}  // namespace heed::cli
