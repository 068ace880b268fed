// Manual pages, from what --help prints.
#include <CLI/CLI.hpp>
#include <array>
#include <string_view>
#include <utility>

#include "command.hpp"
#include "heed/version.hpp"
#include "help.hpp"

namespace heed::cli {
namespace {

constexpr std::string_view kFailures = R"(.SH EXIT STATUS
.TP
0
success
.TP
1
a failure: a missing or broken file, no memory, a full disk
.TP
2
bad use: an unknown option, tensors whose shapes do not fit
.TP
130
Ctrl\-C
)";

// Roff reads these characters as commands or draws others for them, which would spoil examples that are
// copied.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kEscapes = {{{"\\", "\\e"},
                                                                                    {"-", "\\-"},
                                                                                    {"'", "\\(aq"},
                                                                                    {"`", "\\(ga"},
                                                                                    {"^", "\\(ha"},
                                                                                    {"~", "\\(ti"},
                                                                                    {"…", "\\[u2026]"}}};

std::string roff(std::string_view text) {
  std::string escaped;
  for (bool line_begins = true; !text.empty();) {
    std::string_view from = text.substr(0, 1);
    std::string_view to = line_begins && from == "." ? "\\&." : from;
    for (const auto& [character, escape] : kEscapes)
      if (text.starts_with(character)) from = character, to = escape;
    escaped += to;
    line_begins = from == "\n";
    text.remove_prefix(from.size());
  }
  return escaped;
}

std::string title_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : app.get_parent()->get_name() + "-" + app.get_name();
}

// "heed-look \- show what …", which `man -k` and `whatis` read, and the synopsis.
std::string head(const CLI::App& app, const std::string& summary) {
  std::string title = roff(title_of(app));
  for (char& letter : title) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  std::string text = ".TH " + title + " 1 \"\" \"heed " + std::string(version()) +
                     "\" \"User Commands\"\n.SH NAME\n" + roff(title_of(app)) + " \\- " + roff(summary) +
                     "\n.SH SYNOPSIS\n";
  const std::string name = app.get_parent() == nullptr ? "heed" : "heed " + app.get_name();
  std::string_view between;
  for (const std::string& use : uses_of(app)) {
    text += std::string(between) + "\\fB" + name + "\\fR " + roff(use) + "\n";
    between = ".br\n";
  }
  return text;
}

// Paragraphs are separated by empty lines.
std::string paragraphs(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  text.erase(0, text.find_first_not_of('\n'));
  text = roff(text);
  for (std::size_t end = text.find("\n\n"); end != text.npos; end = text.find("\n\n", end))
    text.replace(end, 2, "\n.PP\n");
  return text + "\n";
}

std::string option_entry(const CLI::Option& option) {
  if (!option.nonpositional())
    return ".TP\n\\fI" + roff(option.get_name(true)) + "\\fR\n" + roff(option.get_description()) + "\n";
  std::string names;
  for (const std::string& name : names_of(option))
    names += (names.empty() ? "\\fB" : ", \\fB") + roff(name) + "\\fR";
  const std::string value = option.get_type_name();
  if (!value.empty()) names += " \\fI" + roff(value) + "\\fR";
  return ".TP\n" + names + "\n" + roff(option.get_description()) + "\n";
}

std::string options(const CLI::App& app) {
  std::string text = ".SH OPTIONS\n";
  for (const std::string& title : app.get_groups()) {
    text += ".SS " + roff(title) + "\n";
    for (const CLI::Option* option : app.get_options())
      if (option->get_group() == title) text += option_entry(*option);
  }
  return text;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string subcommands(const CLI::App& heed) {
  std::string text = ".SH COMMANDS\n";
  for (const CLI::App* command : heed.get_subcommands({}))
    text += ".TP\n\\fB" + roff(title_of(*command)) + "\\fR(1)\n" +
            roff(first_line(command->get_description())) + "\n";
  return text;
}

std::string page_of(const CLI::App& app) {
  constexpr std::string_view kExamples = "Examples:\n";
  const std::string summary = first_line(app.get_description());
  const std::string more = app.get_description().substr(summary.size());
  const std::string footer = app.get_footer();
  const bool has_examples = footer.starts_with(kExamples);
  std::string text = head(app, summary) + ".SH DESCRIPTION\n" +
                     paragraphs((more.empty() ? summary : more) + (has_examples ? "" : "\n\n" + footer));
  if (app.get_parent() == nullptr) text += subcommands(app);
  text += options(app);
  if (has_examples) text += ".SH EXAMPLES\n.EX\n" + roff(footer.substr(kExamples.size())) + ".EE\n";
  text += kFailures;
  return app.get_parent() == nullptr ? text : text + ".SH SEE ALSO\n.BR heed (1)\n";
}

}  // namespace

std::string manual_page(const CLI::App& heed, const std::string& page) {
  if (page == "heed") return page_of(heed);
  for (const CLI::App* command : heed.get_subcommands({}))
    if (command->get_name() == page) return page_of(*command);
  refuse_usage("--man is '", page, "'; heed or one of its commands is expected (see heed --help)");
}

}  // namespace heed::cli
