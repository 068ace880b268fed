// heed/model/walk.hpp: one token on its way through a model, compared with the formulas of GPT-2 in f64.
#include "heed/model/walk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gpt2_oracle.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::ModelTokens;
using heed::Walk;
using heed::test::Gpt2;
using heed::test::message_of;
using heed::test::Numbers;
using heed::test::TemporaryFolder;

double length_of_row(const Numbers& x, std::int64_t row) {
  double sum = 0;
  for (std::int64_t j = 0; j < x.columns; ++j) sum += x(row, j) * x(row, j);
  return std::sqrt(sum);
}

// The token that a row of the stream predicts, and its probability.
heed::Expectation predicted(const Gpt2& model, const Numbers& stream, std::int64_t row) {
  const Numbers hidden = normed(model, "ln_f", stream), tokens = model.numbers("wte.weight");
  std::vector<double> chances;
  double sum = 0;
  for (std::int64_t v = 0; v < model.vocabulary; ++v) {
    double logit = 0;
    for (std::int64_t j = 0; j < model.dim; ++j) logit += hidden(row, j) * tokens(v, j);
    sum += chances.emplace_back(std::exp(logit));
  }
  const auto best = std::max_element(chances.begin(), chances.end());
  return {"#" + std::to_string(best - chances.begin()), *best / sum};
}

class ModelWalk : public testing::Test {
 protected:
  ModelWalk() {
    oracle.fill(6);
    oracle.write(folder.path());
    text.ids = {3, 1, 4, 1, 5, 9, 2, 6};
    for (const std::int64_t id : text.ids) text.shown.push_back("t" + std::to_string(id));
  }

  TemporaryFolder folder;
  Gpt2 oracle;
  ModelTokens text;
};

// Lengths, weights and probabilities in f32, through two layers with numbers of size 10 or less: about ten
// roundings.
TEST_F(ModelWalk, TellsWhatEachLayerDoesToAToken) {
  const heed::Model model = heed::load_model(folder.path());
  const heed::test::Gpt2Run run = run_of(oracle, text.ids);
  for (const std::int64_t row : {0, 4, 7}) {
    const Walk found = walk(model, text, row, 2);
    EXPECT_EQ(found.row, row);
    ASSERT_EQ(found.layers.size(), 2u);
    for (std::size_t n = 0; n < 2; ++n) {
      const heed::test::Gpt2Layer& layer = run.layers[n];
      EXPECT_NEAR(found.layers[n].stream, length_of_row(layer.stream, row), 1e-4);
      EXPECT_NEAR(found.layers[n].attention, length_of_row(layer.attention, row), 1e-4);
      EXPECT_NEAR(found.layers[n].rest, length_of_row(layer.mlp, row), 1e-4);
      const heed::Expectation best = predicted(oracle, n == 0 ? run.layers[1].stream : run.stream, row);
      EXPECT_EQ(found.layers[n].predicted[0].token, best.token);
      EXPECT_NEAR(found.layers[n].predicted[0].probability, best.probability, 1e-4);
      // The first token is left out.
      ASSERT_EQ(found.layers[n].attended.size(), static_cast<std::size_t>(std::min<std::int64_t>(row, 2)));
      double most = 0;
      for (const Numbers& weights : layer.weights)
        for (std::int64_t place = 1; place <= row; ++place) most = std::max(most, weights(row, place));
      for (const heed::WatchedPair& pair : found.layers[n].attended) {
        EXPECT_EQ(pair.head.layer, static_cast<std::int64_t>(n));
        EXPECT_NEAR(pair.weight, layer.weights[static_cast<std::size_t>(pair.head.head)](row, pair.place),
                    1e-5);
        EXPECT_EQ(pair.token, text.shown[static_cast<std::size_t>(pair.place)]);
      }
      if (row > 0) {
        EXPECT_NEAR(found.layers[n].attended[0].weight, most, 1e-5);
      }
    }
    EXPECT_NEAR(found.stream, length_of_row(run.stream, row), 1e-4);
    EXPECT_EQ(found.embedded[0].token, predicted(oracle, run.layers[0].stream, row).token);
  }
}

TEST_F(ModelWalk, RefusesARowThatThereIsNot) {
  const heed::Model model = heed::load_model(folder.path());
  EXPECT_EQ(message_of([&] { (void)heed::walk(model, text, 8); }), "row is 8; 0 to 7 is expected");
  EXPECT_EQ(message_of([&] { (void)heed::walk(model, text, -1); }), "row is -1; 0 to 7 is expected");
  EXPECT_EQ(message_of([&] { (void)heed::walk(model, text, 0, 0); }), "count is 0; 1 or more is expected");
}

}  // namespace
