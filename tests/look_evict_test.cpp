// heed look --evict: the rows that policies would have evicted, and the mass that each row lost by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "attend_support.hpp"

namespace {

using heed::DType;
using heed::Tensor;
using heed::test::Attend;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::read_file;
using heed::test::run_heed;
using heed::test::Words;
using heed::test::write_file;
using Json = nlohmann::json;

// q [2, 4, 24, 8], k and v [2, 2, 24, 8].
class LookEvict : public Attend {
 protected:
  LookEvict() {
    query = random_tensor({2, 4, kLength, 8}, 11);
    key = random_tensor({2, 2, kLength, 8}, 12);
    write("q.npy", query);
    write("k.npy", key);
    write("v.npy", key);
  }

  [[nodiscard]] CommandResult look(const Words& words) const {
    Words all = {"look"};
    all.insert(all.end(), words.begin(), words.end());
    CommandInput input;
    input.directory = folder.path();
    return run_heed(all, input);
  }
  [[nodiscard]] static Words call(const Words& more) {
    Words words = {"--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--causal"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  [[nodiscard]] std::string printed(const Words& words) const {
    const CommandResult result = look(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.errors, "");
    return result.output;
  }
  [[nodiscard]] Json json(Words words) const {
    words.emplace_back("--json");
    return Json::parse(printed(words))["evictions"];
  }
  void expect(int exit_code, const Words& words, const std::string& message) const {
    const Words before = folder.names();
    const CommandResult result = look(words);
    EXPECT_EQ(result.exit_code, exit_code) << ::testing::PrintToString(words);
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(folder.names(), before);
  }

  // The weights of a row in the whole call, in f64.
  [[nodiscard]] std::vector<double> weights(std::int64_t b, std::int64_t h, std::int64_t i) const {
    std::vector<double> p(kLength);
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      double score = 0;
      for (std::int64_t d = 0; d < 8; ++d)
        score += static_cast<double>(query.at<float>(b, h, i, d)) *
                 static_cast<double>(key.at<float>(b, h / 2, j, d));
      sum += p[static_cast<std::size_t>(j)] = std::exp(score / std::sqrt(8.0));
    }
    for (double& x : p) x /= sum;
    return p;
  }

  // The loss of every row must be the sum of the weights of its evicted keys.
  void expect_losses(const Json& eviction) const {
    ASSERT_EQ(eviction["heads"].size(), 8u);
    for (const Json& head : eviction["heads"]) {
      const auto b = head["batch"].get<std::int64_t>(), h = head["head"].get<std::int64_t>();
      const Json& gone = eviction["keys"][static_cast<std::size_t>(b)]["gone_at_row"];
      const auto prompt = eviction["prompt"].get<std::int64_t>();
      double mean = 0;
      for (std::int64_t i = 0; i < kLength; ++i) {
        const std::vector<double> p = weights(b, h, i);
        double dropped = 0;
        for (std::size_t j = 0; j < p.size(); ++j)
          if (!gone[j].is_null() && gone[j].get<std::int64_t>() <= i) dropped += p[j];
        // f32 against f64, for numbers of ordinary size.
        EXPECT_NEAR(head["dropped"][static_cast<std::size_t>(i)].get<double>(), dropped, 1e-5);
        if (i >= prompt) mean += dropped / static_cast<double>(kLength - prompt);
      }
      EXPECT_NEAR(head["mean"].get<double>(), mean, 1e-5);
    }
  }

  static constexpr std::int64_t kLength = 24;
};

TEST_F(LookEvict, SaysWhatEachPolicyThrewAwayAndWhatThatDid) {
  const Json evictions =
      json(call({"--evict", "streaming:2+6", "--evict", "h2o:2+6", "--evict", "snapkv:2+6"}));
  ASSERT_EQ(evictions.size(), 3u);
  for (const Json& eviction : evictions) expect_losses(eviction);
  EXPECT_EQ(evictions[0]["policy"], "streaming:2+6");
  EXPECT_EQ(evictions[0]["keys"][1]["kept"], (Json{0, 1, 18, 19, 20, 21, 22, 23}));
  for (std::size_t j = 0; j < kLength; ++j) {  // each new row evicts one key
    const Json& row = evictions[0]["keys"][0]["gone_at_row"][j];
    EXPECT_EQ(row, j < 2 || j >= 18 ? Json() : Json(j + 6)) << j;
  }
  EXPECT_EQ(evictions[1]["prompt"], 0);
  EXPECT_EQ(evictions[1]["keys"][0]["kept"].size(), 8u);
  EXPECT_EQ(evictions[2]["prompt"], 12);
  for (const Json& keys : evictions[2]["keys"]) {  // evicted once, at the end of the prompt
    EXPECT_EQ(keys["kept"].size(), 8u + 12u);
    for (const Json& row : keys["gone_at_row"]) EXPECT_TRUE(row.is_null() || row == 12) << row;
  }
}

TEST_F(LookEvict, BeginsAfterThePrompt) {
  const Json eviction = json(call({"--evict", "h2o:3+4", "--prompt", "15"}))[0];
  expect_losses(eviction);
  // The heavy hitters of the prompt: each key's sum of the weights from all prompt rows, over all heads.
  for (std::int64_t b = 0; b < 2; ++b) {
    std::vector<double> sums(kLength);
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t i = 0; i < 15; ++i) {
        const std::vector<double> p = weights(b, h, i);
        for (std::size_t j = 0; j < p.size(); ++j) sums[j] += p[j];
      }
    std::vector<double> heaviest(sums.begin(), sums.begin() + 12);
    std::sort(heaviest.rbegin(), heaviest.rend());
    for (std::size_t j = 0; j < 12; ++j)
      EXPECT_EQ(eviction["keys"][static_cast<std::size_t>(b)]["gone_at_row"][j] == Json(15),
                sums[j] < heaviest[2])
          << "batch " << b << ", key " << j;
  }
}

TEST_F(LookEvict, SavedDocumentsAndRanksOfAnyNumberGiveTheSame) {
  const Words policies = {"--evict", "h2o:2+6", "--evict", "snapkv:3+3", "--prompt", "9"};
  const Json now = json(call(policies));
  Words saving = call(policies);
  saving.insert(saving.end(), {"--save", "doc.safetensors"});
  (void)printed(saving);
  Words saved = {"doc.safetensors"};
  saved.insert(saved.end(), policies.begin(), policies.end());
  EXPECT_EQ(json(saved), now);
  write("q.npy", Tensor::copy_of(query.view().select(0, 1)));
  write("k.npy", Tensor::copy_of(key.view().select(0, 1)));
  write("v.npy", Tensor::copy_of(key.view().select(0, 1)));
  Json one = json(call(policies));
  for (std::size_t p = 0; p < 2; ++p)
    EXPECT_EQ(one[p]["keys"][0]["gone_at_row"], now[p]["keys"][1]["gone_at_row"]);
}

TEST_F(LookEvict, PrintsKeysAsRangesAndTheRowsThatLostMost) {
  std::string words;
  for (int i = 0; i < kLength; ++i) words += "w" + std::to_string(i) + "\n";
  write_file(folder / "words.txt", words);
  const Words question = {"--evict", "streaming:2+6", "--batch", "1",        "--head",
                          "3",       "--top-k",       "1",       "--tokens", "words.txt"};
  const std::string text = printed(call(question));
  EXPECT_NE(text.find("\nstreaming:2+6\n"
                      "  batch 1, evicted 16 of 24 keys: 2-17\n"
                      "  batch 1, kept 8 of 24 keys: 0-1, 18-23\n"
                      "  batch 1, head 3: a row loses "),
            std::string::npos)
      << text;
  const Json head = json(call(question))[0]["heads"][0];
  const std::vector<double> dropped = head["dropped"];
  const auto most = std::max_element(dropped.begin(), dropped.end()) - dropped.begin();
  char expected[64];
  std::snprintf(expected, sizeof expected, "    row w%d (%d) %.4f\n", static_cast<int>(most),
                static_cast<int>(most), dropped[static_cast<std::size_t>(most)]);
  EXPECT_TRUE(text.ends_with(expected)) << text << expected;
}

TEST_F(LookEvict, WritesATableOfAllRows) {
  (void)printed(call({"--evict", "h2o:2+6", "--head", "1", "--csv", "rows.csv"}));
  const Json heads = json(call({"--evict", "h2o:2+6", "--head", "1"}))[0]["heads"];
  std::istringstream table(read_file(folder / "rows.csv"));
  std::string line;
  ASSERT_TRUE(std::getline(table, line));
  EXPECT_EQ(line, "policy,prompt,batch,head,row,row_token,dropped\r");
  for (int b = 0; b < 2; ++b)
    for (int i = 0; i < kLength; ++i) {
      ASSERT_TRUE(std::getline(table, line));
      const std::string place = "h2o:2+6,0," + std::to_string(b) + ",1," + std::to_string(i) + ",,";
      ASSERT_TRUE(line.starts_with(place)) << line;
      EXPECT_FLOAT_EQ(
          std::stof(line.substr(place.size())),
          heads[static_cast<std::size_t>(b)]["dropped"][static_cast<std::size_t>(i)].get<float>());
    }
  EXPECT_FALSE(std::getline(table, line));
}

TEST_F(LookEvict, LooksAtALayerOfAModel) {
  const Json evictions =
      json({"--model", "induction", "--layer", "1", "to be or not to be or", "--evict", "streaming:1+2"});
  EXPECT_EQ(evictions[0]["keys"][0]["kept"], (Json{0, 5, 6}));
  for (const Json& head : evictions[0]["heads"]) EXPECT_GT(head["mean"].get<double>(), 0);
}

TEST_F(LookEvict, RefusesWhatItCannotDo) {
  const std::string policies =
      "; streaming:SINKS+WINDOW, h2o:HEAVY+RECENT or snapkv:VOTED+WINDOW, such as streaming:4+64, is "
      "expected";
  for (const char* policy :
       {"lru:4+4", "h2o", "h2o:4", "h2o:4+0", "h2o:-1+4", "h2o:4+4+4", "h2o:4+4:1", "h2o:a+4"})
    expect(2, call({"--evict", policy}), "--evict is '" + std::string(policy) + "'" + policies);
  expect(2, call({"--evict", "h2o:4+4", "--prompt", "24"}),
         "--prompt is 24; 0 to 23 of the 24 queries are expected");
  expect(2, call({"--evict", "snapkv:4+4", "--prompt", "3"}),
         "--prompt is 3; 4 to 23 of the 24 queries are expected for snapkv:4+4");
  expect(2, call({"--evict", "snapkv:4+24"}),
         "--evict is 'snapkv:4+24', in which the last 24 rows of a prompt must vote; there are 24 queries");
  expect(2, call({"--prompt", "3"}),
         "--prompt is given without --evict POLICY, which would start after the prompt");
  expect(2, call({"--evict", "h2o:4+4", "--row", "1"}),
         "--row and --evict are both given; one question at a time is expected");
  expect(2, call({"--evict", "h2o:4+4", "--html", "page.html"}),
         "--evict and --html are both given; one question at a time is expected");
  expect(2,
         {"--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--evict", "h2o:4+4", "--save",
          "doc.safetensors"},
         "causal is false; true is expected because decoded rows see no later keys");
  write("lengths.npy", Tensor::from<std::int64_t>({3, 6}, {2}));
  expect(2, call({"--evict", "h2o:4+4", "--kv-lengths", "lengths.npy"}),
         "kv_lengths is given; a call without it is expected because rows leave the cache");
  expect(2, {"--model", "induction", "to be", "--evict", "h2o:1+1"},
         "--evict works on one layer, but this call has the heads of 2; --layer N is expected with it");
}

}  // namespace
