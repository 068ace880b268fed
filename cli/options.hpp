// Options whose values are checked, with messages that name the option, what it was, and what was expected.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::cli {

/// A whole number, or nothing where the text is anything else.
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text);

/// Two whole numbers of at least `least` with `separator` between them. Throws UsageError, naming the option,
/// what it was and what is `expected`, where the text is anything else.
[[nodiscard]] std::pair<std::int64_t, std::int64_t> integer_pair(const std::string& option,
                                                                 const std::string& text, char separator,
                                                                 std::int64_t least,
                                                                 const std::string& expected);

/// Both ends belong to it.
struct IntegerRange {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

/// Adds `name N`: a whole number in the range.
CLI::Option* add_integer(CLI::App& app, const std::string& name, IntegerRange range,
                         std::function<void(std::int64_t)> store, const std::string& help);

/// Adds `name X`: a finite number.
CLI::Option* add_real(CLI::App& app, const std::string& name, std::function<void(double)> store,
                      const std::string& help);

/// Adds `name A|B|…`: `store` gets the index of the word chosen.
CLI::Option* add_choice(CLI::App& app, const std::string& name, std::vector<std::string> words,
                        std::function<void(std::size_t)> store, const std::string& help);

/// Adds `name VALUE`: text that is not empty; `value` stands for it in the help.
CLI::Option* add_text(CLI::App& app, const std::string& name, const std::string& value, std::string& target,
                      const std::string& help);

/// Adds `name VALUE`: `parse` takes the text, and throws UsageError where it is wrong.
CLI::Option* add_text_option(CLI::App& app, const std::string& name, const std::string& value,
                             std::function<void(const std::string&)> parse, const std::string& help);

/// Throws UsageError where the option was not given; `meaning` says what it is for.
void require_option(const CLI::App& app, const std::string& name, const std::string& meaning);

}  // namespace heed::cli
