// The page's file: what goes into it, and what is refused.
#include "heed/page.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "heed/error.hpp"
#include "io_support.hpp"
#include "page/block.hpp"

namespace {

using heed::HtmlPage;
using heed::Tensor;
using heed::detail::base64;

std::string base64_of(const std::string& text) { return base64(std::as_bytes(std::span(text))); }

class PageFile : public testing::Test {
 protected:
  std::string written(const HtmlPage& page) const {
    heed::write_html(path, page);
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // What stands between the opening tag that has the id and the next closing one.
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

TEST_F(PageFile, KeepsTextThatLooksLikeMarkupOutOfTheMarkup) {
  const std::string hostile = "</script><!--<script>@DATA@\\\"\xff";
  HtmlPage page;
  page.title = page.about = hostile;
  page.query_tokens = page.key_tokens = {hostile};
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
}

}  // namespace
