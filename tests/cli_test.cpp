// The features that all commands of `heed` share, and the functions that draw on a terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../cli/terminal.hpp"
#include "../cli/text.hpp"
#include "command.hpp"
#include "heed/version.hpp"

namespace {

using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::run_heed;
using Words = std::vector<std::string>;

TEST(Heed, AlonePrintsItsHelp) {
  const CommandResult result = run_heed({});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.errors, "");
  EXPECT_NE(result.output.find("Commands:\n"), std::string::npos) << result.output;
  EXPECT_EQ(result.output, run_heed({"--help"}).output);
}

TEST(Heed, TellsItsVersion) {
  for (const char* asked : {"--version", "-v", "version"})
    EXPECT_EQ(run_heed({asked}).output, "heed " + std::string(heed::version()) + "\n") << asked;
}

TEST(Heed, HelpsWhereItIsAskedByAWord) {
  EXPECT_EQ(run_heed({"help"}).output, run_heed({"--help"}).output);
  EXPECT_EQ(run_heed({"help"}).exit_code, 0);
  EXPECT_EQ(run_heed({"help", "info"}).output, run_heed({"info", "--help"}).output);
}

TEST(Heed, SaysWhichCommandReadsWords) {
  const std::string refusal =
      "heed: 'hello world' is not a command of heed; heed explain 'hello world' shows what attention does "
      "with "
      "these words\n";
  EXPECT_EQ(run_heed({"hello", "world", "--json"}).errors, refusal);
  EXPECT_EQ(run_heed({"hello", "world"}).exit_code, 2);
  const std::string explained = run_heed({"explain", "hello world", "--causal"}).output;
  EXPECT_FALSE(explained.empty());
  EXPECT_EQ(run_heed({"hello world", "--causal"}).output, explained);  // a quoted sentence is explained
}

TEST(Heed, SaysWhichOptionLooksAtWords) {
  const std::string refusal =
      "heed: DOC is 'the cat sat', which does not exist; for words, --model DIR is expected before them "
      "(--model induction comes with heed)\n";
  EXPECT_EQ(run_heed({"look", "the cat sat"}).errors, refusal);
  EXPECT_EQ(run_heed({"who", "cat", "sat", "the cat sat"}).errors, refusal);
  EXPECT_EQ(run_heed({"atlas", "the cat sat", "--out", "x.svg"}).errors, refusal);
  EXPECT_EQ(run_heed({"look", "the cat sat"}).exit_code, 2);
  EXPECT_EQ(run_heed({"look", "--model", "induction", "the cat sat"}).exit_code, 0);
}

TEST(Heed, SuggestsTheCommandThatWasMeant) {
  const CommandResult result = run_heed({"inof", "--json"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors, "heed: 'inof' is not a command of heed; did you mean info?\n");
  EXPECT_EQ(run_heed({"frobnicate"}).errors,
            "heed: 'frobnicate' is not a command of heed (see heed --help)\n");
}

TEST(Heed, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(run_heed({"--verison"}).errors,
            "heed: --verison is not an option of heed; did you mean --version?\n");
  EXPECT_EQ(run_heed({"info", "--jsn"}).errors,
            "heed: --jsn is not an option of heed info; did you mean --json?\n");
  EXPECT_EQ(run_heed({"info", "--frobnicate=3"}).errors,
            "heed: --frobnicate is not an option of heed info (see heed info --help)\n");
  EXPECT_EQ(run_heed({"info", "more"}).errors,
            "heed: 'more' is one argument too many (see heed info --help)\n");
  EXPECT_EQ(run_heed({"info", "more"}).exit_code, 2);
  for (const Words& words : {Words{"info", "--json=a = b"}, {"attend", "--causal", "--json=a = b"}}) {
    EXPECT_EQ(run_heed(words).errors, "heed: --json is 'a = b'; true, false or no value is expected\n");
    EXPECT_EQ(run_heed(words).exit_code, 2);
  }
  EXPECT_EQ(run_heed({"--version=banana"}).errors,
            "heed: --version is 'banana'; true, false or no value is expected\n");
}

TEST(Heed, SpellsOutControlCharactersInItsErrors) {
  EXPECT_EQ(run_heed({"\x1b[31mred\n"}).errors,
            "heed: '\\x1B[31mred\\n' is not a command of heed (see heed --help)\n");
}

TEST(Heed, SaysWhenItsOutputCannotBeWritten) {
  CommandInput full;
  full.output_path = "/dev/full";
  // Long output fails before its end.
  for (const Words& words : {Words{"info"},
                             {"info", "--json"},
                             {"attend", "--help"},
                             {"look", "--help-all"},
                             {"--man", "attend"},
                             {"--completion", "bash"},
                             {"look", "--model", "induction", "to be or not to be", "--json"}}) {
    const CommandResult to_full = run_heed(words, full);
    EXPECT_EQ(to_full.exit_code, 1) << words[0];
    EXPECT_EQ(to_full.errors, "heed: standard output could not be written: No space left on device\n")
        << words[0];
  }
  CommandInput closed;
  closed.close_output = true;
  const CommandResult to_closed = run_heed({"info"}, closed);
  EXPECT_EQ(to_closed.exit_code, 1);
  EXPECT_EQ(to_closed.errors, "heed: standard output could not be written: Bad file descriptor\n");
}

TEST(Info, PrintsOneObjectForMachines) {
  const CommandResult result = run_heed({"info", "--json"});
  EXPECT_EQ(result.exit_code, 0);
  const auto info = nlohmann::json::parse(result.output);
  EXPECT_EQ(info.at("version"), heed::version());
  EXPECT_TRUE(info.at("build").at("compiler").is_string());
  EXPECT_TRUE(info.at("build").at("type").is_string());
  EXPECT_TRUE(info.at("build").at("flags").is_string());
  EXPECT_NE(info.at("processor").at("model"), "");
  EXPECT_TRUE(info.at("processor").at("features").is_array());
  EXPECT_TRUE(info.at("kernel") == "reference" || info.at("kernel") == "fused");
  EXPECT_NE(info.at("isa"), "");
  EXPECT_GE(info.at("threads"), 1);
  int chosen = 0;
  for (const auto& target : info.at("targets")) {
    EXPECT_TRUE(target.at("required").is_array());
    if (target.at("chosen")) {
      ++chosen;
      EXPECT_EQ(target.at("name"), info.at("isa"));
      EXPECT_EQ(target.at("available"), true);
    }
  }
  EXPECT_EQ(chosen, 1);
}

TEST(Info, PrintsALineForEachThingToPeople) {
  const std::string output = run_heed({"info"}).output;
  for (const char* line :
       {"version ", "build ", "flags ", "processor ", "features ", "kernel ", "threads ", "target "}) {
    EXPECT_NE(output.find(line), std::string::npos) << line << "in\n" << output;
  }
}

TEST(Help, OfEveryCommandHasAnExampleAndFitsEightyColumns) {
  for (const char* command : {"atlas", "attend", "bench", "circuit", "explain", "generate", "heads", "info",
                              "look", "plan", "train", "who", "why"}) {
    const CommandResult result = run_heed({command, "--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.output.find(std::string("\n  heed ") + command), std::string::npos) << result.output;
    std::string before;
    for (const std::string& line : heed::cli::split(result.output, '\n')) {
      EXPECT_LE(heed::cli::display_width(line), 80) << line;
      // A shell reads an example of two lines whole.
      const bool is_example = before.starts_with("  heed ") || before.ends_with("\\");
      EXPECT_EQ(is_example && line.starts_with("      "), before.ends_with("\\")) << before << '\n' << line;
      before = line;
    }
  }
}

TEST(Choices, AreNamedByTheirBeginningOrThatOfAPartIfNoOtherBeginsSo) {
  const auto find = [](const char* name) {
    return run_heed({"look", "--model", "induction", "to be or not to be or", "--find", name});
  };
  EXPECT_EQ(find("induct").output, find("induction").output);
  EXPECT_EQ(find("previous").exit_code, 0);
  EXPECT_EQ(find("sink").output, find("first-token-sink").output);
  for (const char* name : {"se", "token", "x", ""})
    EXPECT_EQ(find(name).exit_code, 2) << name;  // self, separators
}

TEST(Help, OfHeedLookIsAPageAndAllItsOptionsAreBehindIt) {
  const std::string page = run_heed({"look", "--help"}).output, all = run_heed({"look", "--help-all"}).output;
  EXPECT_EQ(run_heed({"help", "look"}).output, page);
  EXPECT_LE(std::count(page.begin(), page.end(), '\n'), 40);
  EXPECT_LT(page.find("Ask a model:"), page.find("Ask tensors:"));
  EXPECT_NE(page.find("\nheed look --help-all lists all "), std::string::npos) << page;
  for (const char* option : {"--row", "--mask-blocks", "--evict", "--threads", "--help-all"})
    EXPECT_NE(all.find("\n  " + std::string(option)), std::string::npos) << option;
  for (const std::string& line : heed::cli::split(all, '\n'))
    EXPECT_LE(heed::cli::display_width(line), 80) << line;
}

TEST(Help, ShowsEveryWayToCallACommand) {
  EXPECT_NE(run_heed({"--help"}).output.find("\nUsage: heed COMMAND [options]\n"), std::string::npos);
  EXPECT_NE(run_heed({"look", "--help"})
                .output.find("\nUsage: heed look --query TENSOR --key TENSOR --value TENSOR [options]\n"
                             "       heed look DOC [options]\n"
                             "       heed look --model DIR (WORDS | --text FILE) [options]\n"),
            std::string::npos);
}

TEST(Help, WinsOverTheOtherArguments) {
  EXPECT_EQ(run_heed({"info", "--frobnicate", "--help"}).output, run_heed({"info", "--help"}).output);
  EXPECT_EQ(run_heed({"attend", "--threads", "x", "-h"}).output, run_heed({"attend", "--help"}).output);
}

// A terminal of this width, with only these environment variables.
heed::cli::Terminal terminal_in(int columns, const std::map<std::string, std::string>& environment) {
  for (const char* name : {"TERM", "COLORTERM", "NO_COLOR", "COLUMNS"}) unsetenv(name);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  int master = -1;
  int slave = -1;
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  EXPECT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
  const heed::cli::Terminal terminal = heed::cli::terminal_at(slave);
  close(slave);
  close(master);
  return terminal;
}

TEST(Terminal, HasTheColoursThatTheEnvironmentSays) {
  if (!heed::test::has_terminals()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  using heed::cli::Color;
  EXPECT_EQ(terminal_in(80, {{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}}).color, Color::full);
  EXPECT_EQ(terminal_in(80, {{"TERM", "xterm-256color"}, {"COLORTERM", "24bit"}}).color, Color::full);
  EXPECT_EQ(terminal_in(80, {{"TERM", "xterm-direct"}}).color, Color::full);
  EXPECT_EQ(terminal_in(80, {{"TERM", "xterm-256color"}}).color, Color::palette);
  EXPECT_EQ(terminal_in(80, {{"TERM", "xterm"}}).color, Color::none);
  EXPECT_EQ(terminal_in(80, {{"TERM", "dumb"}, {"COLORTERM", "truecolor"}}).color, Color::none);
  EXPECT_EQ(terminal_in(80, {{"COLORTERM", "truecolor"}}).color, Color::none);
  const std::map<std::string, std::string> forbidden = {
      {"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}, {"NO_COLOR", "1"}};
  EXPECT_EQ(terminal_in(80, forbidden).color, Color::none);
  EXPECT_TRUE(terminal_in(80, forbidden).interactive);
}

TEST(Terminal, IsAsWideAsItSaysUnlessColumnsSaysOtherwise) {
  if (!heed::test::has_terminals()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  EXPECT_EQ(terminal_in(132, {}).width, 132);
  EXPECT_EQ(terminal_in(0, {}).width, 80);
  EXPECT_EQ(terminal_in(132, {{"COLUMNS", "60"}}).width, 60);
  EXPECT_EQ(terminal_in(132, {{"COLUMNS", "60x"}}).width, 132);
  EXPECT_EQ(terminal_in(132, {{"COLUMNS", "-4"}}).width, 132);
  EXPECT_EQ(terminal_in(132, {{"COLUMNS", "99999999999999999999"}}).width, 132);
}

TEST(Terminal, AFileHasNoColour) {
  if (!heed::test::has_terminals()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  (void)terminal_in(80, {{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}});
  const int file = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const heed::cli::Terminal terminal = heed::cli::terminal_at(file);
  close(file);
  EXPECT_FALSE(terminal.interactive);
  EXPECT_EQ(terminal.color, heed::cli::Color::none);
  EXPECT_EQ(terminal.width, 80);
}

// nlohmann's writer throws for text that is not UTF-8. The bytes tried are at and around every boundary of
// its table, up to four in a row.
TEST(Text, IsUtf8WhereAJsonWriterTakesIt) {
  const std::string_view bytes =
      "\x01\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff";
  const auto written = [](const std::string& text) {
    try {
      (void)nlohmann::json(text).dump();
      return true;
    } catch (const nlohmann::json::type_error&) {
      return false;
    }
  };
  std::vector<std::string> texts = {""};
  for (std::size_t begin = 0, length = 1; length <= 4; ++length) {
    const std::size_t end = texts.size();
    for (std::size_t i = begin; i < end; ++i)
      // Fourth bytes matter only after a byte that may begin a sequence of four.
      if (length < 4 || static_cast<unsigned char>(texts[i][0]) >= 0xf0)
        for (const char byte : bytes) texts.push_back(texts[i] + byte);
    begin = end;
  }
  std::size_t valid = 0;
  for (const std::string& text : texts) {
    EXPECT_EQ(heed::cli::is_utf8(text), written(text)) << heed::cli::printable(text);
    valid += heed::cli::is_utf8(text);
  }
  EXPECT_GT(valid, 100u);
}

TEST(Text, SpellsOutWhatCouldDriveATerminal) {
  using heed::cli::printable;
  EXPECT_EQ(printable("plain, naïve 日本 🙂"), "plain, naïve 日本 🙂");
  EXPECT_EQ(printable("a\tb\n\x7f\x1b[0m"), "a\\tb\\n\\x7F\\x1B[0m");
  EXPECT_EQ(printable("\xc2\x9b"), "\\x9B") << "the one-character form of ESC [";
  EXPECT_EQ(printable("\xff\xc3(\xed\xa0\x80\xc0\xaf"), "\\xFF\\xC3(\\xED\\xA0\\x80\\xC0\\xAF");
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "gnp"),
            "\\u{202E}gnp");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Text, KnowsTheWidthOfWhatItPrints) {
  using heed::cli::display_width;
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("naïve"), 5);
  EXPECT_EQ(display_width("nai\xcc\x88ve"), 5) << "i and a combining diaeresis";
  EXPECT_EQ(display_width("日本"), 4);
  EXPECT_EQ(display_width("🙂"), 2);
}

TEST(Text, WrapsBetweenWords) {
  EXPECT_EQ(heed::cli::wrap("one two three", 8, 0), "one two\nthree");
  EXPECT_EQ(heed::cli::wrap("one two three", 8, 2), "one\n  two\n  three");
  EXPECT_EQ(heed::cli::wrap("kept\nbreak", 80, 2), "kept\n  break");
  EXPECT_EQ(heed::cli::wrap("a shape [B, H] here", 10, 0), "a shape\n[B, H]\nhere");
}

TEST(Text, FindsTheNearestWordOnlyWhereOneIsNear) {
  const std::vector<std::string> known = {"attend", "explain", "info"};
  EXPECT_EQ(heed::cli::nearest("atend", known), "attend");
  EXPECT_EQ(heed::cli::nearest("inof", known), "info") << "neighbours that change places are one mistake";
  EXPECT_EQ(heed::cli::nearest("into", known), "info");
  EXPECT_EQ(heed::cli::nearest("onto", known), std::nullopt) << "two letters of four are too many";
  EXPECT_EQ(heed::cli::nearest("zebra", known), std::nullopt);
}

}  // namespace
