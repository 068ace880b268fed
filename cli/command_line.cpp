#include "command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/version.hpp"
#include "help.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

std::vector<std::string> long_names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::optional<std::string> meant = nearest(word, known);
  return meant ? "; did you mean " + *meant + "?" : "";
}

void refuse_unknown_option(const CLI::App& app, const std::string& called) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty()) return;
  const std::string word = unknown[0].substr(0, unknown[0].find('='));
  if (!word.starts_with('-')) {
    refuse_usage("'", unknown[0], "' is one argument too many (see ", called, " --help)");
  }
  const std::string hint = suggestion(word, long_names_of(app));
  refuse_usage(word, " is not an option of ", called, hint.empty() ? " (see " + called + " --help)" : hint);
}

std::string words_before_options(const std::vector<std::string>& arguments) {
  std::string words;
  for (const std::string& one : arguments) {
    if (one.starts_with('-')) break;
    words += (words.empty() ? "" : " ") + one;
  }
  return words;
}

void refuse_unknown(const CLI::App& app, const std::vector<Command>& commands) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty() || unknown[0].starts_with('-')) return refuse_unknown_option(app, "heed");
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.app->get_name());
  const std::string hint = suggestion(unknown[0], names);
  const std::string words = words_before_options(unknown);
  if (hint.empty() && words.find(' ') != words.npos)
    refuse_usage("'", words, "' is not a command of heed; heed explain '", words,
                 "' shows what attention does with these words");
  refuse_usage("'", unknown[0], "' is not a command of heed", hint.empty() ? " (see heed --help)" : hint);
}

void run_chosen(const CLI::App& app, const std::vector<Command>& commands) {
  refuse_unknown(app, commands);
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    refuse_unknown_option(*command.app, "heed " + command.app->get_name());
    return command.run();
  }
  std::cout << app.help();
}

// Simplifies "--out: 1 required FILE missing" and "--out: At Most 1 required but received 2".
std::string reworded(const CLI::ArgumentMismatch& error) {
  const std::string text = error.what();
  const std::string name = text.substr(0, text.find(':'));
  return text.ends_with("missing") ? name + " needs a value" : name + " is given more than once";
}

// Only flags are converted by CLI11, which says "Could not convert: --causal = banana".
[[noreturn]] void refuse_flag_value(const CLI::ConversionError& error) {
  const std::string text = error.what();
  const std::size_t name = text.find('-'), equals = text.find(" = ");
  if (name >= equals || equals == text.npos) refuse_usage(text);
  refuse_value(text.substr(name, equals - name), text.substr(equals + 3), "true, false or no value");
}

// Old names of options, which still work, and the new ones.
struct Renamed {
  std::string_view old_name, name;
};
constexpr std::array<Renamed, 5> kRenamed = {{{"--segments-q", "--query-segments"},
                                              {"--segments-k", "--key-segments"},
                                              {"--alibi", "--alibi-slopes"},
                                              {"--grad-out", "--grad-output"},
                                              {"--dropped", "--masked-mass"}}};

const Renamed* renamed(std::string_view argument) {
  const std::string_view name = argument.substr(0, argument.find('='));
  const auto* found = std::ranges::find(kRenamed, name, &Renamed::old_name);
  return found == kRenamed.end() ? nullptr : found;
}

// Translates `heed help`, `heed help COMMAND`, `heed version`, `heed 'a sentence'` and old names of options.
// CLI11 expects arguments in reverse.
std::vector<std::string> arguments_of(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + std::min(1, argc), argv + argc);
  for (std::string& one : arguments)
    if (const Renamed* known = renamed(one)) one.replace(0, known->old_name.size(), known->name);
  if (!arguments.empty() && !arguments[0].starts_with('-') && arguments[0].find(' ') != std::string::npos)
    arguments.insert(arguments.begin(), "explain");
  if (!arguments.empty() && arguments[0] == "version") arguments[0] = "--version";
  if (!arguments.empty() && arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  return {arguments.rbegin(), arguments.rend()};
}

[[noreturn]] void print_alone(const std::string& text) {
  std::cout << text;
  throw CLI::Success();
}

void add_options_of_heed(CLI::App& app) {
  begin_group(app, "Help");
  add_choice(
      app, "--completion", completing_shells(),
      [&](std::size_t i) { print_alone(completion_script(app, completing_shells()[i])); },
      "print the script with which this shell completes the command line, and exit");
  add_text_option(
      app, "--man", "PAGE", [&](const std::string& page) { print_alone(manual_page(app, page)); },
      "print the manual page of heed or of a command, in roff, and exit");
  app.add_flag_callback(
      "-v,--version", [] { throw CLI::CallForVersion(); }, "print the version and exit");
}

// Parses the arguments and runs the chosen command.
void parse_and_run(CLI::App& app, const std::vector<Command>& commands, std::vector<std::string> arguments) {
  try {
    app.parse(std::move(arguments));
    run_chosen(app, commands);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
  } catch (const CLI::CallForAllHelp&) {
    std::cout << app.help("", CLI::AppFormatMode::All);
  } catch (const CLI::CallForVersion&) {
    std::cout << "heed " << version() << '\n';
  } catch (const CLI::Success&) {  // print_alone() printed
  } catch (const CLI::ArgumentMismatch& error) {
    refuse_usage(reworded(error));
  } catch (const CLI::ConversionError& error) {
    refuse_flag_value(error);
  } catch (const CLI::ParseError& error) {
    refuse_usage(error.what());
  }
}

}  // namespace

void tell_renamed_options(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i)
    if (const Renamed* known = renamed(argv[i]))
      std::cerr << "heed: " << known->old_name << " is called " << known->name << " now" << std::endl;
}

void run_command_line(int argc, const char* const* argv, const std::vector<AddCommand>& subcommands) {
  CLI::App app("Attention that shows its weights.", "heed");
  std::vector<Command> commands;
  for (const AddCommand& add : subcommands) commands.push_back(add(app));
  add_options_of_heed(app);
  finish_help(app, {"COMMAND [options]"}, "Each command has its own --help, with examples.\n");
  app.require_subcommand(0, 1);
  app.allow_extras();
  for (const Command& command : commands) command.app->allow_extras();
  with_standard_output([&] { parse_and_run(app, commands, arguments_of(argc, argv)); });
}

}  // namespace heed::cli
