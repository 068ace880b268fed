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
  std::string name;
  for (const std::string& word : split(option.get_name(false, true), ',')) {
    name += (name.empty() ? "" : ", ") + word;
  }
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
  explicit Layout(std::vector<std::string> uses) : uses_(std::move(uses)) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode /*mode*/) const override {
    std::string text = wrap(app->get_description(), kWidth, 0) + "\n\n" + usage(name, uses_) + commands(*app);
    for (const std::string& title : app->get_groups()) text += group(*app, title);
    return text + "\n" + app->get_footer();
  }

 private:
  std::vector<std::string> uses_;
};

}  // namespace

void finish_help(CLI::App& app, const std::vector<std::string>& uses, const std::string& examples) {
  app.set_help_flag("");
  app.add_flag_callback(
         "-h,--help", [] { throw CLI::CallForHelp(); }, "print this and exit")
      ->group("Help")
      ->trigger_on_parse();
  app.formatter(std::make_shared<Layout>(uses));
  app.footer(examples);
}

}  // namespace heed::cli
