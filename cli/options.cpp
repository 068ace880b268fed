#include "options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

#include "command.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

// std::from_chars rejects a leading plus sign, but users write one.
template <class Number>
std::errc read_number(std::string_view text, Number& number) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return end == text.data() + text.size() ? error : std::errc::invalid_argument;
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  return read_number(text, number) == std::errc() ? std::optional(number) : std::nullopt;
}

// Names both limits if the range has them, or if the number does not fit in the type.
template <class Integer>
Integer integer_in(const std::string& option, const std::string& text, Integer least, Integer most) {
  Integer number{};
  const std::errc error = read_number(text, number);
  if (error == std::errc() && number >= least && number <= most) return number;
  const bool bounded_below = std::is_unsigned_v<Integer> || least != std::numeric_limits<Integer>::min();
  const bool bounded_above = most != std::numeric_limits<Integer>::max();
  std::string expected = "a whole number";
  if ((bounded_below && bounded_above) || error == std::errc::result_out_of_range)
    expected += " from " + std::to_string(least) + " to " + std::to_string(most);
  else if (bounded_below)
    expected += " of at least " + std::to_string(least);
  refuse_value(option, text, expected);
}

// The exact word. Otherwise the only word that begins with the text, then the only one with a hyphen before
// it: "sink" finds "first-token-sink". Spaces and underscores are hyphens.
std::vector<std::string>::const_iterator word_or_part(const std::vector<std::string>& words,
                                                      std::string text) {
  for (char& c : text)
    if (c == ' ' || c == '_') c = '-';
  const auto found = std::ranges::find(words, text);
  if (found != words.end() || text.empty()) return found;
  for (const bool at_begin : {true, false}) {
    const auto fits = [&](const std::string& word) {
      return at_begin ? word.starts_with(text) : word.find("-" + text) != word.npos;
    };
    const auto first = std::ranges::find_if(words, fits);
    if (first != words.end()) return std::any_of(first + 1, words.end(), fits) ? words.end() : first;
  }
  return words.end();
}

}  // namespace

CLI::App* add_command(CLI::App& heed, const std::string& name, const std::string& description) {
  return heed.add_subcommand(name, description);
}

void begin_group(CLI::App& app, const std::string& name) { app.option_defaults()->group(name); }

const AddedOption& AddedOption::type_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

// CLI11 keeps no lists of words. Its text for a default, which the layout of heed's help leaves out, holds
// them.
const AddedOption& AddedOption::words(const std::vector<std::string>& words) const {
  option_->default_str(joined_words(words));
  return *this;
}

std::vector<std::string> words_of(const CLI::Option& option) {
  const std::string words = option.get_default_str();
  return words.empty() ? std::vector<std::string>() : split(words, ' ');
}

std::optional<std::int64_t> whole_number(std::string_view text) { return number_in<std::int64_t>(text); }

std::vector<std::int64_t> whole_numbers(std::string_view text, char separator) {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : split(text, separator)) {
    const std::optional<std::int64_t> number = whole_number(part);
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<double> finite_number(std::string_view text) {
  const std::optional<double> number = number_in<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::pair<std::int64_t, std::int64_t> integer_pair(const std::string& option, const std::string& text,
                                                   char separator, std::int64_t least,
                                                   const std::string& expected) {
  const std::vector<std::int64_t> numbers = whole_numbers(text, separator);
  if (numbers.size() != 2 || std::ranges::min(numbers) < least) refuse_value(option, text, expected);
  return {numbers[0], numbers[1]};
}

AddedOption add_integer(CLI::App& app, const std::string& name, IntegerRange range,
                        std::function<void(std::int64_t)> store, const std::string& help) {
  const auto parse = [name, range, store = std::move(store)](const std::string& text) {
    store(integer_in(name, text, range.least, range.most));
  };
  return add_text_option(app, name, "N", parse, help);
}

AddedOption add_seed(CLI::App& app, const std::string& name, std::function<void(std::uint64_t)> store,
                     const std::string& help) {
  const auto parse = [name, store = std::move(store)](const std::string& text) {
    store(integer_in<std::uint64_t>(name, text, 0, std::numeric_limits<std::uint64_t>::max()));
  };
  return add_text_option(app, name, "N", parse, help);
}

AddedOption add_real(CLI::App& app, const std::string& name, std::function<void(double)> store,
                     const std::string& help) {
  const auto parse = [name, store = std::move(store)](const std::string& text) {
    const std::optional<double> number = finite_number(text);
    if (!number) refuse_value(name, text, "a finite number");
    store(*number);
  };
  return add_text_option(app, name, "X", parse, help);
}

AddedOption add_choice(CLI::App& app, const std::string& name, std::vector<std::string> words,
                       std::function<void(std::size_t)> store, const std::string& help) {
  const auto parse = [name, words, store = std::move(store)](const std::string& text) {
    const auto found = word_or_part(words, text);
    if (found == words.end()) {
      std::string expected;
      for (const std::string& word : words) {
        expected += (expected.empty() ? "" : word == words.back() ? " or " : ", ") + word;
      }
      refuse_value(name, text, expected);
    }
    store(static_cast<std::size_t>(found - words.begin()));
  };
  return add_text_option(app, name, detail::joined_texts(words, "|"), parse, help).words(words);
}

AddedOption add_text(CLI::App& app, const std::string& name, const std::string& value, std::string& target,
                     const std::string& help) {
  const auto store = [name, value, &target](const std::string& text) {
    // Usually an unset shell variable.
    if (text.empty()) refuse_value(name, text, value);
    target = text;
  };
  return add_text_option(app, name, value, store, help);
}

AddedOption add_text_option(CLI::App& app, const std::string& name, const std::string& value,
                            std::function<void(const std::string&)> parse, const std::string& help) {
  return AddedOption(app.add_option_function<std::string>(name, std::move(parse), help)->type_name(value));
}

AddedOption add_texts_option(CLI::App& app, const std::string& name, const std::string& value,
                             std::function<void(const std::vector<std::string>&)> parse,
                             const std::string& help) {
  return AddedOption(app.add_option_function<std::vector<std::string>>(name, std::move(parse), help)
                         ->expected(1)
                         ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                         ->type_name(value));
}

AddedOption add_optional_text(CLI::App& app, const std::string& name, const std::string& value,
                              std::function<void(const std::string&)> parse, const std::string& help) {
  return AddedOption(
      app.add_option_function<std::string>(name, std::move(parse), help)->expected(0, 1)->type_name(value));
}

AddedOption add_flag(CLI::App& app, const std::string& name, bool& target, const std::string& help) {
  return AddedOption(app.add_flag(name, target, help));
}

AddedOption add_flag(CLI::App& app, const std::string& name, std::function<void()> given,
                     const std::string& help) {
  return AddedOption(app.add_flag_callback(name, std::move(given), help));
}

AddedOption add_argument(CLI::App& app, const std::string& name, std::string& target,
                         const std::string& help) {
  return AddedOption(app.add_option(name, target, help));
}

AddedOption add_argument(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                         const std::string& help) {
  return AddedOption(app.add_option(name, target, help));
}

bool given(const CLI::App& app, const std::string& name) { return app.count(name) > 0; }

std::vector<GivenOption> given_options(const CLI::App& app) {
  std::vector<GivenOption> options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const bool flag = option->get_expected_max() == 0;
    options.push_back({option->get_name(), option->get_group(), option->get_positional(),
                       flag ? std::vector<std::string>() : option->results()});
  }
  return options;
}

void refuse_value(const std::string& option, const std::string& text, const std::string& expected) {
  refuse_usage(option, " is '", text, "'; ", expected, " is expected");
}

void require_ending(const std::string& option, const std::string& path, const std::string& end) {
  if (!path.empty() && !path.ends_with(end)) refuse_value(option, path, "a file whose name ends in " + end);
}

void require_page_ending(const std::string& path) {
  if (!path.ends_with(".htm")) require_ending("--html", path, ".html");
}

void require_beside(const CLI::App& app, const std::string& option, const std::string& other,
                    const std::string& value) {
  if (given(app, option) && !given(app, other)) refuse_usage(option, " is given without ", other, " ", value);
}

void require_option(const CLI::App& app, const std::string& name, const std::string& meaning) {
  if (!given(app, name))
    refuse_usage(name, " is missing: ", meaning, " (see heed ", app.get_name(), " --help)");
}

}  // namespace heed::cli
