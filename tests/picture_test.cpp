// Pictures of heads: they draw the weights, at the sizes requested, whatever words are beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heed/inspect/document.hpp"
#include "heed/random.hpp"
#include "picture/atlas.hpp"
#include "picture/atlas_layout.hpp"
#include "picture/heads.hpp"
#include "picture/palette.hpp"

namespace {

using heed::Document;
using heed::Tensor;
using heed::cli::AtlasPage;
using heed::cli::Canvas;
using heed::cli::head_map;
using heed::cli::HeadMap;
using heed::cli::HeadsPicture;
using heed::cli::Ink;
using heed::cli::MapStyle;
using heed::cli::PictureFormat;

constexpr std::int64_t kLength = 12;

class Picture : public ::testing::Test {
 protected:
  void SetUp() override {
    heed::Generator generator(5);
    document.tensors.reserve(2);
    document.query = document.tensors.emplace_back(randn(generator, {1, 2, kLength, 8}));
    document.key = document.tensors.emplace_back(randn(generator, {1, 2, kLength, 8}));
    document.value = document.key;
    document.options.causal = true;
    for (std::int64_t i = 0; i < kLength; ++i)
      document.report.query_tokens.push_back(std::string(1, static_cast<char>('a' + i)));
    fill_report(document, {.full_weights_cells = 1000});
  }

  Document document;
};

struct Rectangle {
  double x, y;
  Ink ink;
};

// The filled rectangles of an SVG that Cairo wrote, by their first corner.
std::vector<Rectangle> rectangles_of(const std::string& svg) {
  const std::regex shape(R"(rgb\(([0-9.]+)%, ?([0-9.]+)%, ?([0-9.]+)%\)[^>]* d="M ([-0-9.]+) ([-0-9.]+) )");
  std::vector<Rectangle> found;
  for (auto match = std::sregex_iterator(svg.begin(), svg.end(), shape); match != std::sregex_iterator();
       ++match) {
    const auto number = [&](std::size_t n) { return std::stod((*match)[n].str()); };
    found.push_back({number(4), number(5), {number(1) / 100, number(2) / 100, number(3) / 100}});
  }
  return found;
}

bool near(const Ink& a, const Ink& b, double most) {
  return std::abs(a.red - b.red) < most && std::abs(a.green - b.green) < most &&
         std::abs(a.blue - b.blue) < most;
}

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) number = number << 8U | static_cast<unsigned char>(bytes[at + i]);
  return number;
}

TEST_F(Picture, TheInkOfACellIsItsWeight) {
  const HeadMap map = head_map(document, 0, 1, 64);
  Canvas canvas(PictureFormat::svg, 240, 240);
  const MapStyle style{.ink = {0, 0, 0}, .full = 0.5};
  draw_map(canvas, {0, 0, 240, 240}, map, style);
  const std::vector<Rectangle> drawn = rectangles_of(canvas.finish());
  for (std::int64_t i = 0; i < kLength; ++i)
    for (std::int64_t j = 0; j < kLength; ++j) {
      const double weight = number_at(document.report.weights.weights, {0, 1, i, j});
      const double light = 1 - std::min(1.0, weight / 0.5);
      const Ink expected = j > i ? heed::cli::kMasked : Ink{light, light, light};
      const auto at_cell = [&](const Rectangle& one) {
        return std::abs(one.x - 20.0 * static_cast<double>(j)) < 0.01 &&
               std::abs(one.y - 20.0 * static_cast<double>(i)) < 0.01 &&
               near(one.ink, expected, 0.5 / 255 + 1e-3);
      };
      EXPECT_TRUE(light > 0.997 || std::any_of(drawn.begin(), drawn.end(), at_cell)) << i << ", " << j;
    }
}

TEST_F(Picture, BinsHoldTheShareThatARowGivesTheirKeys) {
  const HeadMap map = head_map(document, 0, 0, 4);
  ASSERT_TRUE(map.bins);
  ASSERT_EQ(map.rows, 4);
  for (std::int64_t r = 0; r < 4; ++r)
    for (std::int64_t c = 0; c < 4; ++c) {
      double sum = 0;
      for (std::int64_t i = 3 * r; i < 3 * r + 3; ++i)
        for (std::int64_t j = 3 * c; j < 3 * c + 3; ++j)
          sum += number_at(document.report.weights.weights, {0, 0, i, j});
      if (c > r)
        EXPECT_TRUE(std::isnan(map.at(r, c)));
      else
        EXPECT_NEAR(map.at(r, c), sum / 3, 1e-6);
    }
}

TEST_F(Picture, FullInkLeavesOutTheFirstKeyAndRowsOfOneKey) {
  double largest = 0;
  for (std::int64_t i = 1; i < kLength; ++i)
    for (std::int64_t j = 1; j <= i; ++j)
      largest = std::max(largest, number_at(document.report.weights.weights, {0, 0, i, j}));
  EXPECT_NEAR(head_map(document, 0, 0, 64).largest, largest, 1e-6);
}

HeadsPicture picture_of(const Document& document) {
  HeadsPicture picture{"title", {"about"}, {}};
  for (std::int64_t head = 0; head < 2; ++head)
    picture.heads.push_back({"head", "induction", head_map(document, 0, head, 64)});
  return picture;
}

AtlasPage page_of(const Document& document, int layers, int heads) {
  AtlasPage page{"title", {"about"}, {}, {}, {}};
  for (int layer = 0; layer < layers; ++layer) {
    page.layers.push_back("layer " + std::to_string(layer));
    page.in_layers.push_back(heads);
    for (int head = 0; head < heads; ++head)
      page.cards.push_back(
          {"1.1", {"induction", 0.9, 1.5, head_map(document, 0, 0, 64), "a → b .90"}, {}, ""});
  }
  return page;
}

// Removes the numbers of ids, because Cairo numbers the surfaces of a process. Their names differ between its
// versions: surface5, source-15.
std::string without_ids(const std::string& svg) {
  return std::regex_replace(svg, std::regex(R"re((id="|href="#|url\(#)([a-z-]+)[0-9]+)re"), "$1$2");
}

TEST_F(Picture, TheSameDrawingHasTheSameBytes) {
  for (const PictureFormat format : {PictureFormat::svg, PictureFormat::png, PictureFormat::pdf})
    EXPECT_TRUE(without_ids(draw_heads(picture_of(document), format)) ==
                without_ids(draw_heads(picture_of(document), format)));
}

TEST_F(Picture, AnAtlasIsAPageOfA3AndItsPixelsGrowWhereMapsAreSmall) {
  const std::string pdf = draw_atlas(page_of(document, 2, 4), PictureFormat::pdf).front();
  EXPECT_EQ(pdf.substr(0, 5), "%PDF-");
  EXPECT_NE(pdf.find("[ 0 0 1190.55"), std::string::npos) << "across";
  const std::string png = draw_atlas(page_of(document, 2, 4), PictureFormat::png).front();
  EXPECT_EQ(big_endian(png, 16), 2382U);
  EXPECT_EQ(big_endian(png, 20), 1684U);
  const std::string many = draw_atlas(page_of(document, 20, 20), PictureFormat::png).front();
  EXPECT_GT(std::max(big_endian(many, 16), big_endian(many, 20)), 2382U);
}

TEST_F(Picture, AnAtlasOfManyHeadsHasSeveralPages) {
  const AtlasPage page = page_of(document, 30, 32);
  const std::vector<std::string> pages = draw_atlas(page, PictureFormat::svg);
  ASSERT_GT(pages.size(), 1u);
  const std::vector<std::string> pdf = draw_atlas(page, PictureFormat::pdf);
  ASSERT_EQ(pdf.size(), 1u);
  EXPECT_NE(pdf[0].find("/Count " + std::to_string(pages.size())), std::string::npos);
}

TEST_F(Picture, WordsOfAnyKindAreDrawnAsText) {
  HeadsPicture picture = picture_of(document);
  const std::vector<std::string> words = {
      "</svg><script>",     "&amp;", "猫", "שלום", "🙂", "e\xCC\x81", "<b>", "\"'",
      std::string(40, 'w'), "a",     "b",  "c"};
  for (auto& head : picture.heads) head.map.row_words = head.map.column_words = words;
  picture.title = "</svg><script>alert(1)</script>";
  const std::string svg = draw_heads(picture, PictureFormat::svg);
  EXPECT_EQ(svg.find("script"), std::string::npos);
  EXPECT_EQ(svg.find("</svg>"), svg.rfind("</svg>"));
  EXPECT_EQ(draw_heads(picture, PictureFormat::png).substr(1, 3), "PNG");
}

// Luminance and contrast as WCAG 2 defines them.
double luminance(const Ink& ink) {
  const auto linear = [](double c) { return c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4); };
  return 0.2126 * linear(ink.red) + 0.7152 * linear(ink.green) + 0.0722 * linear(ink.blue);
}
double contrast(const Ink& a, const Ink& b) {
  const double of_a = luminance(a) + 0.05, of_b = luminance(b) + 0.05;
  return std::max(of_a, of_b) / std::min(of_a, of_b);
}

TEST(Letters, HaveTheInkThatContrastsMoreWithTheirGround) {
  const auto check = [](const Ink& ground) {
    const bool paper = near(heed::cli::letters_on(ground), heed::cli::kPaper, 1e-9);
    EXPECT_EQ(paper, contrast(heed::cli::kPaper, ground) > contrast(heed::cli::kText, ground))
        << luminance(ground);
    EXPECT_NE(paper, near(heed::cli::letters_on(ground), heed::cli::kText, 1e-9));
  };
  for (int level = 0; level <= 255; ++level)
    for (const Ink& full : {Ink{1, 1, 1}, Ink{1, 0, 0}, Ink{0, 1, 0}, Ink{0, 0, 1}})
      check({full.red * level / 255, full.green * level / 255, full.blue * level / 255});
}

TEST_F(Picture, NamesHaveInksThatDifferAndCanBeReadOnPaper) {
  const std::vector<std::string> names = {"induction", "previous-token",  "next-token",       "same-token",
                                          "self",      "duplicate-token", "first-token sink", "separators",
                                          "vertical",  "local",           "uniform",          "2 back",
                                          "mixed"};
  for (std::size_t a = 0; a < names.size(); ++a) {
    const Ink ink = heed::cli::ink_of_name(names[a]);
    EXPECT_GE(contrast({1, 1, 1}, ink), 4.5) << names[a];
    for (std::size_t b = 0; b < a; ++b)
      EXPECT_FALSE(near(ink, heed::cli::ink_of_name(names[b]), 0.04)) << names[a];
  }
}

// Cards of any model are on their page, apart, in the order of the heads, with maps of at least 8 mm.
void expect_layout(const heed::cli::AtlasGrid& grid) {
  constexpr double kLines = 4.4;
  const heed::cli::AtlasLayout made = heed::cli::atlas_layout(grid, kLines);
  ASSERT_EQ(std::ssize(made.cards), grid.cards);
  EXPECT_GE(made.side, 8 / 25.4 * 72);
  EXPECT_GE(made.letters, 3.5);
  for (std::size_t n = 0; n < made.cards.size(); ++n) {
    const heed::cli::AtlasPlace& one = made.cards[n];
    ASSERT_LT(one.page, made.pages);
    ASSERT_GE(one.box.x, heed::cli::kAtlasEdge) << n;
    ASSERT_GE(one.box.y, grid.header) << n;
    ASSERT_LE(one.box.x + one.box.width, made.width - heed::cli::kAtlasEdge + 1e-6) << n;
    ASSERT_LE(one.box.y + one.box.height, made.height - heed::cli::kAtlasEdge + 1e-6) << n;
    ASSERT_LE(grid.maps * made.side + (grid.maps - 1) * made.gap, one.box.width + 1e-6);
    ASSERT_LE(made.side + kLines * made.letters, one.box.height + 1e-6);
  }
  std::set<std::array<double, 3>> corners;
  for (const heed::cli::AtlasPlace& one : made.cards)
    corners.insert({static_cast<double>(one.page), one.box.y, one.box.x});
  ASSERT_EQ(corners.size(), made.cards.size()) << "two cards at one place";
  // Neighbours along a line and between lines do not overlap.
  const auto apart = [&](const std::array<double, 3>& a, const std::array<double, 3>& b) {
    if (a[0] != b[0]) return true;
    return a[1] == b[1] ? b[2] - a[2] >= made.cards[0].box.width : b[1] - a[1] >= made.cards[0].box.height;
  };
  for (auto next = std::next(corners.begin()); next != corners.end(); ++next)
    ASSERT_TRUE(apart(*std::prev(next), *next));
}

TEST(AtlasLayout, FitsEveryShape) {
  for (const auto& [layers, heads] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {2, 4}, {12, 12}, {18, 4}, {30, 9}, {4, 18}, {1, 64}, {48, 1}, {80, 64}})
    for (const int maps : {1, 2}) {
      SCOPED_TRACE(std::to_string(layers) + " x " + std::to_string(heads) + ", maps " + std::to_string(maps));
      expect_layout(
          {std::vector<std::int64_t>(static_cast<std::size_t>(layers), heads), layers * heads, maps, 104});
    }
  expect_layout({{4, 1, 7}, 12, 1, 90});    // layers of unequal size
  expect_layout({{5000, 2}, 5002, 1, 90});  // a layer that fits on no page
  for (const std::int64_t cards : {1, 7, 300}) expect_layout({{}, cards, 1, 90});
}

// A model of 80 layers and 64 heads takes a few pages, an ordinary one a single page.
TEST(AtlasLayout, TakesFewPages) {
  const auto pages = [](std::size_t layers, std::int64_t heads) {
    return heed::cli::atlas_layout(
               {std::vector<std::int64_t>(layers, heads), static_cast<std::int64_t>(layers) * heads, 1, 104},
               4.4)
        .pages;
  };
  EXPECT_EQ(pages(12, 12), 1);
  EXPECT_EQ(pages(18, 4), 1);
  EXPECT_EQ(pages(30, 9), 1);
  EXPECT_LE(pages(80, 64), 12);
}

}  // namespace
