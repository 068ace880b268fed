// Completion of the command line by shells, from the options of the help.
#include <CLI/CLI.hpp>
#include <string_view>

#include "help.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

// The kinds of values that shells can complete.
enum class Taken { nothing, text, file, folder };

// A value that may be left out counts as nothing: the next word is then completed as any other.
Taken taken_by(const CLI::Option& option) {
  if (option.nonpositional() && option.get_expected_min() == 0) return Taken::nothing;
  const std::string value = option.nonpositional() ? option.get_type_name() : option.get_name(true);
  if (value == "DIR") return Taken::folder;
  const bool names_file = value.find("FILE") != value.npos || value.starts_with("DOC") || value == "TENSOR";
  return names_file ? Taken::file : Taken::text;
}

// The beginning of an explanation, without the shape that some begin with: "[H]: one extra logit …".
std::string brief(std::string text) {
  const std::size_t shape = text.starts_with('[') ? text.find("]: ") : text.npos;
  if (shape != text.npos) text.erase(0, shape + 3);
  for (const char* end : {"; ", " (", ": ", ". ", "\n"}) text = text.substr(0, text.find(end));
  return text;
}

std::string quoted(const std::string& text, const std::string& quote) {
  std::string result = "'";
  for (const char letter : text) result += letter == '\'' ? quote : std::string(1, letter);
  return result + "'";
}

std::vector<const CLI::App*> with_subcommands(const CLI::App& heed) {
  std::vector<const CLI::App*> apps = {&heed};
  for (const CLI::App* command : heed.get_subcommands({})) apps.push_back(command);
  return apps;
}

// "look", and nothing for heed itself.
std::string command_name(const CLI::App& app) { return app.get_parent() == nullptr ? "" : app.get_name(); }

std::string option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (option->nonpositional())
      for (const std::string& name : names_of(*option)) names.push_back(name);
  return joined_words(names);
}

std::string subcommand_names(const CLI::App& heed) {
  std::vector<std::string> names;
  for (const CLI::App* command : heed.get_subcommands({})) names.push_back(command->get_name());
  return joined_words(names);
}

// Bash

constexpr std::string_view kBashBegin = R"(# Completion of heed for bash; printed by heed --completion bash.
_heed() {
  local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command= options= words= takes=
  # Bash splits --name=value at the sign.
  if [[ $cur == '=' ]]; then cur=; elif [[ $previous == '=' ]]; then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi
  if ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[1]} != -* ]]; then command=${COMP_WORDS[1]}; fi
  case $command in
)";
constexpr std::string_view kBashEnd = R"(  esac
  COMPREPLY=()
  if [[ $takes == '' && $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    return
  fi
  if [[ $takes == text ]]; then compopt +o default 2>/dev/null; fi
  if [[ $takes == folder ]]; then compopt -o filenames 2>/dev/null; fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"; if [[ $takes == folder ]]; then compgen -d -- "$cur"; fi)
}
complete -o default -F _heed heed
)";
constexpr std::string_view kBashTaken[] = {"", "text", "file", "folder"};
static_assert(std::size(kBashTaken) == 1 + static_cast<std::size_t>(Taken::folder));

std::string bash_option(const CLI::Option& option) {
  return "      " + detail::joined_texts(names_of(option), "|") +
         ") takes=" + std::string(kBashTaken[static_cast<std::size_t>(taken_by(option))]) + " words='" +
         joined_words(words_of(option)) + "' ;;\n";
}

std::string bash_command(const CLI::App& app) {
  std::string positional = app.get_parent() == nullptr ? subcommand_names(app) : "", cases;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->nonpositional())
      positional += joined_words(words_of(*option));
    else if (taken_by(*option) != Taken::nothing)
      cases += bash_option(*option);
  }
  return "    " + quoted(command_name(app), "") + ")\n      options='" + option_names(app) +
         "'\n      words='" + positional + "'\n      case $previous in\n" + cases + "      esac ;;\n";
}

std::string bash(const CLI::App& heed) {
  std::string text(kBashBegin);
  for (const CLI::App* app : with_subcommands(heed)) text += bash_command(*app);
  return text.append(kBashEnd);
}

// Zsh

constexpr std::string_view kZshEnd = R"(  esac
}
if [[ $funcstack[1] == _heed ]]; then _heed "$@"; else compdef _heed heed; fi
)";

std::string zsh_action(const CLI::Option& option) {
  const std::string words = joined_words(words_of(option));
  switch (taken_by(option)) {
    case Taken::nothing:
      return "";
    case Taken::file:
      return "_files";
    case Taken::folder:
      return words.empty() ? "_files -/" : "{compadd -- " + words + "; _files -/}";
    case Taken::text:
      return words.empty() ? " " : "(" + words + ")";
  }
  return "";
}

std::string zsh_option(const CLI::Option& option) {
  std::string about, text;
  for (const char letter : brief(option.get_description()))
    about += (letter == '[' || letter == ']' ? "\\" : "") + std::string(1, letter);
  const std::string repeat = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ? "*" : "";
  const std::string action = zsh_action(option);
  for (const std::string& name : names_of(option))
    text += "        " +
            quoted(repeat + name + "[" + about + "]" + (action.empty() ? "" : ":value:" + action), "'\\''") +
            " \\\n";
  return text;
}

std::string zsh_command(const CLI::App& app) {
  std::string options, positional = "_files";
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional())
      options += zsh_option(*option);
    else if (!words_of(*option).empty())
      positional = zsh_action(*option);
  }
  if (app.get_parent() == nullptr) return "    *)\n      _arguments \\\n" + options + "        ;;\n";
  return "    " + app.get_name() + ")\n      _arguments \\\n" + options +
         "        '*:argument:" + positional + "' ;;\n";
}

std::string zsh(const CLI::App& heed) {
  std::string text =
      "#compdef heed\n# Completion of heed for zsh; printed by heed --completion zsh.\n_heed() {\n  local -a "
      "commands=(\n";
  std::string cases;
  for (const CLI::App* command : heed.get_subcommands({})) {
    text += "    " + quoted(command->get_name() + ":" + brief(command->get_description()), "'\\''") + "\n";
    cases += zsh_command(*command);
  }
  text +=
      "  )\n  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then _describe -t commands command commands; "
      "return; fi\n"
      "  local command=$words[2]\n  if [[ $command != -* ]]; then shift words; ((CURRENT--)); fi\n  case "
      "$command in\n";
  return text + cases + zsh_command(heed) + std::string(kZshEnd);
}

// Fish

constexpr std::string_view kFishBegin = R"(# Completion of heed for fish; printed by heed --completion fish.
function __heed_command
    set -l words (commandline -opc)
    test (string match -r '^[a-z]*' -- "$words[2]") = "$argv[1]"
end
complete -c heed -n '__heed_command ""' -f
)";

std::string fish_value(const CLI::Option& option) {
  const std::string words = joined_words(words_of(option));
  switch (taken_by(option)) {
    case Taken::nothing:
      return "";
    case Taken::file:
      return " -r -F";
    case Taken::folder:
      return " -x -a '" + words + (words.empty() ? "" : " ") + "(__fish_complete_directories)'";
    case Taken::text:
      return " -x" + (words.empty() ? "" : " -a '" + words + "'");
  }
  return "";
}

std::string fish_command(const CLI::App& app) {
  const std::string name = command_name(app);
  const std::string begin = "complete -c heed -n '__heed_command " + (name.empty() ? "\"\"" : name) + "'";
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    std::string names;
    for (const std::string& one : option->nonpositional() ? names_of(*option) : std::vector<std::string>())
      names += one.starts_with("--") ? " -l " + one.substr(2) : " -s " + one.substr(1);
    if (names.empty() && words_of(*option).empty()) continue;
    text +=
        begin + names + fish_value(*option) + " -d " + quoted(brief(option->get_description()), "\\'") + "\n";
  }
  return text;
}

std::string fish(const CLI::App& heed) {
  std::string text(kFishBegin);
  for (const CLI::App* command : heed.get_subcommands({}))
    text += "complete -c heed -n '__heed_command \"\"' -a " + command->get_name() + " -d " +
            quoted(brief(command->get_description()), "\\'") + "\n";
  for (const CLI::App* app : with_subcommands(heed)) text += fish_command(*app);
  return text;
}

}  // namespace

const std::vector<std::string>& completing_shells() {
  static const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  return shells;
}

std::string completion_script(const CLI::App& heed, const std::string& shell) {
  if (shell == "bash") return bash(heed);
  return shell == "zsh" ? zsh(heed) : fish(heed);
}

}  // namespace heed::cli
