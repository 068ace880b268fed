// The layout of `--help`: options in groups, wrapped to 80 columns, with examples at the end.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heed::cli {

/// Adds --help (which overrides all other arguments), its layout, and its closing text. Call it after all
/// options are added. Each of `uses` is one way to call the command, without its name. `examples` are printed
/// verbatim.
void finish_help(CLI::App& app, const std::vector<std::string>& uses, const std::string& examples);

}  // namespace heed::cli
