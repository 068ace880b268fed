// Options whose values are checked, with messages that name the option, what it was, and what was expected.
//
// CLI11 parses the command line. Its headers take a compiler seconds: sources include this one in their
// place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace heed::cli {

/// A whole number, or nothing where the text is anything else.
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text);

/// Two whole numbers of at least `least` with `separator` between them. Throws UsageError, naming the option,
/// what it was and what is `expected`, where the text is anything else.
[[nodiscard]] std::pair<std::int64_t, std::int64_t> integer_pair(const std::string& option,
                                                                 const std::string& text, char separator,
                                                                 std::int64_t least,
                                                                 const std::string& expected);

/// A subcommand of `heed`.
CLI::App* add_command(CLI::App& heed, const std::string& name, const std::string& description);

/// An option that was just added: `->` says more of it.
class AddedOption {
 public:
  explicit AddedOption(CLI::Option* option) : option_(option) {}

  /// The heading that it has in the help.
  const AddedOption& group(const std::string& name) const;
  /// What stands for its value there.
  const AddedOption& type_name(const std::string& name) const;
  const AddedOption* operator->() const { return this; }

 private:
  CLI::Option* option_;
};

/// Both ends belong to it.
struct IntegerRange {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

/// Adds `name N`: a whole number in the range.
AddedOption add_integer(CLI::App& app, const std::string& name, IntegerRange range,
                        std::function<void(std::int64_t)> store, const std::string& help);

/// Adds `name X`: a finite number.
AddedOption add_real(CLI::App& app, const std::string& name, std::function<void(double)> store,
                     const std::string& help);

/// Adds `name A|B|…`: `store` gets the index of the word chosen.
AddedOption add_choice(CLI::App& app, const std::string& name, std::vector<std::string> words,
                       std::function<void(std::size_t)> store, const std::string& help);

/// Adds `name VALUE`: text that is not empty; `value` stands for it in the help.
AddedOption add_text(CLI::App& app, const std::string& name, const std::string& value, std::string& target,
                     const std::string& help);

/// Adds `name VALUE`: `parse` takes the text, and throws UsageError where it is wrong.
AddedOption add_text_option(CLI::App& app, const std::string& name, const std::string& value,
                            std::function<void(const std::string&)> parse, const std::string& help);

/// The same, for an option that may be given several times, or whose value may be left out (it is then
/// empty).
AddedOption add_texts_option(CLI::App& app, const std::string& name, const std::string& value,
                             std::function<void(const std::vector<std::string>&)> parse,
                             const std::string& help);
AddedOption add_optional_text(CLI::App& app, const std::string& name, const std::string& value,
                              std::function<void(const std::string&)> parse, const std::string& help);

/// Adds `name`, which takes no value.
AddedOption add_flag(CLI::App& app, const std::string& name, bool& target, const std::string& help);
AddedOption add_flag(CLI::App& app, const std::string& name, std::function<void()> given,
                     const std::string& help);

/// Adds an argument without an option's name; the vector takes all that are left. With the name of an option,
/// one whose text may be empty.
AddedOption add_argument(CLI::App& app, const std::string& name, std::string& target,
                         const std::string& help);
AddedOption add_argument(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                         const std::string& help);

/// Whether it is on the command line.
[[nodiscard]] bool given(const CLI::App& app, const std::string& name);

struct GivenOption {
  std::string name;
  std::string group;
  bool positional = false;
  std::vector<std::string> values;  ///< none: a flag
};
/// Those on the command line, in the order of the help.
[[nodiscard]] std::vector<GivenOption> given_options(const CLI::App& app);

/// Throws UsageError where the option was not given; `meaning` says what it is for.
void require_option(const CLI::App& app, const std::string& name, const std::string& meaning);

}  // namespace heed::cli
