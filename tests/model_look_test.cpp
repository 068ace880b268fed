// heed/model/look.hpp: hand-made models with known kinds of heads, and a random model compared with its
// formulas.
#include "heed/model/look.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "gpt2_oracle.hpp"
#include "support.hpp"

namespace {

using heed::AttentionReport;
using heed::Document;
using heed::HeadPattern;
using heed::HeadSummary;
using heed::Model;
using heed::ModelTokens;
using heed::Retrieval;
using heed::Tensor;
using heed::TextLook;
using heed::TextLookOptions;
using heed::TokenSpan;
using heed::WeighedBy;
using heed::test::Gpt2;
using heed::test::Gpt2Layer;
using heed::test::Gpt2Run;
using heed::test::message_of;
using heed::test::Numbers;
using heed::test::TemporaryFolder;

// The model computes in f32: about ten roundings of 2^-24 in each of two layers, for numbers up to 10.
// Exponentials and norms enlarge these errors a few times.
constexpr double kRounding = 2e-5;

Model model_of(const Gpt2& gpt2) {
  const TemporaryFolder folder;
  gpt2.write(folder.path());
  return heed::load_model(folder.path());
}

ModelTokens tokens_of(const std::vector<std::int64_t>& ids) {
  ModelTokens text;
  text.ids = ids;
  for (const std::int64_t id : ids) text.shown.push_back("w" + std::to_string(id));
  return text;
}

// A model of two layers of four heads. The stream has a slot for each position, for each token, and for each
// previous token. Each row holds a 1 in its slots. `query` and `key` each begin a range of `count` slots. A
// head's score is kGain if the row and the key hold their 1 at the same offset in these ranges. Otherwise it
// is 0.
class HandMade {
 public:
  static constexpr std::int64_t kPositions = 0, kTokens = 32, kBefore = 44, kVocabulary = 12;
  static constexpr double kGain = 40;

  HandMade() {
    gpt2_.layers = 2;
    gpt2_.heads = 4;
    gpt2_.dim = 128;
    gpt2_.context = 32;
    gpt2_.vocabulary = kVocabulary;
    gpt2_.fill(1);
    for (auto& [name, tensor] : gpt2_.tensors) {
      const bool is_norm = name.find("ln_") != std::string::npos && name.ends_with(".weight");
      for (float& x : tensor.values<float>()) x = is_norm ? 1.0f : 0.0f;
    }
    for (std::int64_t i = 0; i < 32; ++i) gpt2_.tensors["wpe.weight"].at<float>(i, kPositions + i) = 1;
    for (std::int64_t i = 0; i < kVocabulary; ++i) gpt2_.tensors["wte.weight"].at<float>(i, kTokens + i) = 1;
  }

  // Row slot query + i + shift matches key slot key + i.
  void match(std::int64_t layer, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t count,
             std::int64_t shift) {
    const double gain = kGain * std::sqrt(32.0);
    for (std::int64_t i = 0; i < count; ++i) {
      if (i + shift < count) set(layer, query + i + shift, head * 32 + i, gain);
      set(layer, key + i, 128 + head * 32 + i, 1);
    }
  }

  // All rows have a high score with the key at position 0.
  void rest_on_first(std::int64_t layer, std::int64_t head) {
    gpt2_.tensors[attention(layer) + "bias"].at<float>(head * 32) =
        static_cast<float>(kGain * std::sqrt(32.0));
    set(layer, kPositions, 128 + head * 32, 1);
  }

  // Writes the tokens that the head attends to into the slots of previous tokens.
  void write_token_before(std::int64_t layer, std::int64_t head) {
    for (std::int64_t i = 0; i < kVocabulary; ++i) {
      set(layer, kTokens + i, 256 + head * 32 + i, 1);
      Tensor& output = gpt2_.tensors["h." + std::to_string(layer) + ".attn.c_proj.weight"];
      output.at<float>(head * 32 + i, kBefore + i) = 1;
    }
  }

  [[nodiscard]] const Gpt2& gpt2() const { return gpt2_; }

 private:
  static std::string attention(std::int64_t layer) { return "h." + std::to_string(layer) + ".attn.c_attn."; }

  // The norm turns x into (x - mean) / spread. All rows of x have as many ones, so this can undo the norm.
  void set(std::int64_t layer, std::int64_t from, std::int64_t to, double weight) {
    const double ones = static_cast<double>(2 + layer), mean = ones / 128;
    const double spread = std::sqrt(ones / 128 - mean * mean + 1e-5);
    gpt2_.tensors[attention(layer) + "weight"].at<float>(from, to) += static_cast<float>(weight * spread);
    gpt2_.tensors[attention(layer) + "bias"].at<float>(to) += static_cast<float>(weight * mean);
  }

  Gpt2 gpt2_;
};

// Head 0.0 looks at the previous token and writes it down. Head 1.0 uses that to find keys after a copy of
// the row's token.
Gpt2 model_with_heads() {
  HandMade made;
  made.match(0, 0, HandMade::kPositions, HandMade::kPositions, 32, 1);
  made.write_token_before(0, 0);
  made.rest_on_first(0, 1);
  made.match(0, 3, HandMade::kPositions, HandMade::kPositions, 32, 0);
  made.match(1, 0, HandMade::kTokens, HandMade::kBefore, HandMade::kVocabulary, 0);
  made.rest_on_first(1, 2);
  made.match(1, 3, HandMade::kPositions, HandMade::kPositions, 32, 1);
  return made.gpt2();
}

// 0 occurs only at the beginning; then come eleven words, twice.
std::vector<std::int64_t> repeated_words() {
  std::vector<std::int64_t> ids = {0};
  for (int time = 0; time < 2; ++time)
    for (std::int64_t word = 1; word < 12; ++word) ids.push_back(1 + word * 5 % 11);
  return ids;
}

double score(const HeadSummary& head, HeadPattern pattern) {
  return head.patterns[static_cast<std::size_t>(pattern)].score;
}

TEST(LookAtText, NamesHeadsThatWereMadeByHand) {
  const Model model = model_of(model_with_heads());
  const TextLook look = heed::look_at_text(model, tokens_of(repeated_words()));
  const AttentionReport& report = look.report;
  ASSERT_EQ(report.summaries.size(), 8u);
  std::vector<std::string> names;
  for (const HeadSummary& head : report.summaries) names.emplace_back(head.name());
  EXPECT_EQ(names, (std::vector<std::string>{"previous-token", "first-token sink", "uniform", "self",
                                             "induction", "uniform", "first-token sink", "previous-token"}));
  // Scores of kGain in f32 have a few roundings of 40 * 2^-24. The weight elsewhere, exp(-kGain), is smaller.
  constexpr double kElsewhere = 1e-5;
  EXPECT_GT(score(report.summaries[0], HeadPattern::previous_token), 1 - kElsewhere);
  EXPECT_GT(score(report.summaries[1], HeadPattern::first_token_sink), 1 - kElsewhere);
  EXPECT_GT(score(report.summaries[2], HeadPattern::uniform), 1 - kElsewhere);
  EXPECT_GT(score(report.summaries[3], HeadPattern::self), 1 - kElsewhere);
  EXPECT_GT(score(report.summaries[4], HeadPattern::induction), 1 - kElsewhere);
  EXPECT_NEAR(report.summaries[1].first, 1, kElsewhere);
  EXPECT_NEAR(report.summaries[3].distance, 0, kElsewhere * 32);
  EXPECT_NEAR(report.summaries[2].entropy, std::lgamma(24.0) / 23, kRounding);  // mean of log 1 to log 23
  EXPECT_EQ(report.layers.size(), 2u);
  EXPECT_EQ(heed::name_of_head(report, 4), "layer 1, head 0");
}

struct RandomModel {
  Gpt2 oracle;
  Model model;
  ModelTokens text;
  Gpt2Run run;
};

RandomModel random_model() {
  Gpt2 gpt2;
  gpt2.fill(5);
  Model model = model_of(gpt2);
  ModelTokens text = tokens_of({3, 7, 7, 1, 20, 3, 28, 11, 0, 7, 1, 3});
  Gpt2Run run = heed::test::run_of(gpt2, text.ids);
  return {std::move(gpt2), std::move(model), std::move(text), std::move(run)};
}

// n_j of a head, from the formula.
std::vector<double> norms_of(const RandomModel& made, std::int64_t layer, std::int64_t head) {
  const std::string at = "h." + std::to_string(layer) + ".";
  const Numbers fused = heed::test::affine(
      made.oracle, at + "attn.c_attn",
      heed::test::normed(made.oracle, at + "ln_1", made.run.layers[static_cast<std::size_t>(layer)].stream));
  const Numbers output = made.oracle.numbers(at + "attn.c_proj.weight");
  const std::int64_t d = made.oracle.head_dim();
  std::vector<double> norms;
  for (std::int64_t j = 0; j < fused.rows; ++j) {
    double squares = 0;
    for (std::int64_t c = 0; c < made.oracle.dim; ++c) {
      double sum = 0;
      for (std::int64_t k = head * d; k < (head + 1) * d; ++k)
        sum += fused(j, 2 * made.oracle.dim + k) * output(k, c);
      squares += sum * sum;
    }
    norms.push_back(std::sqrt(squares));
  }
  return norms;
}

// The weights of a head over the whole matrix: attention weights, or shares of the row's change.
Numbers weights_of(const RandomModel& made, std::int64_t layer, std::int64_t head, WeighedBy by) {
  Numbers weights = made.run.layers[static_cast<std::size_t>(layer)].weights[static_cast<std::size_t>(head)];
  if (by == WeighedBy::attention) return weights;
  const std::vector<double> norms = norms_of(made, layer, head);
  for (std::int64_t i = 0; i < weights.rows; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) sum += weights(i, j) *= norms[static_cast<std::size_t>(j)];
    for (std::int64_t j = 0; j <= i; ++j) weights(i, j) /= sum;
  }
  return weights;
}

void expect_rows(const AttentionReport& report, std::int64_t n, const Numbers& weights) {
  for (std::int64_t i = 0; i < weights.rows; ++i) {
    double entropy = 0, largest = 0, received = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      entropy -= weights(i, j) * std::log(weights(i, j));
      largest = std::max(largest, weights(i, j));
    }
    for (std::int64_t k = 0; k < weights.rows; ++k) received += weights(k, i);
    EXPECT_NEAR(heed::number_at(report.entropy, {0, n, i}), entropy, kRounding);
    EXPECT_NEAR(heed::number_at(report.max_weight, {0, n, i}), largest, kRounding);
    EXPECT_NEAR(heed::number_at(report.received, {0, n, i}), received, kRounding * 12);
    const std::int64_t key = report.top_k_index.at<std::int64_t>(0, n, i, 0);
    EXPECT_NEAR(weights(i, key), largest, kRounding);
    EXPECT_NEAR(heed::number_at(report.top_k_weight, {0, n, i, 0}), largest, kRounding);
  }
}

class Weights : public testing::TestWithParam<WeighedBy> {};

TEST_P(Weights, AreThoseOfTheFormulasInAllLayers) {
  const RandomModel made = random_model();
  TextLookOptions options;
  options.report = {.top_k = 2, .map = {12, 12}};
  options.by = GetParam();
  const TextLook look = heed::look_at_text(made.model, made.text, options);
  ASSERT_EQ(look.report.heads, 6);
  EXPECT_EQ(look.report.output.count(), 0);
  for (std::int64_t n = 0; n < 6; ++n) {
    const Numbers weights = weights_of(made, n / 3, n % 3, GetParam());
    expect_rows(look.report, n, weights);
    for (std::int64_t i = 0; i < 12; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        EXPECT_NEAR(heed::number_at(look.report.map[0], {0, n, i, j}), weights(i, j), kRounding);
  }
}

TEST_P(Weights, AreAnsweredForByADocument) {
  const RandomModel made = random_model();
  Document document = heed::document_of_text(made.model, made.text, {.by = GetParam()});
  fill_report(document, {.top_k = 2});
  EXPECT_EQ(document.report.layers.size(), 2u);
  EXPECT_EQ(document.report.query_tokens, made.text.shown);
  for (std::int64_t n = 0; n < 6; ++n) {
    const Numbers weights = weights_of(made, n / 3, n % 3, GetParam());
    expect_rows(document.report, n, weights);
    const heed::AttendedRow row = attended_row(document, 0, n, 11, 1, true);
    for (std::int64_t j = 0; j < 12; ++j)
      EXPECT_NEAR(row.weights[static_cast<std::size_t>(j)], weights(11, j), kRounding);
  }
  EXPECT_TRUE(check_document(document, 4).holds());
}

// Both ways sum the same numbers, but rows of the whole call may be in other blocks of the kernel.
TEST_P(Weights, AreSummedUpAlikeByBothRoutes) {
  const RandomModel made = random_model();
  TextLookOptions options;
  options.by = GetParam();
  options.keep_rows = false;
  const TextLook look = heed::look_at_text(made.model, made.text, options);
  EXPECT_EQ(look.report.entropy.count(), 0);
  Document document = heed::document_of_text(made.model, made.text, {.by = GetParam()});
  fill_report(document, {.top_k = 0});
  ASSERT_EQ(look.report.summaries.size(), document.report.summaries.size());
  for (std::size_t n = 0; n < look.report.summaries.size(); ++n) {
    const HeadSummary& a = look.report.summaries[n];
    const HeadSummary& b = document.report.summaries[n];
    EXPECT_EQ(a.head, b.head);
    EXPECT_EQ(a.name(), b.name());
    EXPECT_EQ(a.most_received, b.most_received);
    EXPECT_NEAR(a.entropy, b.entropy, kRounding);
    EXPECT_NEAR(a.first, b.first, kRounding);
    for (std::size_t p = 0; p < a.patterns.size(); ++p) {
      const double one = a.patterns[p].score, other = b.patterns[p].score;
      EXPECT_TRUE(std::abs(one - other) <= kRounding || (std::isnan(one) && std::isnan(other)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(By, Weights, testing::Values(WeighedBy::attention, WeighedBy::norm));

TEST(LookAtText, SaysHowMuchEachRowMoves) {
  const RandomModel made = random_model();
  TextLookOptions options;
  options.by = WeighedBy::norm;
  const TextLook look = heed::look_at_text(made.model, made.text, options);
  for (std::int64_t n = 0; n < 6; ++n) {
    const std::vector<double> norms = norms_of(made, n / 3, n % 3);
    const Numbers& weights =
        made.run.layers[static_cast<std::size_t>(n / 3)].weights[static_cast<std::size_t>(n % 3)];
    for (std::int64_t i = 0; i < 12; ++i) {
      double moved = 0;
      for (std::int64_t j = 0; j <= i; ++j) moved += weights(i, j) * norms[static_cast<std::size_t>(j)];
      const double norm = norms[static_cast<std::size_t>(i)];
      EXPECT_NEAR(heed::number_at(look.norms, {n, i}), norm, kRounding * norm);
      EXPECT_NEAR(heed::number_at(look.moved, {n, i}), moved, kRounding * moved);
    }
  }
}

TEST(LookAtText, GivesTheSameBitsForEveryNumberOfThreads) {
  const RandomModel made = random_model();
  TextLookOptions one, three;
  one.threads = 1;
  three.threads = 3;
  const Tensor a = heed::look_at_text(made.model, made.text, one).report.entropy;
  const Tensor b = heed::look_at_text(made.model, made.text, three).report.entropy;
  EXPECT_TRUE(std::equal(a.values<float>().begin(), a.values<float>().end(), b.values<float>().begin()));
}

TEST(DocumentOfText, HoldsOneLayerWhereOneIsAskedFor) {
  const RandomModel made = random_model();
  Document document = heed::document_of_text(made.model, made.text, {.layer = 1});
  fill_report(document, {.top_k = 2});
  TextLookOptions options;
  options.layer = 1;
  options.report.top_k = 2;
  TextLook look = heed::look_at_text(made.model, made.text, options);
  for (const AttentionReport* report : {&document.report, &look.report}) {
    ASSERT_EQ(report->heads, 3);
    EXPECT_EQ(heed::name_of_head(*report, 2), "layer 1, head 2");
    for (std::int64_t n = 0; n < 3; ++n)
      expect_rows(*report, n, weights_of(made, 1, n, WeighedBy::attention));
  }
  EXPECT_EQ(message_of([&] { (void)heed::document_of_text(made.model, made.text, {.layer = 2}); }),
            "layer is 2; 0 to 1 is expected");
  options.layer = -1;
  EXPECT_EQ(message_of([&] { (void)heed::look_at_text(made.model, made.text, options); }),
            "layer is -1; 0 to 1 is expected");
  options.by = static_cast<WeighedBy>(2);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { (void)heed::look_at_text(made.model, made.text, options); },
           [&] { (void)heed::document_of_text(made.model, made.text, {.by = options.by}); }})
    EXPECT_EQ(message_of(call), "by is 2; 0 to 1 is expected");
}

TEST(DocumentOfText, HasScalesThatDifferByLayer) {
  Gpt2 gpt2;
  gpt2.fill(5);
  const TemporaryFolder folder;
  gpt2.write(folder.path());
  std::string config = heed::test::read_file(folder / "config.json");
  config.insert(1, "\"scale_attn_by_inverse_layer_idx\": true, ");
  heed::test::write_file(folder / "config.json", config);
  const Model model = heed::load_model(folder.path());
  const ModelTokens text = tokens_of({3, 7, 7, 1, 20, 3});
  Document document = heed::document_of_text(model, text);
  fill_report(document, {});
  const TextLook look = heed::look_at_text(model, text);
  for (std::int64_t n = 0; n < 6; ++n)
    for (std::int64_t i = 0; i < 6; ++i)
      EXPECT_NEAR(heed::number_at(document.report.entropy, {0, n, i}),
                  heed::number_at(look.report.entropy, {0, n, i}), kRounding);
}

TEST(Retrieval, IsTheWeightOnTheNeedle) {
  const RandomModel made = random_model();
  TextLookOptions options;
  options.needle = {{2, 4}, {6, 7}};
  const TextLook look = heed::look_at_text(made.model, made.text, options);
  ASSERT_EQ(look.retrieval.size(), 6u);
  for (std::int64_t n = 0; n < 6; ++n) {
    const Numbers weights = weights_of(made, n / 3, n % 3, WeighedBy::attention);
    const auto on_needle = [&](std::int64_t i) { return weights(i, 2) + weights(i, 3) + weights(i, 6); };
    double mean = 0;
    for (const std::int64_t i : {4, 5, 7, 8, 9, 10, 11}) mean += on_needle(i) / 7;
    const Retrieval& found = look.retrieval[static_cast<std::size_t>(n)];
    EXPECT_EQ(found.rows, 7);
    EXPECT_NEAR(found.last, on_needle(11), kRounding);
    EXPECT_NEAR(found.mean, mean, kRounding);
  }
}

TEST(Retrieval, HasNoMeanWhereNoRowComesAfter) {
  const RandomModel made = random_model();
  TextLookOptions options;
  options.needle = {{10, 12}};
  const Retrieval found = heed::look_at_text(made.model, made.text, options).retrieval[0];
  EXPECT_EQ(found.rows, 0);
  EXPECT_TRUE(std::isnan(found.mean));
}

TEST(Retrieval, RefusesInOneSentence) {
  const RandomModel made = random_model();
  const auto refusal = [&](std::vector<TokenSpan> needle) {
    TextLookOptions options;
    options.needle = std::move(needle);
    return message_of([&] { (void)heed::look_at_text(made.model, made.text, options); });
  };
  EXPECT_EQ(refusal({{3, 13}}), "needle holds 3 to 13; places within 0 to 12 are expected");
  EXPECT_EQ(refusal({{3, 3}}), "needle holds 3 to 3; places within 0 to 12 are expected");
  Document document = heed::document_of_text(made.model, made.text);
  const TokenSpan one{0, 1};
  EXPECT_EQ(message_of([&] { (void)heed::retrieval_of(document, std::span(&one, 1)); }),
            "the document has no report of its rows; one is expected");
  fill_report(document, {});
  EXPECT_EQ(message_of([&] { (void)heed::retrieval_of(document, {}); }),
            "needle has no tokens; at least one is expected");
}

TEST(SpansOf, FindsTheTokensThatWordsTouch) {
  const std::string text = "a red fox, a redder fox";
  ModelTokens tokens;
  for (const auto& [begin, end] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, 0}, {0, 1}, {1, 5}, {5, 9}, {9, 10}, {10, 12}, {12, 16}, {16, 19}, {19, 23}})
    tokens.places.push_back({1, begin, end, false});
  EXPECT_EQ(heed::spans_of(text, tokens, "red fox"), (std::vector<TokenSpan>{{2, 4}}));
  EXPECT_EQ(heed::spans_of(text, tokens, "red"), (std::vector<TokenSpan>{{2, 3}, {6, 7}}));
  EXPECT_EQ(heed::spans_of(text, tokens, "blue"), std::vector<TokenSpan>{});
  EXPECT_EQ(heed::spans_of(text, tokens, ""), std::vector<TokenSpan>{});
}

TEST(MovedNorms, RefuseInOneSentence) {
  const RandomModel made = random_model();
  const Tensor value({3, 5, 4}, heed::DType::f32), other({2, 5, 4}, heed::DType::f32);
  EXPECT_EQ(message_of([&] { (void)made.model.moved_norms(2, value); }), "layer is 2; 0 to 1 is expected");
  EXPECT_EQ(message_of([&] { (void)made.model.moved_norms(0, other); }),
            "value is f32 [2, 5, 4]; f32 [3, L, 4] is expected");
}

}  // namespace
