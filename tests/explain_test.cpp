// heed explain: it prints the numbers of the library and the notebooks, its output fits the terminal, and
// each error is one line.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "../cli/text.hpp"
#include "explain_support.hpp"
#include "golden.hpp"
#include "heed/io/vocabulary.hpp"
#include "heed/nn/layers.hpp"

namespace {

using heed::Dims;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::cli::display_width;
using heed::nn::Linear;
using heed::nn::MultiHeadAttention;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::Explain;
using heed::test::explain;
using heed::test::golden;
using heed::test::Json;
using heed::test::json_of;
using heed::test::kFox;
using heed::test::kTolerance;
using heed::test::output_of;
using heed::test::relative_error;
using heed::test::same_bits;
using heed::test::step_of;
using heed::test::tensor_of;
using heed::test::Words;

constexpr const char* kNotebook = "Life is short, eat dessert first";

void expect_fits(const std::string& text, int width) {
  for (const std::string& line : heed::cli::split(text, '\n')) EXPECT_LE(display_width(line), width) << line;
}

// " 3 embeddings": for all words, and for one.
TEST_F(Explain, NumbersItsHeadingsFromOne) {
  for (const Words& words : {Words{"to be"}, Words{"to be", "--word", "be"}}) {
    std::vector<int> numbers;
    for (const std::string& line : heed::cli::split(output_of(words), '\n'))
      if (line.size() > 4 && line.find_first_not_of("0123456789 ") == 4 && line[2] != ' ' && line[3] == ' ')
        numbers.push_back(std::stoi(line));
    ASSERT_GE(numbers.size(), 5U);
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<int>(i) + 1);
  }
}

// Tests in a browser check the page itself (tests/python).
TEST_F(Explain, WritesAPageThatHoldsEveryStep) {
  const std::string html = folder / "page.html";
  EXPECT_EQ(output_of({kFox, "--heads", "2", "--causal", "--html", html}),
            "Drew every step on a page, " + html + ": open it in a browser.\n");
  const std::string file = heed::test::read_file(html);
  const std::size_t from = file.find('\n', file.find("id=\"page\">")) + 1;
  const Json page = Json::parse(file.substr(from, file.find("</script>", from) - from));
  const Json told = json_of({kFox, "--heads", "2", "--causal"});
  ASSERT_EQ(page["steps"].size(), told["steps"].size());
  for (const Json& step : told["steps"])
    EXPECT_EQ(page["tensors"]["step-" + step["name"].get<std::string>()]["shape"], step["shape"]);
  EXPECT_EQ(page["query_tokens"], told["tokens"]);
  EXPECT_EQ(page["title"], kFox);
}

// Without the isolates U+2068 and U+2069, two sentences from right to left would change places.
TEST_F(Explain, APageOfTwoSentencesIsolatesThoseFromRightToLeft) {
  const auto title = [&](const std::string& sentence, const std::string& against) {
    const std::string html = folder / "two.html";
    (void)output_of({sentence, "--against", against, "--html", html});
    const std::string file = heed::test::read_file(html);
    const std::size_t from = file.find('\n', file.find("id=\"page\">")) + 1;
    return Json::parse(file.substr(from, file.find("</script>", from) - from))["title"];
  };
  EXPECT_EQ(title("שלום עולם", "السلام"), "\u2068שלום עולם\u2069 → \u2068السلام\u2069");
  EXPECT_EQ(title("to be", "naïve 日本 € “or”"), "to be → naïve 日本 € “or”");
}

TEST_F(Explain, RefusesAPageInPlaceOfAnotherFile) {
  for (const std::string& name : {path, std::string("map.png")})
    expect_refusal(2, {"to be", "--save", path, "--html", name},
                   "--html is '" + name + "'; a file whose name ends in .html is expected");
  const std::string link = path + ".html";
  std::filesystem::create_symlink(path, link);
  expect_refusal(2, {"to be", "--save", path, "--html", link},
                 "--html '" + link + "' is the file that --save goes to; each result needs its own file");
}

TEST_F(Explain, GivesTheNumbersOfTheNotebookOnAnInputSentence) {
  const auto file = saved({kNotebook});
  const auto recorded = [](const std::string& name) { return golden("003_input_sentence/" + name); };
  const auto expect_near = [&](const TensorView& got, const std::string& name) {
    EXPECT_TRUE(relative_error(got, recorded(name)) <= kTolerance)
        << name << ": " << relative_error(got, recorded(name));
  };
  EXPECT_TRUE(same_bits(named(file, "ids"), recorded("token_ids")));
  expect_near(named(file, "embedding.weight"), "embedding_weight");
  expect_near(named(file, "embeddings"), "embedded_sentence");
  EXPECT_TRUE(same_bits(Tensor(named(file, "query.weight")).reshaped({24, 16}), recorded("W_query")));
  EXPECT_TRUE(same_bits(Tensor(named(file, "key.weight")).reshaped({24, 16}), recorded("W_key")));
  EXPECT_TRUE(same_bits(Tensor(named(file, "value.weight")).reshaped({28, 16}), recorded("W_value")));
  expect_near(named(file, "key").view().select(0, 0), "keys");
  expect_near(named(file, "value").view().select(0, 0), "values");
  // The notebook follows the second word.
  const auto second = [&](const std::string& name) {
    return named(file, name).view().select(0, 0).select(0, 1);
  };
  expect_near(second("query"), "query_2");
  expect_near(second("scores"), "omega_2");
  expect_near(second("weights"), "attention_weights_2");
  expect_near(second("context"), "context_vector_2");
}

TEST_F(Explain, GivesTheNumbersOfThePayAttentionNotebook) {
  const auto file = saved({"the quick brown fox jumps over a lazy dog", "--init", "normal", "--seed", "0"});
  const auto recorded = [](const std::string& name) { return golden("000_pay_attention/" + name); };
  const std::int64_t word = recorded("query_index").at<std::int64_t>();
  EXPECT_TRUE(relative_error(named(file, "query.weight").view().select(0, 0), recorded("W_q")) <= kTolerance);
  EXPECT_TRUE(relative_error(named(file, "weights").view().select(0, 0).select(0, word),
                             recorded("attention_weights_x")) <= kTolerance);
  EXPECT_TRUE(relative_error(named(file, "context").view().select(0, 0).select(0, word),
                             recorded("context_vector_x")) <= kTolerance);
}

TEST_F(Explain, EveryStepIsWhatTheLibraryComputes) {
  const auto file = saved(
      {kFox, "--heads", "3", "--dim", "10", "--key-dim", "4", "--value-dim", "5", "--seed", "7", "--causal"});
  const MultiHeadAttention layer = MultiHeadAttention::from_heads(
      named(file, "query.weight"), named(file, "key.weight"), named(file, "value.weight"), {},
      Linear(named(file, "out_proj.weight"), named(file, "out_proj.bias")));
  const heed::Vocabulary vocabulary{std::string_view(kFox)};
  EXPECT_TRUE(same_bits(named(file, "ids"), vocabulary.encode(heed::split_words(kFox))));
  const Tensor x = heed::nn::Embedding(named(file, "embedding.weight")).forward(named(file, "ids"));
  EXPECT_TRUE(same_bits(named(file, "embeddings"), x));
  // Products by the BLAS may differ from these in the last bits, since it may have chosen another kernel
  // there (OPENBLAS_CORETYPE). attention() gives the same bits for the same vectors.
  const auto layered = layer.forward(x, {.causal = true});
  const auto expect_near = [&](const std::string& name, const Tensor& expected) {
    EXPECT_TRUE(relative_error(named(file, name), expected) <= kTolerance) << name;
  };
  expect_near("query", layered.query);
  expect_near("key", layered.key);
  expect_near("value", layered.value);
  expect_near("output", layered.output);
  EXPECT_EQ(layered.output.shape(), (Dims{9, 10}));
  const Tensor& query = named(file, "query");
  const Tensor& key = named(file, "key");
  const auto result =
      heed::attention(query, key, named(file, "value"),
                      {.causal = true, .need = Need::weights, .kernel = heed::Kernel::reference});
  EXPECT_TRUE(same_bits(named(file, "weights"), result.weights));
  EXPECT_TRUE(same_bits(named(file, "context"), result.output));
  EXPECT_TRUE(same_bits(named(file, "merged"), heed::nn::merge_heads(result.output)));

  const Tensor& scores = named(file, "scores");
  const Tensor& scaled = named(file, "scaled");
  const Tensor& masked = named(file, "masked");
  for (std::int64_t h = 0; h < 3; ++h)
    for (std::int64_t i = 0; i < 9; ++i)
      for (std::int64_t j = 0; j < 9; ++j) {
        double sum = 0;
        double size = 0;
        for (std::int64_t c = 0; c < 4; ++c) {
          const double product =
              static_cast<double>(query.at<float>(h, i, c)) * static_cast<double>(key.at<float>(h, j, c));
          sum += product;
          size += std::abs(product);
        }
        // The sum is exact except for f64 rounding, then rounded once to f32.
        EXPECT_TRUE(std::abs(static_cast<double>(scores.at<float>(h, i, j)) - sum) <= 1e-7 * size);
        EXPECT_TRUE(std::abs(static_cast<double>(scaled.at<float>(h, i, j)) - sum / 2) <= 1e-7 * size);
        EXPECT_EQ(masked.at<float>(h, i, j),
                  j > i ? -std::numeric_limits<float>::infinity() : scaled.at<float>(h, i, j));
      }
}

TEST_F(Explain, PrintsTheSameNumbersAsJson) {
  const Words arguments = {kFox, "--heads", "2", "--causal"};
  const auto file = saved(arguments);
  const Json object = json_of(arguments);
  EXPECT_EQ(object.at("tokens"), Json(heed::split_words(kFox)));
  EXPECT_EQ(object.at("heads"), 2);
  EXPECT_EQ(object.at("dim"), 16);
  EXPECT_EQ(object.at("key_dim"), 24);
  EXPECT_EQ(object.at("value_dim"), 28);
  EXPECT_EQ(object.at("causal"), true);
  EXPECT_EQ(object.at("scale"), 1 / std::sqrt(24.0));
  std::vector<std::string> order;
  for (const Json& step : object.at("steps")) {
    order.push_back(step.at("name"));
    EXPECT_TRUE(step.at("formula").is_string() && step.at("meaning").is_string());
    EXPECT_EQ(step.at("axes").size(), step.at("shape").size());
    if (step.at("name") == "ids") continue;
    EXPECT_TRUE(same_bits(tensor_of(step), named(file, order.back()))) << order.back();
  }
  EXPECT_EQ(order, (Words{"ids", "embeddings", "query", "key", "value", "scores", "scaled", "masked",
                          "weights", "context", "merged", "output"}));
  EXPECT_EQ(step_of(object, "ids").at("values"), Json({7, 6, 0, 2, 3, 5, 7, 4, 1}));
  const Json masked = step_of(object, "masked").at("values");
  EXPECT_TRUE(masked.at(0).at(0).at(1).is_null());
  EXPECT_TRUE(masked.at(0).at(1).at(0).is_number());
}

TEST_F(Explain, EveryRowOfTheWeightsSumsToOne) {
  const Tensor weights = tensor_of(step_of(json_of({kFox, "--heads", "4"}), "weights"));
  for (std::int64_t h = 0; h < 4; ++h)
    for (std::int64_t i = 0; i < 9; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < 9; ++j) sum += static_cast<double>(weights.at<float>(h, i, j));
      EXPECT_TRUE(std::abs(sum - 1) <= 1e-6);  // nine roundings to f32
    }
}

TEST_F(Explain, SummarisesWhatEachWordAttendsToMost) {
  const Json object = json_of({kNotebook});
  const Json& first = object.at("summary").at(1);
  EXPECT_EQ(first.at("word"), "is");
  EXPECT_EQ(first.at("position"), 1);
  EXPECT_EQ(first.at("head"), 0);
  EXPECT_EQ(first.at("attends_to").at(0).at("word"), "dessert");
  EXPECT_EQ(first.at("attends_to").at(0).at("position"), 4);
  const Tensor weights = tensor_of(step_of(object, "weights"));
  double entropy = 0;
  for (std::int64_t j = 0; j < 6; ++j) {
    const double p = static_cast<double>(weights.at<float>(0, 1, j));
    entropy -= p * std::log(p);
  }
  EXPECT_NEAR(first.at("entropy").get<double>(), entropy, 1e-6);  // the weights are rounded to f32
}

TEST_F(Explain, ReadsASentenceFromStandardInput) {
  CommandInput input;
  input.text = std::string(kNotebook) + "\n";
  EXPECT_EQ(output_of({"-"}, input), output_of({kNotebook}));
  EXPECT_EQ(output_of({"one", "--against", "-"}, input), output_of({"one", "--against", kNotebook}));
}

TEST_F(Explain, ReadsWordsWithoutQuotesAsOneSentence) {
  EXPECT_EQ(output_of({"to", "be", "or not"}), output_of({"to be or not"}));
  EXPECT_EQ(output_of({"Life", "is", "short,", "--word", "is"}),
            output_of({"Life is short", "--word", "is"}));
}

TEST_F(Explain, RepeatedWordsShareANumberAndAreToldApart) {
  const Json object = json_of({"to be or not to be"});
  EXPECT_EQ(step_of(object, "ids").at("values"), Json({3, 0, 2, 1, 3, 0}));
  const std::string text = output_of({"to be or not to be"});
  EXPECT_NE(text.find("to₁  be₁  or  not  to₂  be₂"), std::string::npos) << text;
}

TEST_F(Explain, OneWordAttendsToItself) {
  const Json object = json_of({"alone"});
  EXPECT_EQ(step_of(object, "weights").at("values"), Json({{{1.0}}}));
  EXPECT_NE(output_of({"alone"}).find("alone → alone 100 %"), std::string::npos);
}

TEST_F(Explain, AttendsToAnotherSentence) {
  const Json object = json_of({"the cat sat", "--against", "the cat ate a fish", "--heads", "2"});
  EXPECT_EQ(object.at("tokens").size(), 3u);
  EXPECT_EQ(object.at("context_tokens").size(), 5u);
  EXPECT_EQ(object.at("vocabulary"), Json({"a", "ate", "cat", "fish", "sat", "the"}));
  EXPECT_EQ(step_of(object, "weights").at("shape"), Json({2, 3, 5}));
  EXPECT_EQ(step_of(object, "key").at("shape"), Json({2, 5, 24}));
  // A word that occurs in both has one vector.
  EXPECT_EQ(step_of(object, "embeddings").at("values").at(1),
            step_of(object, "context_embeddings").at("values").at(1));
  const std::string text = output_of({"the cat sat", "--against", "le chat"});
  EXPECT_NE(text.find("Cross-attention: 3 words"), std::string::npos);
}

TEST_F(Explain, FollowsOneWord) {
  const std::string text = output_of({kNotebook, "--word", "is"});
  EXPECT_NE(text.find("Following is, word 2 of 6."), std::string::npos) << text;
  // Numbers that the notebook prints: query_2 · keys[4] and its first factors, omega_2, and the second word's
  // weights.
  EXPECT_NE(text.find("q · k of dessert = 0.8982 × 1.1230 + 0.1030 × 1.3014 + … = 11.1466"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("    dessert    11.1466     2.2753     0.4917"), std::string::npos) << text;
  EXPECT_NE(text.find("    Life        8.5808     1.7515     0.2912"), std::string::npos) << text;

  const Json all = json_of({kNotebook, "--causal"});
  const Json one = json_of({kNotebook, "--causal", "--word", "is"});
  EXPECT_EQ(one.at("word"), Json({{"text", "is"}, {"position", 1}}));
  EXPECT_EQ(one.at("summary").size(), 1u);
  EXPECT_EQ(step_of(one, "ids").at("values"), 4);
  EXPECT_EQ(step_of(one, "output").at("values"), step_of(all, "output").at("values").at(1));
  EXPECT_EQ(step_of(one, "weights").at("values").at(0), step_of(all, "weights").at("values").at(0).at(1));
  EXPECT_EQ(step_of(one, "weights").at("axes"), Json({"H", "Lk"}));
  EXPECT_EQ(step_of(one, "key").at("values"), step_of(all, "key").at("values"));
  const std::string causal = output_of({kNotebook, "--causal", "--word", "is"});
  EXPECT_NE(causal.find("-inf          0  later"), std::string::npos) << causal;
}

TEST_F(Explain, FollowsTheOccurrenceThatIsAskedFor) {
  EXPECT_EQ(json_of({kFox, "--word", "the"}).at("word").at("position"), 0);
  EXPECT_EQ(json_of({kFox, "--word", "the:2"}).at("word").at("position"), 6);
  EXPECT_EQ(json_of({"at 10:1 10:1 10 10", "--word", "10:1"}).at("word").at("position"), 1)
      << "a word of the sentence comes before the second reading";
  EXPECT_EQ(json_of({"at 10:1 10:1 10 10", "--word", "10:2"}).at("word").at("position"), 4);
}

TEST_F(Explain, OfManyWordsFollowsTheHeaviestOnly) {
  std::string sentence;
  for (int i = 0; i < 60; ++i) sentence += "w" + std::to_string(i) + " ";
  const std::string text = output_of({sentence, "--word", "w3", "--init", "torch"});
  EXPECT_NE(text.find("… and 40 words with less weight"), std::string::npos) << text;
  expect_fits(text, 80);
}

// Output on the terminal.

TEST_F(Explain, FitsTheTerminal) {
  const std::string longest =
      "a pneumonoultramicroscopicsilicovolcanoconiosis 日本語の文章 naïve 🙂 x";
  std::string many;
  for (int i = 0; i < 50; ++i) many += "word" + std::to_string(i) + " ";
  for (const int width : {60, 80, 132})
    for (const Words& arguments :
         {Words{kNotebook}, Words{kFox, "--heads", "3", "--causal"}, Words{longest, "--heads", "2"},
          Words{longest, "--word", "x"}, Words{many}, Words{many, "--word", "word7", "--causal"},
          Words{kFox, "--against", longest, "--layout", "fused-qkv"}}) {
      CommandInput input;
      input.environment["COLUMNS"] = std::to_string(width);
      expect_fits(output_of(arguments, input), width);
    }
}

TEST_F(Explain, DrawsInTheColoursThatTheTerminalHas) {
  if (!heed::test::has_terminals()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  CommandInput terminal;
  terminal.terminal_columns = 80;
  terminal.environment = {{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}};
  EXPECT_NE(output_of({kNotebook}, terminal).find("\x1b[38;5;16;48;2;253;231;37m"), std::string::npos);
  terminal.environment = {{"TERM", "xterm-256color"}};
  const std::string palette = output_of({kNotebook}, terminal);
  EXPECT_NE(palette.find("\x1b[38;5;16;48;5;220m"), std::string::npos);
  EXPECT_EQ(palette.find("48;2;"), std::string::npos);
  terminal.environment = {{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}, {"NO_COLOR", "1"}};
  const std::string plain = output_of({kNotebook}, terminal);
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  EXPECT_NE(plain.find("███ 1.00"), std::string::npos) << plain;
}

TEST_F(Explain, NeverColoursAFile) {
  CommandInput input;
  input.environment = {{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}};
  EXPECT_EQ(output_of({kNotebook}, input).find('\x1b'), std::string::npos);
}

TEST_F(Explain, LetsNoWordDriveTheTerminal) {
  CommandInput input;
  input.text = std::string("a\x1b[31m b\x07 c\xe2\x80\xae d\0e", 16);
  for (const Words& arguments : {Words{"-"}, Words{"-", "--word", "b\x07"}, Words{"-", "--causal"}}) {
    const std::string text = output_of(arguments, input);
    for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
    EXPECT_EQ(text.find("\xe2\x80\xae"), std::string::npos);
    EXPECT_NE(text.find("\\x07"), std::string::npos);
  }
  EXPECT_EQ(json_of({"-"}, input).at("tokens").at(0), "a\x1b[31m");
}

TEST_F(Explain, SaysWhatIsTooLargeToDraw) {
  std::string sentence;
  for (int i = 0; i < 120; ++i) sentence += std::to_string(i) + " ";
  const std::string text = output_of({sentence});
  EXPECT_NE(text.find("A map of 120 by 120 words does not fit 80 columns. --word W follows one"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("… and 20 more words"), std::string::npos);
  expect_fits(text, 80);
  EXPECT_EQ(step_of(json_of({sentence}), "weights").at("shape"), Json({1, 120, 120}));
}

// Errors in the command line.

TEST_F(Explain, SaysWhatIsWrong) {
  expect_refusal(
      2, {},
      "SENTENCE is missing: the words to explain, in quotes, or - for standard input (see heed explain "
      "--help)");
  expect_refusal(2, {" , "}, "SENTENCE has no words; at least one is expected");
  expect_refusal(2, {"to be", "--against", ","}, "--against has no words; at least one is expected");
  expect_refusal(2, {"-", "--against", "-"},
                 "SENTENCE and --against are both '-'; only one can be standard input");
  CommandInput latin;
  latin.text = "caf\xe9";
  expect_refusal(2, {"-"}, "SENTENCE is not UTF-8 text", latin);
  expect_refusal(2, {"to be", ","}, "SENTENCE has no words; at least one is expected");
  expect_refusal(2, {"to be", "--heads", "0"}, "--heads is '0'; a whole number of at least 1 is expected");
  expect_refusal(2, {"to be", "--dim", "x"}, "--dim is 'x'; a whole number of at least 1 is expected");
  expect_refusal(2, {"to be", "--seed", "-1"}, "--seed is '-1'; a whole number of at least 0 is expected");
  expect_refusal(2, {"to be", "--layout", "rows"},
                 "--layout is 'rows'; per-head, in-proj or fused-qkv is expected");
  expect_refusal(2, {"to be", "--init", "zero"},
                 "--init is 'zero'; uniform, normal, torch or lecun is expected");
  expect_refusal(2, {"to be", "--save", "x.npy"},
                 "--save is 'x.npy'; a file whose name ends in .safetensors is expected");
  expect_refusal(2, {"to be", "--word", "bee"},
                 "--word is 'bee', which is not in the sentence; did you mean be?");
  expect_refusal(2, {"to be", "--word", "zebra"}, "--word is 'zebra', which is not in the sentence");
  expect_refusal(2, {"to be", "--word", "be:2"}, "--word is 'be:2', but the sentence has 'be' 1 time");
  expect_refusal(2, {"to be to", "--word", "to:3"}, "--word is 'to:3', but the sentence has 'to' 2 times");
}

TEST_F(Explain, RefusesSizesThatNoMemoryHolds) {
  for (const std::string dim : {"1000000000000", "9000000000000000000"}) {
    const CommandResult result = explain({"to be", "--dim", dim});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(result.errors.starts_with("heed: the layer of --heads 1, --dim " + dim +
                                          ", --key-dim 24 and --value-dim 28 would need "))
        << result.errors;
    EXPECT_TRUE(result.errors.ends_with("; smaller sizes are expected\n")) << result.errors;
  }
  CommandInput input;
  for (int i = 0; i < 3000; ++i) input.text += "w ";
  const CommandResult result = explain({"-", "--heads", "100000", "--dim", "1"}, input);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(result.errors.starts_with(
      "heed: the scores of SENTENCE, 3000 x 3000 per head, would need 14.4 TB, more than half"))
      << result.errors;
}

}  // namespace
