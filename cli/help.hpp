// The layout of `--help`: options in groups, wrapped to 80 columns, with examples at the end. Manual pages
// and the completion by shells take its options.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace heed::cli {

/// A first page for a command with many options.
struct HelpOverview {
  std::string examples;              ///< by what is asked, printed verbatim
  std::vector<std::string> options;  ///< the most used ones
};
/// Adds --help (which overrides all other arguments), its layout, and its closing text. Call it after all
/// options are added. Each of `uses` is one way to call the command, without its name. `examples` are printed
/// verbatim.
/// With an overview, --help prints it, and --help-all what --help prints otherwise.
void finish_help(CLI::App& app, const std::vector<std::string>& uses, const std::string& examples,
                 const HelpOverview& overview = {});

/// The ways to call a command after finish_help(), without its name.
[[nodiscard]] const std::vector<std::string>& uses_of(const CLI::App& app);
/// The names of an option: {"-h", "--help"}.
[[nodiscard]] std::vector<std::string> names_of(const CLI::Option& option);

/// The manual page in roff of heed, or of its subcommand `page` (manual.cpp). Throws UsageError if there is
/// none.
[[nodiscard]] std::string manual_page(const CLI::App& heed, const std::string& page);

[[nodiscard]] const std::vector<std::string>& completing_shells();
/// The completion script of heed for one of these shells (completion.cpp). It offers commands, options, and
/// the words, files or folders that an option takes.
[[nodiscard]] std::string completion_script(const CLI::App& heed, const std::string& shell);

}  // namespace heed::cli
