// heed look: its output agrees with the full matrix, both directly and from a saved file.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "attend_support.hpp"
#include "heed/attention/attention.hpp"
#include "progress.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::Need;
using heed::Tensor;
using heed::test::Attend;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::read_file;
using heed::test::run_heed;
using heed::test::same;
using heed::test::Words;
using heed::test::write_file;
using Json = nlohmann::json;

const Words kInputs = {"--query", "q.npy", "--key", "k.npy", "--value", "v.npy"};

// q [2, 4, 5, 8], k [2, 2, 7, 8], v [2, 2, 7, 6], and words for both.
class Look : public Attend {
 protected:
  Look() {
    write_file(folder / "rows.txt", "the\ncat\nsaw\nthe\ndog\n");
    write_file(folder / "keys.txt", "a\nthe\nb\nthe\nc\r\n=1+1\n\x1b[31mred");
  }

  [[nodiscard]] CommandResult look(const Words& words, CommandInput input = {}) const {
    Words all = {"look"};
    all.insert(all.end(), words.begin(), words.end());
    input.directory = folder.path();
    return run_heed(all, input);
  }
  [[nodiscard]] static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // The output of a successful run.
  [[nodiscard]] std::string printed(const Words& words) const {
    const CommandResult result = look(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.errors, "");
    return result.output;
  }
  [[nodiscard]] Json json(const Words& words) const { return Json::parse(printed(with(words, {"--json"}))); }

  void save(const Words& more = {}) const {
    (void)printed(
        with(with(kInputs, {"--tokens", "rows.txt", "--key-tokens", "keys.txt", "--save", "doc.safetensors"}),
             more));
  }
};

// f32 weights against f64 ones, for numbers of ordinary size.
constexpr double kTolerance = 1e-5;

TEST_F(Look, SummariesAreThoseOfTheFullMatrix) {
  const Json object = json(with(kInputs, {"--causal", "--align", "bottom-right"}));
  const Tensor weights =
      attention(Tensor::copy_of(query, DType::f64), Tensor::copy_of(key, DType::f64),
                Tensor::copy_of(value, DType::f64),
                {.causal = true, .align = heed::Align::bottom_right, .need = Need::weights})
          .weights;
  ASSERT_EQ(object["summary"].size(), 8u);
  for (const Json& head : object["summary"]) {
    const auto b = head["batch"].get<std::int64_t>();
    const auto h = head["head"].get<std::int64_t>();
    double entropy = 0, distance = 0, sink = 0, self = 0, previous = 0;
    std::vector<double> received(7, 0);
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t j = 0; j < 7; ++j) {
        const double p = weights.at<double>(b, h, i, j);
        const std::int64_t position = i + 2;
        entropy -= p > 0 ? p * std::log(p) : 0;
        distance += p * std::abs(static_cast<double>(position - j));
        sink += j == 0 ? p : 0;
        self += j == position ? p : 0;
        previous += j == position - 1 ? p : 0;
        received[static_cast<std::size_t>(j)] += p;
      }
    EXPECT_NEAR(head["entropy"].get<double>(), entropy / 5, kTolerance);
    EXPECT_NEAR(head["distance"].get<double>(), distance / 5, kTolerance);
    EXPECT_NEAR(head["sink"].get<double>(), sink / 5, kTolerance);
    EXPECT_NEAR(head["self"].get<double>(), self / 5, kTolerance);
    EXPECT_NEAR(head["previous"].get<double>(), previous / 5, kTolerance);
    EXPECT_EQ(head["next"].get<double>(), 0);
    const double most = *std::max_element(received.begin(), received.end());
    EXPECT_NEAR(head["received"][0]["weight"].get<double>(), most, kTolerance);
  }
}

// Uses every option that changes the result, so the file must keep them all.
TEST_F(Look, TheFileAnswersWhatTheTensorsDo) {
  write("bias.npy", random_tensor({5, 7}, 4));
  write("slopes.npy", random_tensor({4}, 5));
  write("decay.npy", random_tensor({4, 7}, 7));
  write("sinks.npy", random_tensor({4}, 6));
  write("lengths.npy", Tensor::from<std::int64_t>({3, 6}, {2}));
  Tensor mask({1, 1, 5, 7}, DType::boolean);
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t j = 0; j < 7; ++j) mask.at<bool>(0, 0, i, j) = (i + j) % 4 != 1;
  write("mask.npy", mask);
  const std::vector<Words> calls = {
      {},
      {"--causal", "--window", "3,2", "--softcap", "20", "--scale", "0.5"},
      {"--bias", "bias.npy", "--mask", "mask.npy", "--sinks", "sinks.npy", "--alibi-slopes", "slopes.npy"},
      {"--kv-lengths", "lengths.npy", "--align", "bottom-right", "--causal"},
      {"--decay", "decay.npy", "--align", "bottom-right", "--causal"},
      {"--query-offset", "2", "--causal", "--dtype", "bf16"},
      {"--dtype", "f64", "--sinks", "sinks.npy"}};
  const Words words = {"--tokens", "rows.txt", "--key-tokens", "keys.txt"};
  for (const Words& call : calls) {
    save(call);
    const Words fresh = with(with(kInputs, call), words);
    const std::vector<Words> questions = {{"--row", "3", "--top-k", "7"},
                                          {"--row", "4", "--head", "2", "--batch", "1"},
                                          {"--tile", "1:4,2:7"},
                                          {"--token", "the"}};
    for (const Words& question : questions)
      EXPECT_EQ(json(with(fresh, question)), json(with({"doc.safetensors"}, question)))
          << ::testing::PrintToString(with(call, question));
    Json now = json(fresh);
    now.erase("cost");
    EXPECT_EQ(now, json({"doc.safetensors"})) << ::testing::PrintToString(call);
    EXPECT_EQ(printed({"doc.safetensors", "--check", "5"}).find("MISMATCH"), std::string::npos);
    EXPECT_EQ(printed(with(fresh, {"--check"})).find("MISMATCH"), std::string::npos);
  }
}

// A metadata string has at most a megabyte; words and heads may need more.
TEST_F(Look, TheFileHoldsWordsAndHeadsOfAnyNumber) {
  std::string words;
  for (char c = 'a'; c < 'f'; ++c) words += std::string(300'000, c) + "\n";
  write_file(folder / "rows.txt", words);
  save();
  const Json row = json({"doc.safetensors", "--row", "3", "--head", "0", "--batch", "0"})["rows"][0];
  EXPECT_EQ(row["token"], std::string(300'000, 'd'));
  const std::int64_t entries = heed::test::makes_all_calls() ? 4000 : 400;
  const Tensor many = random_tensor({entries, 1, 1, 2}, 7);
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write(name, many);
  (void)printed(with(kInputs, {"--save", "heads.safetensors"}));
  const Json object = json({"heads.safetensors"});
  ASSERT_EQ(object["summary"].size(), entries);
  EXPECT_EQ(object["summary"].back()["batch"], entries - 1);
}

TEST_F(Look, PackedSequencesAreKeptToo) {
  write("q1.npy", random_tensor({2, 5, 8}, 11));
  write("k1.npy", random_tensor({2, 7, 8}, 12));
  write("v1.npy", random_tensor({2, 7, 3}, 13));
  write("sq.npy", Tensor::from<std::int64_t>({0, 2, 5}, {3}));
  write("sk.npy", Tensor::from<std::int64_t>({0, 4, 7}, {3}));
  const Words call = {"--query",  "q1.npy",           "--key",  "k1.npy",         "--value", "v1.npy",
                      "--causal", "--query-segments", "sq.npy", "--key-segments", "sk.npy"};
  (void)printed(with(call, {"--save", "doc.safetensors", "--check"}));
  EXPECT_EQ(json(with(call, {"--tile", "0:5,0:7"})), json({"doc.safetensors", "--tile", "0:5,0:7"}));
  const Json tile = json({"doc.safetensors", "--tile", "3:4,0:7"});
  EXPECT_EQ(tile["allowed"][0][0][0], Json::parse("[false,false,false,false,true,true,false]"));
}

TEST_F(Look, ATileIsThatPieceOfTheWeights) {
  const Tensor weights = attention(query, key, value, {.need = Need::weights}).weights;
  (void)printed(with(kInputs, {"--tile", "1:3,2:7", "--npy", "tile.npy", "--csv", "tile.csv"}));
  const Tensor tile = read("tile.npy");
  ASSERT_EQ(tile.shape(), (heed::Dims{2, 4, 2, 5}));
  for (std::int64_t h = 0; h < 4; ++h)
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t j = 0; j < 5; ++j)
        EXPECT_NEAR(tile.at<float>(1, h, i, j), weights.at<float>(1, h, i + 1, j + 2), kTolerance);
  std::istringstream csv(read_file(folder / "tile.csv"));
  std::string line;
  std::getline(csv, line);
  EXPECT_EQ(line, "batch,head,row,key,allowed,weight\r");
  std::getline(csv, line);
  EXPECT_TRUE(line.starts_with("0,0,1,2,1,0.")) << line;
}

TEST_F(Look, ATileThatReachesPastTheEndIsCutThere) {
  for (const Words& source : {kInputs, Words{"doc.safetensors"}}) {
    if (source.size() == 1) save();
    EXPECT_EQ(json(with(source, {"--tile", "3:100,5:1000000000000"})),
              json(with(source, {"--tile", "3:5,5:7"})));
    const std::string text = printed(with(source, {"--tile", "3:100,5:9", "--head", "0", "--batch", "0"}));
    EXPECT_NE(text.find("head 0, rows 3 to 4, keys 5 to 6\n"), std::string::npos) << text;
    EXPECT_NE(text.find("\n--tile ends where the tensors end: there are 5 queries and 7 keys\n"),
              std::string::npos)
        << text;
  }
}

TEST_F(Look, ARowIsTheSameInEveryForm) {
  const Words row = with(kInputs, {"--row", "2", "--head", "1", "--batch", "0", "--tokens", "rows.txt",
                                   "--key-tokens", "keys.txt", "--npy", "row.npy", "--csv", "row.csv"});
  const Json object = json(with(row, {"--top-k", "7"}));
  const Tensor weights = read("row.npy");
  ASSERT_EQ(weights.shape(), (heed::Dims{1, 1, 1, 7}));
  double last = 2;
  for (const Json& top : object["rows"][0]["keys"]) {
    const auto weight = top["weight"].get<double>();
    EXPECT_EQ(weight, static_cast<double>(weights.at<float>(0, 0, 0, top["key"].get<std::int64_t>())));
    EXPECT_LE(weight, last);
    last = weight;
  }
  EXPECT_EQ(object["rows"][0]["keys"].size(), 7u);
  EXPECT_EQ(object["rows"][0]["token"], "saw");
  // A word that a spreadsheet would execute is escaped.
  EXPECT_NE(read_file(folder / "row.csv").find(",5,'=1+1,"), std::string::npos);
}

TEST_F(Look, AWordFindsAllItsRows) {
  const Json object =
      json(with(kInputs, {"--tokens", "rows.txt", "--token", "the", "--head", "0", "--batch", "1"}));
  ASSERT_EQ(object["rows"].size(), 2u);
  EXPECT_EQ(object["rows"][0]["row"], 0);
  EXPECT_EQ(object["rows"][1]["row"], 3);
}

// A range is cut at the end. Each row is printed once, in the order requested.
TEST_F(Look, RowsAreAskedByNumberByRangeAndByWord) {
  save();
  const Words call = {"doc.safetensors", "--batch", "0", "--head", "3,1"};
  const auto places = [&](const std::string& rows) {
    std::vector<std::pair<int, int>> found;
    const Json object = json(with(call, {"--row", rows}));
    for (const Json& row : object["rows"]) found.emplace_back(row["row"], row["head"]);
    return found;
  };
  using Places = std::vector<std::pair<int, int>>;
  EXPECT_EQ(places("4,2"), (Places{{4, 1}, {4, 3}, {2, 1}, {2, 3}}));
  EXPECT_EQ(places("3:9"), (Places{{3, 1}, {3, 3}, {4, 1}, {4, 3}}));
  EXPECT_EQ(places("the"), (Places{{0, 1}, {0, 3}, {3, 1}, {3, 3}}));
  EXPECT_EQ(places("the:2,3:4"), (Places{{3, 1}, {3, 3}}));
  const std::string text = printed(with(call, {"--row", "3:9"}));
  EXPECT_NE(text.find("\n--row ends where the tensors end: there are 5 queries\n"), std::string::npos)
      << text;
  EXPECT_EQ(printed(with(call, {"--row", "3:5"})).find("cut"), std::string::npos);
}

// The files for several rows and heads hold each of them side by side.
TEST_F(Look, SeveralHeadsAndRowsLieSideBySide) {
  const Tensor weights = attention(query, key, value, {.need = Need::weights}).weights;
  (void)printed(with(kInputs, {"--row", "4,1", "--head", "3,0", "--npy", "rows.npy"}));
  (void)printed(
      with(kInputs, {"--tile", "1:3,2:7", "--head", "1,3", "--npy", "tile.npy", "--csv", "tile.csv"}));
  const Tensor rows = read("rows.npy");
  const Tensor tile = read("tile.npy");
  ASSERT_EQ(rows.shape(), (heed::Dims{2, 2, 2, 7}));
  ASSERT_EQ(tile.shape(), (heed::Dims{2, 2, 2, 5}));
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 2; ++i)
        for (std::int64_t j = 0; j < 5; ++j) {
          EXPECT_NEAR(rows.at<float>(b, h, i, j), weights.at<float>(b, 3 * h, i == 0 ? 4 : 1, j), kTolerance);
          EXPECT_NEAR(tile.at<float>(b, h, i, j), weights.at<float>(b, 1 + 2 * h, i + 1, j + 2), kTolerance);
        }
  EXPECT_NE(read_file(folder / "tile.csv").find("\r\n1,3,2,6,1,"), std::string::npos);
}

// More keys than the file keeps are computed from query, key and lse.
TEST_F(Look, AFileNamesMoreKeysThanItWasSavedWith) {
  save({"--top-k", "2"});
  const Json few = json({"doc.safetensors", "--token", "the"});
  const Json many = json({"doc.safetensors", "--token", "the", "--top-k", "7"});
  ASSERT_EQ(many["rows"].size(), few["rows"].size());
  for (std::size_t i = 0; i < many["rows"].size(); ++i) {
    EXPECT_EQ(many["rows"][i]["keys"].size(), 7u);
    double sum = 0;
    for (const Json& top : many["rows"][i]["keys"]) sum += top["weight"].get<double>();
    EXPECT_NEAR(sum, 1, kTolerance);
    EXPECT_EQ(many["rows"][i]["keys"][0]["key"], few["rows"][i]["keys"][0]["key"]);
  }
}

TEST_F(Look, EachRowOfTheMapSumsToItsRows) {
  const Json object = json(with(kInputs, {"--map", "2x3"}));
  for (const Json& batch : object["map"])
    for (const Json& head : batch) {
      // Rows 0 to 2 are the first half of five rows.
      EXPECT_NEAR(head[0][0].get<double>() + head[0][1].get<double>() + head[0][2].get<double>(), 3,
                  kTolerance);
      EXPECT_NEAR(head[1][0].get<double>() + head[1][1].get<double>() + head[1][2].get<double>(), 2,
                  kTolerance);
    }
  save();
  const Json again = json({"doc.safetensors", "--map", "2x3"});
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t c = 0; c < 3; ++c)
      EXPECT_NEAR(again["map"][1][3][r][c].get<double>(), object["map"][1][3][r][c].get<double>(),
                  kTolerance);
}

// 301 and 299 have no common divisors with any map size, so bins differ in size.
TEST_F(Look, TheFileIsFarSmallerThanTheMatrixAndItsMapIsRight) {
  write("q.npy", random_tensor({6, 301, 8}, 1));
  write("k.npy", random_tensor({6, 299, 8}, 2));
  write("v.npy", random_tensor({6, 299, 8}, 3));
  (void)printed(with(kInputs, {"--causal", "--save", "doc.safetensors"}));
  EXPECT_LE(read_file(folder / "doc.safetensors").size(), 6u * 301 * 299 * sizeof(float) / 4);
  const heed::io::SafetensorsReader file(folder / "doc.safetensors");
  const Tensor map = file.read("map");
  EXPECT_EQ(map.dtype(), DType::f32);
  const Tensor q = file.read("query");
  const Tensor k = file.read("key");
  const Tensor weights = heed::attention(q, k, k, {.causal = true, .need = Need::weights}).weights;
  Tensor sums(map.shape(), DType::f64);
  for (std::int64_t h = 0; h < 6; ++h)
    for (std::int64_t i = 0; i < 301; ++i)
      for (std::int64_t j = 0; j < 299; ++j)
        sums.at<double>(0, h, i * map.size(2) / 301, j * map.size(3) / 299) += weights.at<float>(0, h, i, j);
  for (std::size_t bin = 0; bin < sums.values<double>().size(); ++bin)
    ASSERT_NEAR(map.values<float>()[bin], sums.values<double>()[bin], kTolerance) << bin;
}

// The page of so many cells draws the map, which the file keeps unchanged.
TEST_F(Look, TheFileOfALongCallKeepsTheMapOfItsPage) {
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write(name, random_tensor({2100, 4}, 9));
  (void)printed(with(kInputs, {"--save", "doc.safetensors"}));
  const heed::io::SafetensorsReader file(folder / "doc.safetensors");
  EXPECT_EQ(file.dtype("map"), DType::f32);
  EXPECT_EQ(file.shape("map"), (heed::Dims{1, 1, 1024, 1024}));
}

TEST_F(Look, FilesOfEarlierVersionsAreRead) {
  const std::filesystem::path corpus =
      std::filesystem::path(HEED_SOURCE_DIR) / "fuzz/corpus/fuzz_look_document";
  int read = 0;
  for (const auto& file : std::filesystem::directory_iterator(corpus)) {
    EXPECT_EQ(printed({file.path(), "--check", "--map", "2x2"}).find("MISMATCH"), std::string::npos) << file;
    read += heed::io::SafetensorsReader(file.path()).dtype("map") == DType::f64 ? 1 : 0;  // the older dtype
  }
  EXPECT_EQ(read, 4);
}

TEST_F(Look, HeadsAreSortedByWhatIsAsked) {
  const std::map<std::string, std::string> fields = {
      {"sink", "sink"}, {"entropy", "entropy"},   {"distance", "distance"}, {"received", "received"},
      {"self", "self"}, {"previous", "previous"}, {"next", "next"}};
  for (const auto& [option, field] : fields) {
    double last = std::numeric_limits<double>::infinity();
    const Json object = json(with(kInputs, {"--sort", option}));
    ASSERT_EQ(object["summary"].size(), 8u);
    for (const Json& head : object["summary"]) {
      const double size =
          field == "received" ? head[field][0]["weight"].get<double>() : head[field].get<double>();
      EXPECT_LE(size, last) << option;
      last = size;
    }
  }
}

TEST_F(Look, BriefHasALineAHeadTheBestNamedFirst) {
  Tensor keys({3, 12, 12});
  Tensor queries({3, 12, 12});
  for (std::int64_t h = 0; h < 3; ++h)  // with growing size, rows attend more and more to the previous key
    for (std::int64_t i = 0; i < 12; ++i) {
      keys.at<float>(h, i, i) = static_cast<float>(4 * h);
      if (i > 0) queries.at<float>(h, i, i - 1) = 6;
    }
  write("q.npy", queries);
  write("k.npy", keys);
  write("v.npy", keys);
  const std::string text = printed(with(kInputs, {"--causal", "--brief"}));
  EXPECT_EQ(text.find("attended to most"), std::string::npos) << text;
  EXPECT_LT(text.find("\n2     previous-token"), text.find("\n1     previous-token")) << text;
  EXPECT_EQ(text.find("plain forward"), std::string::npos) << text;  // takes less than a millisecond
}

TEST_F(Look, NamesAHeadAndSaysWhatItCost) {
  // Queries are the previous keys, scaled up, so each row attends to the previous key.
  Tensor keys({1, 12, 12});
  Tensor queries({1, 12, 12});
  for (std::int64_t i = 0; i < 12; ++i) {
    keys.at<float>(0, i, i) = 20;
    if (i > 0) queries.at<float>(0, i, i - 1) = 20;
  }
  write("q.npy", queries);
  write("k.npy", keys);
  write("v.npy", keys);
  const std::string text = printed(with(kInputs, {"--causal", "--price"}));
  EXPECT_NE(text.find("previous-token"), std::string::npos) << text;
  EXPECT_NE(text.find("plain forward"), std::string::npos);
  EXPECT_NE(text.find("full matrix (not made)"), std::string::npos);
  const Json object = json(with(kInputs, {"--causal"}));
  EXPECT_EQ(object["summary"][0]["name"], "previous-token");
  EXPECT_EQ(object["cost"][0]["what"], "plain forward");
  EXPECT_EQ(object["cost"].back()["bytes"], 12 * 12 * 4);
}

TEST_F(Look, TheTableOfHeadsHasALineForEach) {
  (void)printed(with(kInputs, {"--csv", "heads.csv"}));
  std::istringstream csv(read_file(folder / "heads.csv"));
  Words lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_TRUE(lines[0].starts_with("batch,head,label,name,rows,"));
  EXPECT_TRUE(lines[8].starts_with("1,3,3,"));
}

TEST_F(Look, ForeignWordsCannotDriveTheTerminal) {
  const std::string text = printed(
      with(kInputs, {"--tokens", "rows.txt", "--key-tokens", "keys.txt", "--row", "0", "--top-k", "7"}));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("\\x1B[31mred (6)"), std::string::npos) << text;
}

TEST_F(Look, TokensOfWhiteSpaceAreSeen) {
  write_file(folder / "rows.txt", " \n the\n\n\t\nx\n");
  write_file(folder / "keys.txt", " \na\n\nb\n\t\nc\nd\n");
  const Words call =
      with(kInputs, {"--tokens", "rows.txt", "--key-tokens", "keys.txt", "--head", "0", "--batch", "0"});
  const std::string row = printed(with(call, {"--token", " ", "--top-k", "7"}));
  EXPECT_NE(row.find("row \"␣\" (0)\n"), std::string::npos) << row;
  for (const char* shown : {"\"␣\" (0) ", "\"\" (2) ", "\"⇥\" (4) ", " a (1) "})
    EXPECT_NE(row.find(shown), std::string::npos) << shown << row;
  // The rows of the picture start in the same column.
  const std::string tile = printed(with(call, {"--tile", "0:5,0:3"}));
  for (const char* line : {"\n  \"␣\"  ", "\n  ␣the ", "\n  \"\"   ", "\n  \"⇥\"  ", "\n  x    "})
    EXPECT_NE(tile.find(line), std::string::npos) << line << tile;
}

TEST_F(Look, ReadsWhatExplainSaved) {
  CommandInput input;
  input.directory = folder.path();
  ASSERT_EQ(
      run_heed({"explain", "to be or not to be", "--causal", "--save", "be.safetensors"}, input).exit_code,
      0);
  const Json object = json({"be.safetensors", "--token", "be"});
  ASSERT_EQ(object["rows"].size(), 2u);
  EXPECT_EQ(object["rows"][1]["row"], 5);
  const heed::io::TensorFile file = heed::io::read_safetensors(folder / "be.safetensors");
  for (const auto& [name, weights] : file.tensors) {
    if (name != "weights") continue;
    const Json& top = object["rows"][1]["keys"][0];
    EXPECT_NEAR(weights.at<float>(0, 5, top["key"].get<std::int64_t>()), top["weight"].get<double>(),
                kTolerance);
  }
  EXPECT_EQ(object["options"]["causal"], "true");
}

// Checks the document after changing one tensor.
class LookCheck : public Look {
 protected:
  using Change = std::function<void(Tensor&)>;

  LookCheck() { save(); }

  [[nodiscard]] CommandResult check_with(const std::string& name, const Change& change,
                                         const Words& more = {}) const {
    heed::io::TensorFile file = heed::io::read_safetensors(folder / "doc.safetensors");
    std::vector<std::pair<std::string, heed::TensorView>> tensors;
    for (auto& [each, tensor] : file.tensors) {
      if (each == name) change(tensor);
      tensors.emplace_back(each, tensor.view());
    }
    heed::io::write_safetensors(folder / "wrong.safetensors", tensors, file.metadata);
    return look(with({"wrong.safetensors", "--check", "100"}, more));
  }
  void expect_mismatch(const std::string& name, const std::string& line, const Change& change) const {
    const CommandResult result = check_with(name, change);
    EXPECT_EQ(result.exit_code, 1) << name;
    EXPECT_EQ(result.errors, "heed: --check found a mismatch: what is shown is not what was computed\n");
    bool found = false;
    std::istringstream lines(result.output);
    for (std::string each; std::getline(lines, each);)
      found = found || (each.starts_with(line + " ") && each.ends_with("MISMATCH"));
    EXPECT_TRUE(found) << name << ": no mismatch of " << line << '\n' << result.output;
  }
  // Adds to an element, in the dtype that the file has.
  static void set(Tensor& tensor, std::size_t at, double by) {
    Tensor wide = Tensor::copy_of(tensor, DType::f64);
    wide.values<double>()[at] += by;
    tensor = Tensor::copy_of(wide, tensor.dtype());
  }
};

TEST_F(LookCheck, FindsAWrongFigureOfARow) {
  const std::vector<std::pair<std::string, std::string>> figures = {{"entropy", "entropy"},
                                                                    {"distance", "distance"},
                                                                    {"max_weight", "max weight"},
                                                                    {"first", "first"},
                                                                    {"lse", "weights"},
                                                                    {"lse", "lse"},
                                                                    {"top_k_weight", "top-k"},
                                                                    {"self", "self"},
                                                                    {"next", "next"},
                                                                    {"max_score", "max score"},
                                                                    {"received", "received"},
                                                                    {"received", "received sums to the rows"},
                                                                    {"entropy", "means of the rows"}};
  for (const auto& [tensor, line] : figures)
    expect_mismatch(tensor, line, [](Tensor& t) { set(t, 0, 0.01); });
  expect_mismatch("previous", "previous", [](Tensor& t) { set(t, 3, 0.01); });
  expect_mismatch("position", "position and keys", [](Tensor& t) { set(t, 2, 1); });
  expect_mismatch("key_end", "position and keys", [](Tensor& t) { set(t, 2, -1); });
  // Row 3 is the second "the". Key 2 before it follows an earlier "the".
  expect_mismatch("induction", "induction", [](Tensor& t) { set(t, 3, 0.01); });
}

// Changes that are consistent: weights belong to their keys, and sums are right.
TEST_F(LookCheck, FindsWhatAgreesWithItselfAndIsWrong) {
  const Tensor weights = attention(query, key, value, {.need = Need::weights}).weights;
  // The lightest key replaces the heaviest.
  std::int64_t lightest = 0;
  for (std::int64_t j = 1; j < 7; ++j)
    if (weights.at<float>(0, 0, 0, j) < weights.at<float>(0, 0, 0, lightest)) lightest = j;
  heed::io::TensorFile file = heed::io::read_safetensors(folder / "doc.safetensors");
  std::vector<std::pair<std::string, heed::TensorView>> tensors;
  for (auto& [name, tensor] : file.tensors) {
    if (name == "top_k_index")
      set(tensor, 0, static_cast<double>(lightest - tensor.at<std::int64_t>(0, 0, 0, 0)));
    if (name == "top_k_weight")
      set(tensor, 0,
          static_cast<double>(weights.at<float>(0, 0, 0, lightest)) -
              Tensor::copy_of(tensor, DType::f64).at<double>(0, 0, 0, 0));
    tensors.emplace_back(name, tensor.view());
  }
  heed::io::write_safetensors(folder / "wrong.safetensors", tensors, file.metadata);
  const CommandResult result = look({"wrong.safetensors", "--check"});
  EXPECT_EQ(result.exit_code, 1) << result.output;
  // One key or bin has too much, and another has as much too little.
  for (const std::string name : {"received", "map"})
    expect_mismatch(name, name, [](Tensor& t) {
      set(t, 0, 0.01);
      set(t, 1, -0.01);
    });
}

// A row of numbers that the report stores as NaN was once skipped.
TEST_F(LookCheck, FindsNaNWhereThereIsANumber) {
  expect_mismatch("lse", "lse", [](Tensor& t) { set(t, 0, std::nan("")); });
}

TEST_F(LookCheck, FindsAWrongMeanOfAHead) {
  heed::io::TensorFile file = heed::io::read_safetensors(folder / "doc.safetensors");
  Json summaries = Json::parse(file.metadata.at("summaries"));
  summaries[0]["distance"] = summaries[0]["distance"].get<double>() + 0.01;
  file.metadata["summaries"] = summaries.dump();
  std::vector<std::pair<std::string, heed::TensorView>> tensors;
  for (const auto& [name, tensor] : file.tensors) tensors.emplace_back(name, tensor.view());
  heed::io::write_safetensors(folder / "wrong.safetensors", tensors, file.metadata);
  EXPECT_EQ(look({"wrong.safetensors", "--check"}).exit_code, 1);
}

TEST_F(LookCheck, SaysHowMuchItChecked) {
  const std::string text = printed(with(kInputs, {"--check", "3", "--map", "2x2"}));
  EXPECT_NE(text.find("checked in f64: 24 rows, 24 keys, 16 bins of the map\n"), std::string::npos) << text;
  EXPECT_NE(text.find("weights times values rebuild the output"), std::string::npos);
  EXPECT_NE(printed({"doc.safetensors", "--check", "3"})
                .find("the output was not rebuilt: the document holds no values\n"),
            std::string::npos);
  const Json object = json(with(kInputs, {"--check", "--head", "1"}));
  EXPECT_EQ(object["checked"]["rows"], 10);
  EXPECT_EQ(object["checked"]["nan_rows"], 0);
}

TEST_F(LookCheck, RowsOfNaNAreCountedAndNotCompared) {
  Tensor some = query;
  for (std::int64_t i = 0; i < 5; ++i) some.at<float>(0, 1, i, 3) = std::nanf("");
  some.at<float>(1, 0, 2, 3) = std::nanf("");
  write("q.npy", some);
  const std::string text = printed(with(kInputs, {"--check"}));
  EXPECT_NE(text.find("checked in f64: 34 rows, "), std::string::npos) << text;
  EXPECT_NE(text.find("\n6 rows of NaN, not compared\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nbatch 0, head 1: no row could be compared\n"), std::string::npos) << text;
}

TEST_F(LookCheck, FailsWhereItCouldCompareNothing) {
  for (const bool huge : {false, true}) {
    Tensor all({2, 4, 5, 8});
    for (float& x : all.values<float>()) x = huge ? 1e18F : std::nanf("");
    write("q.npy", all);
    const CommandResult result = look(with(kInputs, {"--check"}));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(
        result.errors,
        huge ? "heed: --check could compare no row: their scores are too large to compare after rounding\n"
             : "heed: --check could compare no row: all rows that it took are NaN\n");
    EXPECT_NE(result.output.find("checked in f64: 0 rows"), std::string::npos) << result.output;
  }
  write("q.npy", Tensor({2, 4, 0, 8}));
  EXPECT_EQ(look(with(kInputs, {"--check"})).errors,
            "heed: --check could compare no row: the call has none\n");
}

TEST_F(Look, LargePiecesAreDrawnInBins) {
  write("q.npy", random_tensor({300, 4}, 1));
  write("k.npy", random_tensor({300, 4}, 2));
  write("v.npy", random_tensor({300, 4}, 3));
  const std::string text = printed(with(kInputs, {"--tile", "0:300,0:300"}));
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) ++count;
  EXPECT_GT(count, 48);
  EXPECT_LT(count, 60);
  EXPECT_NE(text.find("each cell: the weight that a row of its bin gives"), std::string::npos);
}

TEST_F(Look, RowsWithoutAKeyAreSaidToHaveNone) {
  const std::string text = printed(with(kInputs, {"--row", "0", "--causal", "--query-offset", "-3"}));
  EXPECT_NE(text.find("no key is allowed"), std::string::npos) << text;
}

TEST(ProgressBar, FillsItsWidthFromEmptyToFull) {
  const std::string empty = heed::cli::progress_line("forward", 0, 60);
  const std::string half = heed::cli::progress_line("forward", 0.5, 60);
  const std::string full = heed::cli::progress_line("forward", 1, 60);
  EXPECT_EQ(empty.size(), 60u);
  EXPECT_EQ(half.size(), 60u);
  EXPECT_EQ(full.size(), 60u);
  EXPECT_EQ(empty.find('#'), std::string::npos);
  EXPECT_NE(half.find("]  50 %"), std::string::npos) << half;
  EXPECT_NE(full.find("#] 100 %"), std::string::npos) << full;
}

TEST(ProgressBar, SaysMoreAndLeavesTheBarOutWhereThatIsAllThereIsRoomFor) {
  const auto line = [](int width) {
    return heed::cli::progress_line("step 120 of 1000", 0.12, width, ", loss 2.346, 17 s left");
  };
  EXPECT_EQ(line(66), "step 120 of 1000 [##                ]  12 %, loss 2.346, 17 s left");
  EXPECT_EQ(line(48), "step 120 of 1000  12 %, loss 2.346, 17 s left   ");
  EXPECT_EQ(line(32), "step 120 of 1000  12 %, loss 2.…");
}

TEST(ProgressBar, IsSilentForShortWorkAndWithoutATerminal) {
  std::ostringstream out;
  {
    heed::cli::ProgressBar bar(out, 80);
    bar.show("forward", 0.5);
    heed::cli::ProgressBar(out, 0).show("forward", 0.5);
  }
  EXPECT_EQ(out.str(), "");
}

TEST(ProgressBar, WipesAwayWhatItDrew) {
  using heed::cli::ProgressBar;
  std::ostringstream out;
  {
    ProgressBar bar(out, 61, ProgressBar::Milliseconds(0));
    bar.show("forward", 0.5);
    bar.show("forward", 0.5);  // the same again, which is not drawn twice
    EXPECT_EQ(out.str(), "\r" + heed::cli::progress_line("forward", 0.5, 60));
    out.str("");
  }
  EXPECT_EQ(out.str(), "\r" + std::string(60, ' ') + "\r");
}

// The page's data about its call. Tests in a browser check the numbers and drawings (tests/python).
Json page_of(const std::string& file) {
  const std::size_t from = file.find('\n', file.find("id=\"page\">")) + 1;
  return Json::parse(file.substr(from, file.find("</script>", from) - from));
}

TEST_F(Look, ThePageHoldsEveryWeightOfAShortCallAndTheCommandThatAsksOn) {
  const Words call = with(kInputs, {"--tokens", "rows.txt", "--key-tokens", "keys.txt", "--window", "2,-1"});
  EXPECT_NE(printed(with(call, {"--html", "page.html"})).find("page.html: open it in a browser"),
            std::string::npos);
  const Json page = page_of(read_file(folder / "page.html"));
  EXPECT_EQ(page["heads"], 8);
  EXPECT_EQ(page["report"]["batch"], 2);
  EXPECT_EQ(page["report"]["tiles"].size(), 8u);
  EXPECT_EQ(page["tensors"]["tile-7"]["shape"], Json({5, 7}));
  EXPECT_EQ(page["tensors"].contains("map-0"), false);
  EXPECT_EQ(page["query_tokens"][1], "cat");
  EXPECT_EQ(page["look"],
            "heed look --query q.npy --key k.npy --value v.npy --window 2,-1 --tokens rows.txt --key-tokens "
            "keys.txt");
}

TEST_F(Look, ThePageOfADocumentAsksTheDocument) {
  save({"--causal", "--html", "first page.html"});
  (void)printed({"doc.safetensors", "--html", "page.html"});
  EXPECT_EQ(page_of(read_file(folder / "first page.html"))["look"], "heed look doc.safetensors");
  const Json page = page_of(read_file(folder / "page.html"));
  EXPECT_EQ(page["look"], "heed look doc.safetensors");
  EXPECT_EQ(page["report"]["summaries"],
            page_of(read_file(folder / "first page.html"))["report"]["summaries"]);
}

TEST_F(Look, APageIsCalledByItsTextItsFileOrAsAsked) {
  const auto title = [&](const Words& words) {
    (void)printed(with(words, {"--html", "page.html"}));
    return page_of(read_file(folder / "page.html"))["title"];
  };
  const Words model = {"--model", "induction"};
  heed::test::write_file(folder / "a text.txt", "to be or not to be or");
  EXPECT_EQ(title(with(model, {"to be", "or not"})), "to be or not");
  EXPECT_EQ(title(with(model, {"--text", "a text.txt"})), "a text.txt");
  EXPECT_EQ(title(with(model, {"to be", "--title", "Hamlet"})), "Hamlet");
  save({"--causal"});
  EXPECT_EQ(title({"doc.safetensors"}), "doc.safetensors");
}

// The opening weight joins two words: not the heaviest, which lies on "[SEP]".
TEST_F(Look, APageOpensBetweenWordsAndNotOnSpecialTokensAndPunctuation) {
  heed::test::write_file(folder / "words.txt", "[CLS]\na\ncat\n.\nsat\n[SEP]\n");
  Tensor queries({1, 6, 6}), keys({1, 6, 6});
  for (std::int64_t i = 0; i < 6; ++i) keys.at<float>(0, i, i) = 1;
  queries.at<float>(0, 1, 5) = 30;                               // a → [SEP]
  queries.at<float>(0, 5, 2) = queries.at<float>(0, 2, 5) = 30;  // [SEP] → cat → [SEP]
  queries.at<float>(0, 4, 1) = 9;                                // sat → a
  write("q.npy", queries);
  write("k.npy", keys);
  write("v.npy", keys);
  (void)printed(with(kInputs, {"--tokens", "words.txt", "--html", "page.html"}));
  const Json opening = page_of(read_file(folder / "page.html"))["report"]["opening"];
  EXPECT_EQ(opening, Json({{"head", 0}, {"row", 4}, {"key", 1}}));
}

// No weight joins two words by as much as an opening should, but the comma has less.
TEST_F(Look, APageOpensOnTheHeavierWeightIfNoneIsTelling) {
  heed::test::write_file(folder / "words.txt", "a\ncat\n,\nsat\non\nit\n");
  Tensor queries({1, 6, 6}), keys({1, 6, 6});
  for (std::int64_t i = 0; i < 6; ++i) keys.at<float>(0, i, i) = 1;
  for (std::int64_t i = 0; i < 6; ++i) queries.at<float>(0, i, 0) = 8;  // the first key has most
  queries.at<float>(0, 5, 1) = 7.2F;                                    // it → cat, 0.28
  write("q.npy", queries);
  write("k.npy", keys);
  write("v.npy", keys);
  (void)printed(with(kInputs, {"--tokens", "words.txt", "--html", "page.html"}));
  const Json opening = page_of(read_file(folder / "page.html"))["report"]["opening"];
  EXPECT_EQ(opening, Json({{"head", 0}, {"row", 5}, {"key", 1}}));
}

TEST_F(Look, ATextMayComeFromStandardInputAndTheNameOfAHeadMayHaveSpaces) {
  CommandInput input;
  input.text = "to be or not to be or";
  const CommandResult result = look(
      {"--model", "induction", "--text", "-", "--find", "first-token sink", "--html", "page.html"}, input);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(page_of(read_file(folder / "page.html"))["title"], "standard input");
  EXPECT_NE(look({"--model", "induction", "--text", "-", "--find", "First"}, input).errors, "");
  const CommandResult found =
      look({"--model", "induction", "--text", "-", "--find", "first token sink"}, input);
  EXPECT_NE(found.output.find("heads nearest to first-token sink"), std::string::npos) << found.errors;
}

// A causal row sees one key more than the row before. A page tells it by runs of rows.
TEST_F(Look, APageTellsWhichKeysEachRowMaySee) {
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write(name, random_tensor({1, 6, 4}, 9));
  const auto seen = [&](const Words& masks) {
    (void)printed(with(with(kInputs, masks), {"--html", "page.html"}));
    return page_of(read_file(folder / "page.html"))["report"]["seen"];
  };
  EXPECT_EQ(seen({}), Json::parse("[[[0, 0, 0, 6, 0]]]"));
  EXPECT_EQ(seen({"--causal"}), Json::parse("[[[0, 0, 0, 1, 1]]]"));
  EXPECT_EQ(seen({"--causal", "--window", "2,0"}), Json::parse("[[[0, 0, 0, 1, 1], [3, 1, 1, 4, 1]]]"));
}

// A forward pass of many milliseconds.
TEST_F(Look, ThePriceIsPrintedWhenAsked) {
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write(name, random_tensor({2, 1500, 64}, 9));
  EXPECT_EQ(printed(kInputs).find("plain forward"), std::string::npos);
}

// With 2,100 rows and keys, a head has more cells than a page holds.
TEST_F(Look, ThePageOfALongCallHoldsAMapAndTheWindowsAskedFor) {
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write(name, random_tensor({1, 2100, 4}, 9));
  (void)printed(with(kInputs, {"--causal", "--html", "it's.html", "--tile-at", "5,2090"}));
  const Json page = page_of(read_file(folder / "it's.html"));
  EXPECT_EQ(page["tensors"]["map-0"]["shape"], Json({1024, 1024}));
  EXPECT_EQ(page["tensors"]["thumb-0"]["shape"], Json({64, 64}));
  ASSERT_EQ(page["report"]["tiles"].size(), 1u);
  EXPECT_EQ(page["report"]["tiles"][0]["row_begin"], 0);
  EXPECT_EQ(page["report"]["tiles"][0]["key_begin"], 2100 - 256);
  EXPECT_EQ(page["report"]["tiles"][0]["key_end"], 2100);
}

}  // namespace
