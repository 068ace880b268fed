// How `--help` looks: grouped, wrapped to 80 columns, with examples at the end.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heed::cli {

/// Gives the command its --help (which wins over every other argument), its layout, and its closing text.
/// Call it when all options are added. `uses` are the ways to call it, each what stands behind its name;
/// `examples` are printed as they are.
void finish_help(CLI::App& app, const std::vector<std::string>& uses, const std::string& examples);

}  // namespace heed::cli
