// Errors of heed look: each is one line, printed before any work. Untrusted files are refused.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "attend_support.hpp"

namespace {

using heed::DType;
using heed::Tensor;
using heed::test::Attend;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::run_heed;
using heed::test::Words;
using heed::test::write_file;

class LookErrors : public Attend {
 protected:
  LookErrors() {
    write_file(folder / "rows.txt", "the\ncat\nsaw\nthe\ndog\n");
    write_file(folder / "latin1.txt", "a\nb\n\xe9\nd\ne\n");
  }

  [[nodiscard]] CommandResult look(const Words& words) const {
    Words all = {"look"};
    all.insert(all.end(), words.begin(), words.end());
    CommandInput input;
    input.directory = folder.path();
    return run_heed(all, input);
  }
  [[nodiscard]] static Words call(const Words& more) {
    Words words = {"--query", "q.npy", "--key", "k.npy", "--value", "v.npy"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void expect(int exit_code, const Words& words, const std::string& message) const {
    const Words before = folder.names();
    const CommandResult result = look(words);
    EXPECT_EQ(result.exit_code, exit_code) << ::testing::PrintToString(words);
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(folder.names(), before);
  }
};

TEST_F(LookErrors, SaysWhatIsWrongWithAnOption) {
  const std::string tile = "R0:R1,C0:C1 (rows R0 to R1 - 1, keys C0 to C1 - 1) is expected";
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--tile", "0:4"}, "--tile is '0:4'; " + tile},
      {{"--tile", "0:4,1"}, "--tile is '0:4,1'; " + tile},
      {{"--tile", "0:4,1:1"}, "--tile is '0:4,1:1'; " + tile},
      {{"--tile", "-1:4,0:1"}, "--tile is '-1:4,0:1'; " + tile},
      {{"--tile", "0:4,0:1,0:1"}, "--tile is '0:4,0:1,0:1'; " + tile},
      {{"--tile", "5:6,0:7"},
       "--tile begins at row 5, key 0; there are 5 queries and 7 keys, counted from 0"},
      {{"--tile", "0:5,7:9"},
       "--tile begins at row 0, key 7; there are 5 queries and 7 keys, counted from 0"},
      {{"--row", "5"}, "--row is 5; there are 5 queries, counted from 0"},
      {{"--row", "-1"}, "--row is '-1'; a row, or rows R0:R1 (R0 to R1 - 1), counted from 0, is expected"},
      {{"--head", "4"}, "--head is 4; there are 4 heads, counted from 0"},
      {{"--batch", "2"}, "--batch is 2; there are 2 batch entries, counted from 0"},
      {{"--top-k", "0"}, "--top-k is '0'; a whole number from 1 to 1024 is expected"},
      {{"--sort", "size"},
       "--sort is 'size'; name, score, entropy, sink, distance, self, previous, next, induction, received, "
       "previous-token, next-token, duplicate-token, same-token, separators, first-token-sink, local, "
       "vertical, uniform or fixed-offset is expected"},
      {{"--row", "0:2,4:4"},
       "--row is '4:4'; a row, or rows R0:R1 (R0 to R1 - 1), counted from 0, is expected"},
      {{"--row", "word"},
       "--row is 'word'; a row (5), rows (5:10), or several separated by commas, counted from 0, is "
       "expected"},
      {{"--row", "teh", "--tokens", "rows.txt"},
       "--row is 'teh', which is not a word of the text; did you mean 'the'?"},
      {{"--head", "1,x"},
       "--head is 'x'; a head (3, or 1.3 for layer 1, head 3), or several separated by commas, is expected"},
      {{"--head", "1.3"},
       "--head is '1.3', but this call has no layers; a number, counted from 0, is expected"},
      {{"--map", "8"}, "--map is '8'; ROWSxCOLUMNS, such as 64x64, is expected"},
      {{"--check=0"}, "--check is '0'; a whole number of at least 1 is expected"},
      {{"--token", "the"},
       "--token is given, but no tokens are known; --tokens FILE (a line a token) is expected"},
      {{"--token", "dgo", "--tokens", "rows.txt"},
       "--token is 'dgo', which is not a word of the text; did you mean 'dog'?"},
      {{"--tokens", "latin1.txt"}, "latin1.txt is not UTF-8 text (line 3)"},
      {{"--key-tokens", "rows.txt"}, "--key-tokens has 5 lines; 7, one for each of the keys, is expected"},
      {{"--row", "1", "--tile", "0:1,0:1"},
       "--row and --tile are both given; one question at a time is expected"},
      {{"--row", "1", "--sort", "sink"},
       "--row and --sort are both given; one question at a time is expected"},
      {{"--row", "1", "--html", "x.html"},
       "--row and --html are both given; one question at a time is expected"},
      {{"--head", "1", "--html", "x.html"},
       "--head is given together with --html, whose page holds all heads"},
      {{"--html", "x.html", "--png", "x.png", "--picture", "cat.png", "--grid", "2x2"},
       "--picture is given together with --png, which draws maps of tokens; a page draws the picture"},
      {{"--tile-at", "0,0"}, "--tile-at is given without --html FILE.html, whose page would show it"},
      {{"--html", "x.html", "--tile-at", "0"}, "--tile-at is '0'; ROW,KEY, counted from 0, is expected"},
      {{"--html", "x.html", "--tile-at", "0,0", "--tile-at", "5,0"},
       "--tile-at is 5; there are 5 queries, counted from 0"},
      {{"--html", "x.png"}, "--html is 'x.png'; a file whose name ends in .html is expected"},
      {{"--beside", "x.safetensors"},
       "--beside is given without --html FILE.html, whose page would subtract it"},
      {{"--html", "x.html", "--beside", "x.safetensors", "--check"},
       "--beside is given together with --check, which answers for one document"},
      {{"--npy", "x.npy"}, "--npy is given without --tile R0:R1,C0:C1 or --row N"},
      {{"--row", "1", "--npy", "x.txt"}, "--npy is 'x.txt'; a file whose name ends in .npy is expected"},
      {{"--save", "x.npy"}, "--save is 'x.npy'; a file whose name ends in .safetensors is expected"},
      {{"--csv", "q.npy"},
       "--csv 'q.npy' is the file that --query is read from; an input is never overwritten"},
      {{"--query-segments", "q.npy"}, "--query-segments is given without --key-segments OFFSETS.npy"},
      {{"--top-k", "2"},
       "--top-k is given without --row ROWS or another question about single keys, which it counts"},
      {{"--tile", "0:1,0:1", "--top-k", "2"},
       "--top-k is given without --row ROWS or another question about single keys, which it counts"},
      {{"--row", "1", "--no-received"},
       "--no-received is given together with --row, which needs no such pass"},
      {{"--find", "local", "--brief"},
       "--brief is given together with --find, which lists a line for each head"},
      {{"--sort", "received", "--no-received"},
       "--sort is 'received' while --no-received skips that column; one of the two is expected"}};
  for (const auto& [words, message] : cases) {
    const bool file = message.starts_with("latin1.txt");
    expect(file ? 1 : 2, call(words), message);
  }
}

TEST_F(LookErrors, RefusesWhatAModelOrAFileDecides) {
  const Words model = {"--model", "induction", "a", "b"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect(2, with(model, {"--batch", "1"}), "--batch is 1; there is 1 batch entry, counted from 0");
  expect(2, with(model, {"--kernel", "reference"}),
         "--kernel is given together with --model, whose kernel is fixed");
  expect(2, {"doc.safetensors", "--kernel", "reference"},
         "--kernel is given together with DOC, whose kernel is fixed");
  expect(2, call({"--dropout-seed", "1"}), "--dropout-seed is given without --dropout P");
}

TEST_F(LookErrors, AnswersOneQuestionAtATime) {
  const std::string both = " are both given; one question at a time is expected";
  const std::vector<Words> questions = {
      {"--row", "1"}, {"--tile", "0:1,0:1"}, {"--token", "a"}, {"--evict", "h2o:1+1"}};
  const std::vector<Words> summary = {{"--sort", "sink"},   {"--brief"},        {"--find", "induction"},
                                      {"--needle", "a"},    {"--top", "3"},     {"--price"},
                                      {"--map", "2x2"},     {"--check"},        {"--draw-mask"},
                                      {"--html", "x.html"}, {"--png", "x.png"}, {"--serve"}};
  for (std::size_t i = 0; i < questions.size(); ++i) {
    std::vector<Words> others(questions.begin() + static_cast<std::ptrdiff_t>(i) + 1, questions.end());
    others.insert(others.end(), summary.begin(), summary.end());
    for (const Words& other : others) {
      Words words = other;
      words.insert(words.end(), questions[i].begin(), questions[i].end());
      expect(2, call(words), questions[i][0] + " and " + other[0] + both);
    }
  }
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--find", "local", "--sort", "sink"}, "--find and --sort" + both},
      {{"--batch", "1", "--serve"}, "--batch is given together with --serve, whose page holds all heads"},
      {{"--json", "--serve"}, "--json is given together with --serve, which answers in the browser"},
      {{"--needle", "a"}, "--needle is given without --model DIR, which would read the text"},
      {{"--port", "80"}, "--port is given without --serve, which would listen on it"},
      {{"--proof"}, "--proof is given without --html FILE.html or --serve, whose page would show it"},
      {{"--token", "a", "--npy", "x.npy"}, "--npy is given without --tile R0:R1,C0:C1 or --row N"},
      {{"--row", "1", "--prompt", "2"},
       "--prompt is given without --evict POLICY, which would start after the prompt"},
      {{"--layer", "1"}, "--layer is given without --model DIR or DOC, which have layers"},
      {{"--text", "rows.txt"}, "--text is given without --model, which would read it"}};
  for (const auto& [words, message] : cases) expect(2, call(words), message);
  expect(2, {"doc.safetensors", "--layer", "1", "--html", "x.html"},
         "--layer is given together with --html, whose page holds all layers of DOC");
  expect(
      2, {"--model", "induction", "a b", "--text", "rows.txt", "--row", "1"},
      "--row is given together with several texts, which allow only the summary of the heads over all texts");
  expect(2, {"--model", "induction", "a b", "--text", "rows.txt", "--sort", "received"},
         "--sort is 'received', which a summary of several texts lacks");
  expect(2, {"--model", "induction", "a b a", "--needle", "b", "--brief"},
         "--brief is given together with --needle, which lists a line for each head");
  expect(2, {folder.path(), "--top", "1"},
         "--top is given together with a folder of captured calls, which allows only --layer and --json");
}

TEST_F(LookErrors, ADocumentHasItsSummary) {
  ASSERT_EQ(look(call({"--save", "doc.safetensors"})).exit_code, 0);
  const std::vector<Words> cases = {{"--no-received"},
                                    {"--price"},
                                    {"--html", "x.html", "--top-k", "2"},
                                    {"--check", "--top-k", "2"},
                                    {"--row", "1", "--save", "x.safetensors", "--no-received"}};
  for (Words words : cases) {
    const std::string option = words.size() < 3 ? words[0] : words.end()[words.back() == "2" ? -2 : -1];
    words.insert(words.begin(), "doc.safetensors");
    expect(2, words, option + " is given together with DOC, whose summary is already computed");
  }
}

TEST_F(LookErrors, SaysWhatIsMissing) {
  expect(2, {}, "no input is given; DOC.safetensors, or --query, --key and --value, is expected");
  expect(2, {"--query", "q.npy"},
         "--key is missing: FILE.npy, FILE.safetensors:NAME or - (see heed look --help)");
  expect(2, {"doc.npy"}, "DOC is 'doc.npy'; a file whose name ends in .safetensors is expected");
  expect(2, {"doc.safetensors", "--causal"}, "--causal is given together with DOC, which contains the call");
  EXPECT_EQ(look({"doc.safetensors"}).exit_code, 1);
  EXPECT_EQ(look(call({"--tokens", "none.txt"})).errors,
            "heed: none.txt could not be opened: No such file or directory\n");
  EXPECT_EQ(look(call({"--tokens", "."})).errors, "heed: . could not be read: Is a directory\n");
}

TEST_F(LookErrors, SaysWhatIsWrongWithTheTensorsAsTheyWereGiven) {
  write("k.npy", random_tensor({2, 2, 7, 9}, 2));
  expect(2, call({}), "key has head dimension 9 (shape [2, 2, 7, 9]); 8 as in query is expected");
  write("k.npy", random_tensor({7, 8}, 2));
  expect(2, call({}), "key has shape [7, 8]; 4 axes as in query are expected");
  write("q.npy", random_tensor({7}, 2));
  expect(2, call({}), "query has shape [7]; 2 to 4 axes, [B, H, L, D], are expected");
}

// A million tokens of one number each; the tile alone would take terabytes.
TEST_F(LookErrors, RefusesWhatWouldNotFitAndNamesWhatWould) {
  write("q.npy", Tensor({1000000, 1}, DType::f32));
  write("k.npy", Tensor({1000000, 1}, DType::f32));
  write("v.npy", Tensor({1000000, 1}, DType::f32));
  const CommandResult result = look(call({"--tile", "0:1000000,0:1000000"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(
      result.errors.starts_with("heed: --tile needs 4.0 TB per head in f32, and 9.0 TB to compute it"))
      << result.errors;
  EXPECT_NE(result.errors.find("--map 1024x1024 (exact sums) or --row N --top-k K need less"),
            std::string::npos);
}

TEST_F(LookErrors, ShowsATextOfSingleLettersAsTyped) {
  expect(2, {"--model", "induction", "a b a b", "--row", "zz"},
         "--row is 'zz', which is not a word of the text, “a b a b”");
  expect(2, {"--model", "stories", "a red ball", "--row", "zz"},
         "--row is 'zz', which is not a word of the text, “a red ball”");
}

TEST_F(LookErrors, NamesATextThatIsLongerThanTheContext) {
  std::string text;
  for (int i = 0; i < 65; ++i) text += "a ";
  write_file(folder / "long.txt", text);
  expect(2, {"--model", "induction", text},
         "WORDS has 65 tokens; at most 64, the context of the model, are expected");
  expect(2, {"--model", "induction", "--text", "long.txt"},
         "long.txt has 65 tokens; at most 64, the context of the model, are expected");
  std::string ids = "1";
  for (int i = 0; i < 64; ++i) ids += ",1";
  expect(2, {"--model", "induction", "--ids", ids},
         "--ids has 65 tokens; at most 64, the context of the model, are expected");
}

// Each change makes a file that must be refused, with this at the end of the message.
TEST_F(LookErrors, RefusesFilesThatDoNotFitTogether) {
  ASSERT_EQ(look(call({"--tokens", "rows.txt", "--save", "doc.safetensors"})).exit_code, 0);
  using File = heed::io::TensorFile;
  const auto tensor = [](File& file, const std::string& name) -> Tensor& {
    for (auto& [each, content] : file.tensors)
      if (each == name) return content;
    throw std::runtime_error(name);
  };
  const auto replace = [](File& file, const std::string& name, const std::string& from,
                          const std::string& to) {
    std::string& text = file.metadata.at(name);
    text.replace(text.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::function<void(File&)>, std::string>> cases = {
      {[](File& f) { f.metadata["format"] = "x"; },
       "is not a document of heed look or heed explain: the format in its metadata is not 'heed look 1' or "
       "'heed "
       "explain 1'"},
      {[](File& f) { f.metadata.clear(); },
       "is not a document of heed look or heed explain: the format in its metadata is not 'heed look 1' or "
       "'heed "
       "explain 1'"},
      {[](File& f) { f.metadata["format"] = "heed explain 1"; }, "has no tensor 'value'"},
      {[](File& f) { f.metadata["tokens"] = "[1,2,3,4,5]"; }, "has 'tokens' that is not a list of 5 texts"},
      {[](File& f) { f.metadata["tokens"] = "[\"a\"]"; }, "has 'tokens' that is not a list of 5 texts"},
      {[](File& f) { f.metadata["tokens"] = "[\"a\",[\"b\"],\"c\",\"d\",\"e\"]"; },
       "has 'tokens' that is not a list of 5 texts"},
      {[](File& f) { f.metadata["call"] = "[[[[[[[[[[]]]]]]]]]]"; },
       "has metadata 'call' with values of unexpected kinds"},
      {[](File& f) { f.metadata["tokens 2"] = "[\"a\"]"; }, "has 'tokens' that is not a list of 5 texts"},
      {[](File& f) { f.metadata["tokens 2"] = "3"; }, "has 'tokens' that is not a list of 5 texts"},
      {[](File& f) { f.metadata["summaries 2"] = "[{}]"; },
       "does not have one summary for each of its 8 heads"},
      {[](File& f) { f.metadata["tokens"] = "{"; }, "has metadata 'tokens' that is not JSON"},
      {[](File& f) { f.metadata["call"] = "[]"; }, "has metadata 'call' with values of unexpected kinds"},
      {[&](File& f) { replace(f, "call", "[-1,-1]", "[-1,1.5]"); },
       "has a number in its metadata that is not a whole number of 64 bits"},
      {[&](File& f) { replace(f, "call", "[-1,-1]", "[-1,18446744073709551615]"); },
       "has a number in its metadata that is not a whole number of 64 bits"},
      {[&](File& f) { replace(f, "call", "[-1,-1]", "[-7,-1]"); },
       "does not hold a valid call of attention: window.left is -7; -1 (open) or more is expected"},
      {[](File& f) { f.metadata["summaries"] = "[]"; }, "does not have one summary for each of its 8 heads"},
      {[&](File& f) { replace(f, "summaries", "\"most_received\":[", "\"most_received\":[9,"); },
       "has a summary with a key outside its keys"},
      {[&](File& f) {
         replace(f, "summaries", "\"most_received_weight\":[", "\"most_received_weight\":[1,");
       },
       "has a summary with different numbers of keys and weights"},
      {[&](File& f) {
         tensor(f, "lse") = Tensor({2, 4, 4});
       },
       "has lse of dtype f32 and shape [2, 4, 4]; f32 or f64 [2, 4, 5] is expected"},
      {[&](File& f) {
         tensor(f, "entropy") = Tensor({2, 4, 5}, DType::f16);
       },
       "has entropy of dtype f16 and shape [2, 4, 5]; f32 or f64 [2, 4, 5] is expected"},
      {[&](File& f) {
         tensor(f, "position") = Tensor({2, 5}, DType::i32);
       },
       "has position of dtype i32 and shape [2, 5]; i64 [2, 5] is expected"},
      {[&](File& f) { tensor(f, "position").values<std::int64_t>()[3] = INT64_MAX; },
       "has 9223372036854775807 in position; -2^61 to 2^61 is expected"},
      {[&](File& f) { tensor(f, "key_begin").values<std::int64_t>()[3] = -1; },
       "has a row whose keys are -1 to 7, of 7"},
      {[&](File& f) { tensor(f, "key_end").values<std::int64_t>()[3] = 8; },
       "has a row whose keys are 0 to 8, of 7"},
      {[&](File& f) { tensor(f, "key_begin").values<std::int64_t>()[3] = 8; },
       "has a row whose keys are 8 to 7, of 7"},
      {[&](File& f) { tensor(f, "top_k_index").values<std::int64_t>()[3] = 7; },
       "has 7 in top_k_index, but 7 keys"},
      {[&](File& f) { tensor(f, "top_k_index") = Tensor({3}, DType::i64); },
       "has top_k_index of dtype i64 and shape [3]; i64 [2, 4, 5, 0] is expected"},
      {[&](File& f) {
         tensor(f, "map") = Tensor({2, 4, 0, 3});
       },
       "has a map of shape [2, 4, 0, 3]"},
      {[&](File& f) { tensor(f, "query") = Tensor({5}); },
       "has query of dtype f32 and shape [5]; floats with 2 to 4 axes are expected"},
      {[&](File& f) {
         tensor(f, "key") = Tensor({2, 2, 7, 3});
       },
       "does not hold a valid call of attention: key has head dimension 3 (shape [2, 2, 7, 3]); 8 as in "
       "query is "
       "expected"},
      {[&](File& f) {
         f.tensors.emplace_back("mask", Tensor({3, 7}, DType::boolean));
       },
       "does not hold a valid call of attention: mask has shape [3, 7]; a shape that broadcasts to [2, 4, 5, "
       "7] "
       "is expected"}};
  for (const auto& [change, message] : cases) {
    File file = heed::io::read_safetensors(folder / "doc.safetensors");
    change(file);
    std::vector<std::pair<std::string, heed::TensorView>> tensors;
    for (const auto& [name, content] : file.tensors) tensors.emplace_back(name, content.view());
    heed::io::write_safetensors(folder / "bad.safetensors", tensors, file.metadata);
    const CommandResult result = look({"bad.safetensors"});
    EXPECT_EQ(result.exit_code, 1) << message;
    if (message.starts_with("has no tensor")) continue;  // a message of the reader
    EXPECT_EQ(result.errors, "heed: bad.safetensors " + message + "\n");
    EXPECT_EQ(result.output, "");
  }
}

TEST_F(LookErrors, RefusesEveryMissingTensor) {
  ASSERT_EQ(look(call({"--save", "doc.safetensors"})).exit_code, 0);
  const heed::io::TensorFile file = heed::io::read_safetensors(folder / "doc.safetensors");
  for (const auto& [missing, unused] : file.tensors) {
    if (missing == "received" || missing == "map") continue;  // these may be missing
    std::vector<std::pair<std::string, heed::TensorView>> tensors;
    for (const auto& [name, content] : file.tensors)
      if (name != missing) tensors.emplace_back(name, content.view());
    heed::io::write_safetensors(folder / "bad.safetensors", tensors, file.metadata);
    EXPECT_EQ(look({"bad.safetensors"}).exit_code, 1) << missing;
  }
}

}  // namespace
