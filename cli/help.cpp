#include "help.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kWidth = 80;
constexpr int kColumn = 30;  // start column of the explanations

// "  name" padded to kColumn, then the wrapped text.
std::string entry(const std::string& name, const std::string& text) {
  std::string line = "  " + name;
  const int length = display_width(line);
  const std::string margin(kColumn, ' ');
  line += length + 1 < kColumn ? margin.substr(static_cast<std::size_t>(length)) : '\n' + margin;
  return line + wrap(text, kWidth, kColumn) + '\n';
}

std::string left_column(const CLI::Option& option) {
  if (!option.nonpositional()) return option.get_name(true);
  const std::string name = detail::joined_texts(names_of(option), ", ");
  return option.get_type_name().empty() ? name : name + " " + option.get_type_name();
}

std::string usage(const std::string& name, const std::vector<std::string>& uses) {
  std::string text;
  for (const std::string& use : uses)
    text += (text.empty() ? "Usage: " : "       ") + name + " " + use + "\n";
  return text;
}

std::string commands(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string description = command->get_description();
    text += entry(command->get_name(), description.substr(0, description.find('\n')));
  }
  return text.empty() ? text : "\nCommands:\n" + text;
}

std::string group(const CLI::App& app, const std::string& name) {
  std::string text = "\n" + name + ":\n";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() == name) text += entry(left_column(*option), option->get_description());
  }
  return text;
}

class Layout : public CLI::Formatter {
 public:
  Layout(std::vector<std::string> uses, HelpOverview overview)
      : uses_(std::move(uses)), overview_(std::move(overview)) {}

  [[nodiscard]] const std::vector<std::string>& uses() const { return uses_; }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    if (mode != CLI::AppFormatMode::All && !overview_.options.empty()) return overview(*app, name);
    std::string text = wrap(app->get_description(), kWidth, 0) + "\n\n" + usage(name, uses_) + commands(*app);
    for (const std::string& title : app->get_groups()) text += group(*app, title);
    return text + "\n" + app->get_footer();
  }

 private:
  [[nodiscard]] std::string overview(const CLI::App& app, const std::string& name) const {
    const std::string description = app.get_description();
    std::string text = description.substr(0, description.find('\n')) + "\n\n" + usage(name, uses_) + "\n" +
                       overview_.examples + "\nMost used:\n";
    for (const std::string& option : overview_.options)
      text += entry(left_column(*app.get_option(option)), app.get_option(option)->get_description());
    return text + "\n" + name + " --help-all lists all " + std::to_string(app.get_options().size()) +
           " options, with more examples.\n";
  }

  std::vector<std::string> uses_;
  HelpOverview overview_;
};

}  // namespace

void finish_help(CLI::App& app, const std::vector<std::string>& uses, const std::string& examples,
                 const HelpOverview& overview) {
  app.set_help_flag("");
  app.add_flag_callback(
         "-h,--help", [] { throw CLI::CallForHelp(); }, "print this and exit")
      ->group("Help")
      ->trigger_on_parse();
  if (!overview.options.empty())
    app.add_flag_callback(
           "--help-all", [] { throw CLI::CallForAllHelp(); }, "print all options and exit")
        ->group("Help")
        ->trigger_on_parse();
  app.formatter(std::make_shared<Layout>(uses, overview));
  app.footer(examples);
}

const std::vector<std::string>& uses_of(const CLI::App& app) {
  return dynamic_cast<const Layout&>(*app.get_formatter()).uses();
}

std::vector<std::string> names_of(const CLI::Option& option) {
  return split(option.get_name(false, true), ',');
}

}  // namespace heed::cli
