// Checked options. Error messages give the option, its value, and the expected form.
//
// CLI11 parses the command line. Its headers are slow to compile, so sources include this header instead.
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

/// A whole number, or nothing if the text is anything else.
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text);
/// The whole numbers between separators; none if a part is anything else.
[[nodiscard]] std::vector<std::int64_t> whole_numbers(std::string_view text, char separator);
/// A finite number, or nothing if the text is anything else.
[[nodiscard]] std::optional<double> finite_number(std::string_view text);

/// Parses two whole numbers of at least `least`, separated by `separator`. Throws UsageError otherwise,
/// naming the option, the text and what is `expected`.
[[nodiscard]] std::pair<std::int64_t, std::int64_t> integer_pair(const std::string& option,
                                                                 const std::string& text, char separator,
                                                                 std::int64_t least,
                                                                 const std::string& expected);

CLI::App* add_command(CLI::App& heed, const std::string& name, const std::string& description);

/// Sets the help's heading of options that are added from now on.
void begin_group(CLI::App& app, const std::string& name);

/// An option that was just added; `->` sets further properties.
class AddedOption {
 public:
  explicit AddedOption(CLI::Option* option) : option_(option) {}

  /// Sets the placeholder of its value in the help.
  const AddedOption& type_name(const std::string& name) const;
  /// Sets the words that shells complete its value with.
  const AddedOption& words(const std::vector<std::string>& words) const;
  const AddedOption* operator->() const { return this; }

 private:
  CLI::Option* option_;
};

/// The words that shells complete the option's value with.
[[nodiscard]] std::vector<std::string> words_of(const CLI::Option& option);

struct IntegerRange {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

/// Adds `name N`: a whole number in the range.
AddedOption add_integer(CLI::App& app, const std::string& name, IntegerRange range,
                        std::function<void(std::int64_t)> store, const std::string& help);

template <class Target>
requires std::assignable_from<Target&, std::int64_t> AddedOption add_integer(
    CLI::App& app, const std::string& name, IntegerRange range, Target& target, const std::string& help) {
  return add_integer(
      app, name, range, [&target](std::int64_t n) { target = static_cast<Target>(n); }, help);
}

/// Adds `name N`: any whole number of 64 bits without a sign.
AddedOption add_seed(CLI::App& app, const std::string& name, std::function<void(std::uint64_t)> store,
                     const std::string& help);

/// Adds `name X`: a finite number.
AddedOption add_real(CLI::App& app, const std::string& name, std::function<void(double)> store,
                     const std::string& help);
template <class Target>
requires std::assignable_from<Target&, double> AddedOption add_real(CLI::App& app, const std::string& name,
                                                                    Target& target, const std::string& help) {
  return add_real(
      app, name, [&target](double x) { target = x; }, help);
}

/// Adds `name A|B|…`; `store` gets the index of the chosen word. A prefix that only one word has also chooses
/// it. Otherwise the start of a part after a hyphen does, if it is unique.
AddedOption add_choice(CLI::App& app, const std::string& name, std::vector<std::string> words,
                       std::function<void(std::size_t)> store, const std::string& help);

/// Adds `name VALUE` for non-empty text. `value` is its placeholder in the help.
AddedOption add_text(CLI::App& app, const std::string& name, const std::string& value, std::string& target,
                     const std::string& help);

/// Adds `name VALUE`. `parse` receives the text and throws UsageError if it is wrong.
AddedOption add_text_option(CLI::App& app, const std::string& name, const std::string& value,
                            std::function<void(const std::string&)> parse, const std::string& help);

/// The same without a check.
template <class Target>
requires std::assignable_from<Target&, std::string> AddedOption add_text_option(CLI::App& app,
                                                                                const std::string& name,
                                                                                const std::string& value,
                                                                                Target& target,
                                                                                const std::string& help) {
  return add_text_option(
      app, name, value, [&target](const std::string& text) { target = text; }, help);
}

/// The same for an option that may be repeated, and for one whose value is optional (then empty).
AddedOption add_texts_option(CLI::App& app, const std::string& name, const std::string& value,
                             std::function<void(const std::vector<std::string>&)> parse,
                             const std::string& help);
template <class Target>
requires std::assignable_from<Target&, std::vector<std::string>> AddedOption
add_texts_option(CLI::App& app, const std::string& name, const std::string& value, Target& target,
                 const std::string& help) {
  return add_texts_option(
      app, name, value, [&target](const std::vector<std::string>& texts) { target = texts; }, help);
}
AddedOption add_optional_text(CLI::App& app, const std::string& name, const std::string& value,
                              std::function<void(const std::string&)> parse, const std::string& help);

/// Adds `name`, which takes no value.
AddedOption add_flag(CLI::App& app, const std::string& name, bool& target, const std::string& help);
AddedOption add_flag(CLI::App& app, const std::string& name, std::function<void()> given,
                     const std::string& help);

/// Adds a positional argument. The vector version takes all remaining ones. If `name` is an option's, its
/// text may be empty.
AddedOption add_argument(CLI::App& app, const std::string& name, std::string& target,
                         const std::string& help);
AddedOption add_argument(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                         const std::string& help);

/// Whether the option is on the command line.
[[nodiscard]] bool given(const CLI::App& app, const std::string& name);

struct GivenOption {
  std::string name;
  std::string group;
  bool positional = false;
  std::vector<std::string> values;  ///< empty for a flag
};
/// The options on the command line, in the order of the help.
[[nodiscard]] std::vector<GivenOption> given_options(const CLI::App& app);

/// Throws UsageError: "OPTION is 'TEXT'; EXPECTED is expected".
[[noreturn]] void refuse_value(const std::string& option, const std::string& text,
                               const std::string& expected);

/// Throws UsageError if the file's name does not end in `end`. An empty path is an option not given.
void require_ending(const std::string& option, const std::string& path, const std::string& end);

/// Throws UsageError if the file of --html does not end in .html or .htm.
void require_page_ending(const std::string& path);

/// Throws UsageError if the option is given without the other one. `value` is the other's placeholder.
void require_beside(const CLI::App& app, const std::string& option, const std::string& other,
                    const std::string& value);

/// Throws UsageError if the option was not given. `meaning` says what it is for.
void require_option(const CLI::App& app, const std::string& name, const std::string& meaning);

}  // namespace heed::cli
