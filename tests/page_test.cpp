// The HTML page: its contents, and errors.
#include "heed/inspect/page.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/error.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/random.hpp"
#include "io_support.hpp"
#include "page/block.hpp"

namespace {

using heed::HtmlPage;
using heed::Tensor;
using heed::detail::base64;
using heed::detail::page_block_log16;
using heed::detail::page_block_u24;
using heed::detail::PageBlock;

std::string base64_of(const std::string& text) { return base64(std::as_bytes(std::span(text))); }

std::vector<std::uint16_t> codes_of(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint16_t> codes;
  std::uint32_t bits = 0;
  int held = 0;
  std::vector<unsigned> bytes;
  for (const char letter : text) {
    if (letter == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(letters.find(letter));
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(bits >> held & 0xffU);
  }
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2)
    codes.push_back(static_cast<std::uint16_t>(bytes[i] | bytes[i + 1] << 8));
  return codes;
}

// Decodes log16 as the page does, from the description in block.hpp.
std::vector<double> read_log16(const PageBlock& block) {
  std::vector<double> values;
  const std::vector<std::uint16_t> codes = codes_of(block.data);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] == 65535)
      values.insert(values.end(), codes[++i], -std::numeric_limits<double>::infinity());
    else if (codes[i] == 65534)
      values.push_back(std::numeric_limits<double>::quiet_NaN());
    else
      values.push_back(codes[i] == 0 ? 0 : std::exp(block.low + (codes[i] - 1) * block.step));
  }
  return values;
}

TEST(Log16, KeepsNumbersToItsRelativeErrorAndTellsZeroFromMasked) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0,    1,    -kInfinity, -kInfinity,   -kInfinity,
                                1e-9, 0.25, 3e-5,       std::nan(""), 1e-30};
  for (int i = 0; i < 1000; ++i) values.push_back(std::pow(10, -9.0 * i / 1000));
  values.push_back(-kInfinity);
  const auto block = page_block_log16("x", Tensor::from(std::span<const double>(values), {1, 1011}));
  const std::vector<double> read = read_log16(block);
  ASSERT_EQ(read.size(), values.size());
  EXPECT_TRUE(block.step / 2 <= 1.8e-4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]))
      EXPECT_TRUE(std::isnan(read[i]));
    else if (values[i] <= 1e-11)  // masked, zero, or too small beside 1
      EXPECT_EQ(read[i], values[i] < 0 ? values[i] : 0);
    else
      EXPECT_TRUE(std::abs(read[i] / values[i] - 1) <= block.step / 2 * 1.001) << values[i];
  }
}

TEST(Log16, SplitsALongRunOfMaskedCells) {
  const std::vector<double> values(200'000, -std::numeric_limits<double>::infinity());
  const auto block = page_block_log16("x", Tensor::from(std::span<const double>(values), {200'000}));
  EXPECT_EQ(read_log16(block), values);
  EXPECT_LE(block.data.size(), 64U);
}

TEST(Log16, TakesZerosAlone) {
  const std::vector<double> values(3, 0);
  EXPECT_EQ(read_log16(page_block_log16("x", Tensor::from(std::span<const double>(values), {3}))), values);
}

TEST(U24, HoldsThreeBytesANumberAndAllOnesForNone) {
  const auto block = page_block_u24("x", Tensor::from<std::int64_t>({1, -1, 0x123456}, {3}));
  EXPECT_EQ(block.data, base64_of(std::string("\1\0\0\xff\xff\xff\x56\x34\x12", 9)));
}

class PageFile : public testing::Test {
 protected:
  std::string written(const HtmlPage& page) const {
    heed::write_html(path, page);
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The text between the opening tag with this id and the next closing tag.
  static std::string script_of(const std::string& file, const std::string& id) {
    const std::size_t tag = file.find("id=\"" + id + "\"");
    const std::size_t from = file.find('>', tag) + 1;
    return file.substr(from, file.find("</script>", from) - from);
  }
  heed::test::TemporaryFolder folder;
  const std::string path = folder / "page.html";
};

// The examples of RFC 4648, section 10.
TEST(Base64, GivesTheExamplesOfItsStandard) {
  const std::vector<std::string> expected = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (std::size_t length = 0; length < expected.size(); ++length)
    EXPECT_EQ(base64_of(std::string("foobar").substr(0, length)), expected[length]);
  EXPECT_EQ(base64_of("\xfb\xff\xfe"), "+//+");
}

TEST_F(PageFile, HoldsNumbersAsLittleEndianFloats) {
  const Tensor value = Tensor::from<float>({1.0F, -2.0F}, {1, 2});
  HtmlPage page;
  page.query_tokens = page.key_tokens = {"word"};
  page.steps.push_back({"embeddings", "embeddings", "x_i", "m", {"Lq", "D"}, value});
  const std::string file = written(page);
  EXPECT_EQ(script_of(file, "data-step-embeddings"), base64_of(std::string("\0\0\x80\x3f\0\0\0\xc0", 8)));
  const auto about = nlohmann::json::parse(script_of(file, "page"));
  EXPECT_EQ(about.at("tensors").at("step-embeddings").at("shape"), (std::vector<int>{1, 2}));
  EXPECT_EQ(about.at("tensors").at("step-embeddings").at("dtype"), "f32");
}

// For a report, and for a page of steps only.
TEST_F(PageFile, TellsQueriesFromKeys) {
  heed::Generator draw{3};
  const Tensor query = heed::randn(draw, {2, 5, 4}), key = heed::randn(draw, {2, 9, 4});
  const heed::AttentionReport report = heed::make_report(query, key, key, {}, {});
  HtmlPage page;
  page.query_tokens = std::vector<std::string>(5, "asks");
  page.key_tokens = std::vector<std::string>(9, "is asked");
  page.heads = 2;
  for (const heed::AttentionReport* given : {static_cast<const heed::AttentionReport*>(nullptr), &report}) {
    page.report = given;
    const auto about = nlohmann::json::parse(script_of(written(page), "page"));
    EXPECT_EQ(about["query_count"], 5);
    EXPECT_EQ(about["key_count"], 9);
    EXPECT_EQ(about["heads"], 2);
    EXPECT_EQ(about["query_tokens"].size(), 5U);
    EXPECT_EQ(about["key_tokens"].size(), 9U);
  }
}

TEST_F(PageFile, KeepsTextThatLooksLikeMarkupOutOfTheMarkup) {
  const std::string hostile = "</script><!--<script>@DATA@\\\"\xff";
  HtmlPage page;
  page.title = page.about = hostile;
  page.query_tokens = page.key_tokens = {hostile};
  const Tensor value({1});
  page.steps.push_back({"\"></script><!--", "", "", "", {"D"}, value});
  const std::string file = written(page);
  EXPECT_EQ(file.find("</script><!--"), std::string::npos);
  const auto about = nlohmann::json::parse(script_of(file, "page"));
  EXPECT_EQ(about.at("query_tokens").at(0), "</script><!--<script>@DATA@\\\"\xef\xbf\xbd");
}

TEST_F(PageFile, RefusesAxesThatDoNotFitAndLeavesTheFileAsItWas) {
  HtmlPage page;
  (void)written(page);
  const Tensor value({2, 3});
  page.steps.push_back({"query", "queries", "", "", {"H", "Lq", "d_k"}, value});
  try {
    heed::write_html(path, page);
    FAIL() << "it was taken";
  } catch (const heed::Error& error) {
    EXPECT_STREQ(error.what(), "step 'query' names 3 axes; its value has shape [2, 3]");
  }
  page.steps.clear();
  EXPECT_EQ(written(page).find("data-step-query"), std::string::npos);
}

TEST_F(PageFile, RefusesMoreValuesThanABrowserLoadsWell) {
  const Tensor one({1});
  HtmlPage page;
  page.steps.push_back({"scores",
                        "scores",
                        "",
                        "",
                        {"Lq", "Lk"},
                        heed::TensorView(one.view().data(), heed::DType::f32, {4'000, 1'001}, {0, 0})});
  EXPECT_THROW(heed::write_html(path, page), heed::Error);
  page.steps[0].value =
      heed::TensorView(one.view().data(), heed::DType::f32, {1, heed::kMaxPageValues + 1}, {0, 0});
  EXPECT_THROW(heed::write_html(path, page), heed::Error);
  page.steps[0].value =
      heed::TensorView(one.view().data(), heed::DType::f32, {1, heed::kMaxPageValues}, {0, 0});
  EXPECT_NO_THROW(heed::write_html(path, page));
}

// Six heads of 203 tokens. A page with every weight would take 200 kB per head.
class BoundedPage : public PageFile {
 protected:
  BoundedPage() {
    page.query_tokens = page.key_tokens = std::vector<std::string>(203, "a word");
    page.heads = 6;
    page.report = &report;
  }
  nlohmann::json about(const std::string& file) const {
    return nlohmann::json::parse(script_of(file, "page"));
  }
  // The sum of the weights in each bin, for any size of the map.
  Tensor sums(std::int64_t head, std::int64_t bins) const {
    Tensor map({bins, bins}, heed::DType::f64);
    for (std::int64_t i = 0; i < 203; ++i)
      for (std::int64_t j = 0; j < 203; ++j)
        map.at<double>(i * bins / 203, j * bins / 203) += weights.at<float>(0, head, i, j);
    return map;
  }
  heed::Generator draw{3};
  const Tensor q = heed::randn(draw, {6, 203, 8});
  const Tensor k = heed::randn(draw, {6, 203, 8});
  const heed::AttentionReport report =
      heed::make_report(q, k, k, {.causal = true}, {.full_weights_cells = heed::kFullWeightsCells});
  const Tensor weights = heed::attention(q.view().unsqueeze(0), k.view().unsqueeze(0), k.view().unsqueeze(0),
                                         {.causal = true, .need = heed::Need::weights})
                             .weights;
  HtmlPage page;
  // The size of the page's own scripts and styles.
  const std::int64_t itself = static_cast<std::int64_t>(written(HtmlPage{}).size());
};

TEST_F(BoundedPage, IsNeverLargerThanItMayBe) {
  const std::string whole = written(page);
  EXPECT_EQ(heed::write_html(path, page), "");
  std::size_t least = 0;
  std::size_t last = 0;
  for (std::int64_t most = 20'000; most <= 1'700'000; most += 40'000) {
    page.most_bytes = most;
    try {
      const std::string file = written(page);
      EXPECT_LE(file.size(), static_cast<std::size_t>(most));
      last = file.size();
      if (least == 0) least = file.size();
    } catch (const heed::Error& error) {
      EXPECT_EQ(error.code(), heed::ErrorCode::invalid_argument);
      EXPECT_EQ(least, 0U) << most << ": " << error.what();
    }
  }
  EXPECT_GT(least, 0U);
  EXPECT_LE(least, static_cast<std::size_t>(itself) + 70'000U);
  EXPECT_EQ(last, whole.size());
}

TEST_F(BoundedPage, SaysWhatItLeavesOut) {
  const auto left_out = [&](std::int64_t most) {
    page.most_bytes = most;
    return heed::write_html(path, page);
  };
  EXPECT_EQ(left_out(2'000'000), "");
  EXPECT_EQ(left_out(itself + 480'000), "all but three digits of each weight");
  EXPECT_EQ(left_out(itself + 280'000), "single weights (its maps have 128 x 128 bins)");
  EXPECT_NE(left_out(itself + 32'000).find("the figures of each row and key"), std::string::npos);
}

TEST_F(BoundedPage, HasMapsWhoseBinsAreSumsOfWeights) {
  page.most_bytes = itself + 280'000;
  const std::string file = written(page);
  const auto held = about(file);
  EXPECT_EQ(held["report"]["map_rows"], 128);
  EXPECT_EQ(held["report"]["tiles"].size(), 0U);
  for (std::int64_t head = 0; head < 6; ++head) {
    const std::string name = "map-" + std::to_string(head);
    const auto& tensor = held["tensors"][name];
    ASSERT_EQ(tensor["shape"], (std::vector<int>{128, 128}));
    const PageBlock block{name, "log16", {}, script_of(file, "data-" + name), tensor["low"], tensor["step"]};
    const std::vector<double> bins = read_log16(block);
    const Tensor expected = sums(head, 128);
    ASSERT_EQ(bins.size(), expected.values<double>().size());
    for (std::size_t bin = 0; bin < bins.size(); ++bin) {
      const double sum = expected.values<double>()[bin];
      ASSERT_NEAR(std::isinf(bins[bin]) ? 0 : bins[bin], sum, 2e-4 * sum + 1e-6) << head << " " << bin;
    }
  }
}

// Fewer keys than queries, so that the first rows see none.
TEST_F(PageFile, MasksExactlyTheBinsThatNoRowSees) {
  constexpr std::int64_t kQueries = 203, kKeys = 150;
  heed::Generator draw{3};
  const Tensor query = heed::randn(draw, {1, kQueries, 4}), key = heed::randn(draw, {1, kKeys, 4});
  for (const heed::AttentionOptions& options :
       {heed::AttentionOptions{}, heed::AttentionOptions{.causal = true},
        heed::AttentionOptions{.causal = true, .align = heed::Align::bottom_right},
        heed::AttentionOptions{.align = heed::Align::bottom_right, .window = {5, 2}}}) {
    const heed::AttentionReport report = heed::make_report(query, key, key, options, {.map = {40, 32}});
    HtmlPage page;
    page.query_tokens = std::vector<std::string>(kQueries, "asks");
    page.key_tokens = std::vector<std::string>(kKeys, "is asked");
    page.report = &report;
    const std::string file = written(page);
    const auto tensor = nlohmann::json::parse(script_of(file, "page"))["tensors"]["map-0"];
    const std::int64_t rows = tensor["shape"][0], columns = tensor["shape"][1];
    std::vector<bool> seen(static_cast<std::size_t>(rows * columns));
    for (std::int64_t i = 0; i < kQueries; ++i)
      for (std::int64_t j = 0; j < kKeys; ++j) {
        const std::int64_t at = options.align == heed::Align::bottom_right ? i + kKeys - kQueries : i;
        const bool in_window = options.window.left < 0 || (j >= at - 5 && j <= at + 2);
        if ((!options.causal || j <= at) && in_window)
          seen[static_cast<std::size_t>(i * rows / kQueries * columns + j * columns / kKeys)] = true;
      }
    const std::vector<double> bins =
        read_log16({"map-0", "log16", {}, script_of(file, "data-map-0"), tensor["low"], tensor["step"]});
    ASSERT_EQ(bins.size(), seen.size());
    for (std::size_t bin = 0; bin < bins.size(); ++bin) ASSERT_EQ(!std::isinf(bins[bin]), seen[bin]) << bin;
  }
}

}  // namespace
