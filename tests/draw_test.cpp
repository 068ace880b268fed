// The functions that heed explain draws with: words that fit, tables, heat maps.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "../cli/draw/heatmap.hpp"
#include "../cli/draw/lettering.hpp"
#include "../cli/draw/palette.hpp"
#include "../cli/draw/table.hpp"
#include "../cli/text.hpp"

namespace {

using heed::DType;
using heed::Tensor;
using heed::cli::Color;
using Lines = std::vector<std::string>;

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Lettering, KeepsMarksWithTheirCharacters) {
  EXPECT_EQ(heed::cli::characters("nai\xcc\x88ve"), (Lines{"n", "a", "i\xcc\x88", "v", "e"}));
  EXPECT_EQ(heed::cli::characters("日本"), (Lines{"日", "本"}));
  EXPECT_TRUE(heed::cli::characters("").empty());
}

TEST(Lettering, ShortensToTheWidthAndNotBeyond) {
  using heed::cli::shortened;
  EXPECT_EQ(shortened("attention", 9), "attention");
  EXPECT_EQ(shortened("attention", 5), "atte…");
  EXPECT_EQ(shortened("attention", 1), "…");
  EXPECT_EQ(shortened("attention", 0), "");
  EXPECT_EQ(shortened("日本語", 4), "日…") << "a character of two columns does not fit one";
  EXPECT_EQ(heed::cli::left_aligned("日本語", 4), "日… ");
  EXPECT_EQ(heed::cli::right_aligned("ab", 4), "  ab");
  EXPECT_EQ(heed::cli::in_columns({"head", "1.50", "sink"}, {-6, 5, 2}), "head   1.50s…");
}

TEST(Lettering, TellsRepeatedWordsApart) {
  EXPECT_EQ(heed::cli::labels_of({"a", "b", "a"}), (Lines{"a₁", "b", "a₂"}));
  EXPECT_EQ(heed::cli::labels_of({"\x1b"}), (Lines{"\\x1B"}));
  EXPECT_EQ(heed::cli::labels_of(Lines(12, "x")).back(), "x₁₂");
}

// The page must show the same (tests/python/test_look_page.py).
TEST(Lettering, ShowsTheWhiteSpaceOfTokens) {
  using heed::cli::token_text;
  EXPECT_EQ(token_text("the"), "the");
  EXPECT_EQ(token_text("to be"), "to be") << "a space between letters is seen";
  EXPECT_EQ(token_text(" the"), "␣the");
  EXPECT_EQ(token_text("the  "), "the␣␣");
  EXPECT_EQ(token_text("a\tb\r\nc"), "a⇥b␍⏎c");
  EXPECT_EQ(token_text(" "), "\"␣\"");
  EXPECT_EQ(token_text("\t"), "\"⇥\"");
  EXPECT_EQ(token_text("\n\n "), "\"⏎⏎␣\"");
  EXPECT_EQ(token_text(""), "\"\"");
  EXPECT_EQ(token_text("\u3000"), "\"\\u{3000}\"");
  EXPECT_EQ(token_text("a\u00a0"), "a\\xA0");
  EXPECT_EQ(token_text("\u200b"), "\"\\u{200B}\"") << "which has no width";
  EXPECT_EQ(token_text("a\u200db"), "a\u200db") << "where it joins letters";
  EXPECT_EQ(token_text("\x1b[0m"), "\\x1B[0m");
  EXPECT_EQ(token_text("\u202egnp"), "\\u{202E}gnp");
  EXPECT_EQ(token_text("\xff "), "\\xFF␣");
  for (const char* sign : {"␣", "⇥", "⏎", "␍"}) EXPECT_EQ(heed::cli::display_width(sign), 1) << sign;
  EXPECT_EQ(heed::cli::labels_of({" ", "a", " "}), (Lines{"\"␣\"₁", "a", "\"␣\"₂"}));
  EXPECT_EQ(heed::cli::left_aligned(token_text(" "), 5), "\"␣\"  ");
}

TEST(Palette, IsTextAsItIsWithoutColour) {
  EXPECT_EQ(heed::cli::on_viridis("x", 0.5, Color::none), "x");
  EXPECT_EQ(heed::cli::bold("x", Color::none), "x");
  EXPECT_EQ(heed::cli::faint("x", Color::none), "x");
}

TEST(Palette, GoesFromVioletToYellow) {
  EXPECT_EQ(heed::cli::on_viridis("x", 0, Color::full), "\x1b[38;5;231;48;2;68;1;84mx\x1b[0m");
  EXPECT_EQ(heed::cli::on_viridis("x", 1, Color::full), "\x1b[38;5;16;48;2;253;231;37mx\x1b[0m");
  EXPECT_EQ(heed::cli::on_viridis("x", 1, Color::palette), "\x1b[38;5;16;48;5;220mx\x1b[0m");
  EXPECT_EQ(heed::cli::on_viridis("x", 7, Color::full), heed::cli::on_viridis("x", 1, Color::full));
  EXPECT_EQ(heed::cli::on_viridis("x", std::nan(""), Color::full),
            heed::cli::on_viridis("x", 0, Color::full));
}

TEST(Table, WritesAsManyDecimalsAsFit) {
  const auto written = [](double value) {
    const Tensor one = Tensor::from<double>({value}, {1});
    return heed::cli::NumberFormat(one)(value);
  };
  EXPECT_EQ(written(0.5), "  0.5000");
  EXPECT_EQ(written(-9.99991), " -9.9999");
  EXPECT_EQ(written(-9.99996), " -10.000") << "rounds to two digits before the point";
  EXPECT_EQ(written(-123.456), " -123.46");
  EXPECT_EQ(written(1234.56), "  1234.6");
  EXPECT_EQ(written(-9999.9), " -9999.9");
  EXPECT_EQ(written(-123456), "  -1e+05");
  EXPECT_EQ(written(0.00012), " 1.2e-04");
  EXPECT_EQ(written(0), "  0.0000");
  EXPECT_EQ(written(-std::numeric_limits<double>::infinity()), "    -inf");
  EXPECT_EQ(written(std::nan("")), "     nan");
}

TEST(Table, LeavesOutTheMiddleOfWhatDoesNotFit) {
  Tensor wide({2, 20});
  for (std::size_t i = 0; i < 40; ++i) wide.values<float>()[i] = static_cast<float>(i);
  EXPECT_EQ(joined(heed::cli::draw_table({{"a", "bc"}, {}, wide}, 1, 40, Color::none)),
            " a    0.000   1.000   2.000  …  19.000\n"
            " bc  20.000  21.000  22.000  …  39.000\n");
  const Tensor tall({40, 1}, DType::i64);
  const Lines lines = heed::cli::draw_table({Lines(40, "x"), {}, tall}, 0, 40, Color::none);
  EXPECT_EQ(lines.size(), 13u);
  EXPECT_EQ(lines[9], "… 28 more");
}

TEST(Table, PutsWordsOverItsColumns) {
  const Tensor values = Tensor::from<float>({1, 2}, {1, 2});
  EXPECT_EQ(joined(heed::cli::draw_table({{"a"}, {"one", "extraordinary"}, values}, 0, 40, Color::none)),
            "      one extrao…\n"
            "a  1.0000  2.0000\n");
}

class HeatMap : public testing::Test {
 protected:
  static std::string draw(const heed::cli::HeatMap& map, int width = 80, Color color = Color::none) {
    const auto lines = heed::cli::draw_heatmap(map, 0, width, color);
    return lines ? joined(*lines) : "too large";
  }
  const Tensor values = Tensor::from<float>({0.5f, 0.25f, 0.25f, 0, 0.01f, 0.99f}, {2, 3});
  const heed::cli::HeatMap map{{"a", "bb"}, {"one", "two", "three"}, values, std::nullopt};
};

TEST_F(HeatMap, ShadesAndNumbersItsCells) {
  EXPECT_EQ(draw(map),
            "      one      two     three\n"
            "a  ▓▓▓ 0.50 ▒▒▒ 0.25 ▒▒▒ 0.25\n"
            "bb     0.00     0.01 ███ 0.99\n"
            "   0   ░░▒▒▓▓██ 0.99\n");
}

TEST_F(HeatMap, NumbersSmallSharesInPowersOfTen) {
  const Tensor small = Tensor::from<float>({4.3e-5f, 0, 1e-5f, 2e-5f}, {2, 2});
  EXPECT_EQ(draw({{"a", "b"}, {"c", "d"}, small, std::nullopt}),
            "      c        d\n"
            "a ███ 4.30     0.00\n"
            "b ░░░ 1.00 ▒▒▒ 2.00\n"
            "  0   ░░▒▒▓▓██ 4.30 x 1e-5\n");
}

TEST_F(HeatMap, OfNarrowCellsStandsItsWordsUpright) {
  EXPECT_EQ(draw(map, 12),
            "          t\n"
            "          h\n"
            "    o  t  r\n"
            "    n  w  e\n"
            "    e  o  e\n"
            "a  ▓▓▓▒▒▒▒▒▒\n"
            "bb       ███\n"
            "   0   ░░▒▒▓▓██ 0.99\n");
  heed::cli::HeatMap longer = map;
  longer.columns = {"incomprehensible", "日本", "x"};
  EXPECT_EQ(draw(longer, 6),
            "   i\n   n\n   c\n   o\n   m\n   p\n   r*\n   ⋮*x\n"
            "a  ▓▒▒\nbb   █\n   0   ░░▒▒▓▓██ 0.99\n");
}

TEST_F(HeatMap, MarksForbiddenCells) {
  Tensor allowed({2, 3}, DType::boolean);
  for (bool& cell : allowed.values<bool>()) cell = true;
  allowed.at<bool>(0, 2) = false;
  const Tensor half = Tensor::from<float>({0.5f, 0.25f, 0, 0.5f, 0.25f, 0.25f}, {2, 3});
  heed::cli::HeatMap causal = map;
  causal.values = half;
  causal.allowed = allowed;
  const std::string text = draw(causal);
  EXPECT_NE(text.find("a  ███ 0.50 ▓▓▓ 0.25     ·\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" 0.50   · forbidden by the mask\n"), std::string::npos) << text;
  EXPECT_NE(draw(causal, 30).find(" 0.50\n   · forbidden by the mask\n"), std::string::npos);
}

TEST_F(HeatMap, ColoursItsCells) {
  const std::string text = draw(map, 80, Color::full);
  EXPECT_NE(text.find("\x1b[38;5;16;48;2;253;231;37m  0.99   \x1b[0m"), std::string::npos) << text;
  EXPECT_NE(text.find("\x1b[38;5;231;48;2;68;1;84m  0.00   \x1b[0m"), std::string::npos) << text;
}

TEST_F(HeatMap, SaysNaNForWhatIsNotANumber) {
  const Tensor broken = Tensor::from<float>({std::nanf(""), 0.5f}, {1, 2});
  const std::string text = draw({{"a"}, {"b", "c"}, broken, std::nullopt});
  EXPECT_NE(text.find("a      nan ███ 0.50"), std::string::npos) << text;
}

TEST_F(HeatMap, DoesNotDrawWhatDoesNotFit) {
  EXPECT_EQ(draw(map, 5), "too large");
  const Tensor tall({101, 1});
  EXPECT_EQ(draw({Lines(101, "x"), {"y"}, tall, std::nullopt}), "too large");
  const Tensor nothing({1, 0});
  EXPECT_EQ(draw({{"x"}, {}, nothing, std::nullopt}), "too large");
}

}  // namespace
