// heed/model/cause.hpp, compared with the formulas of a small GPT-2 in f64.
#include "heed/model/cause.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "gpt2_oracle.hpp"
#include "heed/model/why.hpp"
#include "support.hpp"

namespace {

using heed::Ablation;
using heed::Attribution;
using heed::CauseOptions;
using heed::Effect;
using heed::Lens;
using heed::Model;
using heed::ModelHead;
using heed::Tensor;
using heed::TensorView;
using heed::test::Gpt2;
using heed::test::Gpt2Layer;
using heed::test::Gpt2Run;
using heed::test::message_of;
using heed::test::Numbers;
using heed::test::run_of;
using heed::test::TemporaryFolder;
using Ids = std::vector<std::int64_t>;

// The model computes in f32: about ten roundings of 2^-24 in each of two layers, for numbers up to 10.
// Exponentials and norms enlarge these errors a few times.
constexpr double kRounding = 2e-5;

const Ids kText = {3, 7, 7, 1, 20, 3, 28, 11, 0};
const Ids kOther = {5, 2, 7, 19, 20, 4, 4, 11, 8};

TensorView view_of(const Ids& ids) { return {ids.data(), {static_cast<std::int64_t>(ids.size())}}; }

struct Pair {
  Gpt2 oracle;
  Model model;
};

Model model_of(const Gpt2& gpt2) {
  const TemporaryFolder folder;
  gpt2.write(folder.path());
  return heed::load_model(folder.path());
}

Pair random_pair() {
  Gpt2 gpt2;
  gpt2.fill(5);
  Model model = model_of(gpt2);
  return {std::move(gpt2), std::move(model)};
}

std::vector<double> probabilities(const Numbers& logits, std::int64_t row) {
  std::vector<double> all;
  double sum = 0;
  for (std::int64_t j = 0; j < logits.columns; ++j) sum += std::exp(logits(row, j));
  for (std::int64_t j = 0; j < logits.columns; ++j) all.push_back(std::exp(logits(row, j)) / sum);
  return all;
}

double loss(const Gpt2Run& run, const Ids& ids) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    sum -= std::log(
        probabilities(run.logits, static_cast<std::int64_t>(i))[static_cast<std::size_t>(ids[i + 1])]);
  return sum / static_cast<double>(ids.size() - 1);
}

std::int64_t likeliest(const std::vector<double>& all) {
  return std::max_element(all.begin(), all.end()) - all.begin();
}

void expect_effect(const Effect& effect, const Gpt2Run& before, const Gpt2Run& after) {
  EXPECT_TRUE(effect.predicts);
  EXPECT_NEAR(effect.loss_before, loss(before, kText), kRounding);
  EXPECT_NEAR(effect.loss_after, loss(after, kText), kRounding);
  const auto was = probabilities(before.logits, effect.row), is = probabilities(after.logits, effect.row);
  double divergence = 0, moved = 0;
  for (std::size_t i = 0; i < was.size(); ++i) divergence += was[i] * std::log(was[i] / is[i]);
  EXPECT_NEAR(effect.divergence, divergence, kRounding);
  for (std::int64_t row = 0; row < before.hidden.rows; ++row) {
    double squares = 0, change = 0;
    for (std::int64_t j = 0; j < before.hidden.columns; ++j) {
      squares += before.hidden(row, j) * before.hidden(row, j);
      change += std::pow(after.hidden(row, j) - before.hidden(row, j), 2);
    }
    moved += std::sqrt(change / squares) / static_cast<double>(before.hidden.rows);
  }
  EXPECT_NEAR(effect.moved, moved, kRounding);
  ASSERT_FALSE(effect.tokens.empty());
  EXPECT_EQ(effect.tokens[0].token, likeliest(was));
  double last = 1;
  for (const auto& shift : effect.tokens) {
    EXPECT_NEAR(shift.before, was[static_cast<std::size_t>(shift.token)], kRounding);
    EXPECT_NEAR(shift.after, is[static_cast<std::size_t>(shift.token)], kRounding);
    EXPECT_LE(shift.before, last);
    last = shift.before;
  }
  const auto names = [&](std::int64_t token) {
    return std::any_of(effect.tokens.begin(), effect.tokens.end(),
                       [&](const auto& shift) { return shift.token == token; });
  };
  EXPECT_TRUE(names(likeliest(is)));
}

TEST(Ablate, SetsHeadsToZero) {
  const Pair pair = random_pair();
  const Gpt2& gpt2 = pair.oracle;
  const Model& model = pair.model;
  const std::vector<ModelHead> heads = {{0, 2}, {1, 0}};
  const Gpt2Run after = run_of(gpt2, kText, [&](std::int64_t layer, Numbers& outputs) {
    const std::int64_t head = layer == 0 ? 2 : 0;
    for (std::int64_t i = 0; i < outputs.rows; ++i)
      for (std::int64_t k = 4 * head; k < 4 * head + 4; ++k) outputs(i, k) = 0;
  });
  const Effect effect = heed::ablate(model, view_of(kText), heads);
  EXPECT_EQ(effect.row, 8);
  EXPECT_GT(effect.moved, 0.05);  // otherwise the test could not see a missing change
  expect_effect(effect, run_of(gpt2, kText), after);
}

TEST(Ablate, ToZeroIsTheModelWithoutTheHeadsRowsOfTheOutputMatrix) {
  Gpt2 gpt2;
  gpt2.fill(5);
  const Model model = model_of(gpt2);
  const Effect effect =
      heed::ablate(model, view_of(kText), std::vector<ModelHead>{{0, 1}}, Ablation::zero, {.top = 29});
  for (float& one : gpt2.tensors.at("h.0.attn.c_proj.weight").values<float>().subspan(4 * 12, 4 * 12))
    one = 0;
  const Model without = model_of(gpt2);
  const Tensor logits = without.logits(without.hidden_states(view_of(kText)));
  ASSERT_EQ(effect.tokens.size(), 29u);
  double sum = 0;
  for (std::int64_t j = 0; j < 29; ++j) sum += std::exp(static_cast<double>(logits.at<float>(8, j)));
  for (const auto& shift : effect.tokens)
    EXPECT_NEAR(shift.after, std::exp(static_cast<double>(logits.at<float>(8, shift.token))) / sum, 1e-6);
}

TEST(Ablate, SetsHeadsToTheirMeanOverTheText) {
  const Pair pair = random_pair();
  const Gpt2& gpt2 = pair.oracle;
  const Model& model = pair.model;
  const Gpt2Run after = run_of(gpt2, kText, [](std::int64_t layer, Numbers& outputs) {
    if (layer != 1) return;
    for (std::int64_t k = 4; k < 8; ++k) {
      double mean = 0;
      for (std::int64_t i = 0; i < outputs.rows; ++i)
        mean += outputs(i, k) / static_cast<double>(outputs.rows);
      for (std::int64_t i = 0; i < outputs.rows; ++i) outputs(i, k) = mean;
    }
  });
  const Effect effect =
      heed::ablate(model, view_of(kText), std::vector<ModelHead>{{1, 1}}, Ablation::mean, {.row = 4});
  EXPECT_EQ(effect.row, 4);
  EXPECT_GT(effect.moved, 0.02);
  expect_effect(effect, run_of(gpt2, kText), after);
}

TEST(Patch, TakesTheOutputsOfHeadsFromTheOtherText) {
  const Pair pair = random_pair();
  const Gpt2& gpt2 = pair.oracle;
  const Model& model = pair.model;
  const Gpt2Run from = run_of(gpt2, kOther);
  const Gpt2Run after = run_of(gpt2, kText, [&](std::int64_t layer, Numbers& outputs) {
    for (std::int64_t i = 0; i < outputs.rows; ++i)
      for (std::int64_t k = 0; k < 12; ++k)
        if ((layer == 0 && k < 4) || (layer == 1 && k >= 8))
          outputs(i, k) = from.layers[static_cast<std::size_t>(layer)].heads(i, k);
  });
  const Effect effect =
      heed::patch(model, view_of(kText), view_of(kOther), std::vector<ModelHead>{{0, 0}, {1, 2}});
  EXPECT_GT(effect.moved, 0.05);
  expect_effect(effect, run_of(gpt2, kText), after);
}

TEST(Patch, WithTheSameTextChangesNothing) {
  const Pair pair = random_pair();
  const Model& model = pair.model;
  const Effect effect = heed::patch(model, view_of(kText), view_of(kText), std::vector<ModelHead>{{0, 0}});
  EXPECT_EQ(effect.moved, 0);
  EXPECT_EQ(effect.divergence, 0);
  EXPECT_EQ(effect.loss_before, effect.loss_after);
}

TEST(Effect, NamesTheTokenThatWasAskedFor) {
  const Pair pair = random_pair();
  const Gpt2& gpt2 = pair.oracle;
  const Model& model = pair.model;
  const auto was = probabilities(run_of(gpt2, kText).logits, 8);
  const std::int64_t least = std::min_element(was.begin(), was.end()) - was.begin();
  const Effect effect = heed::ablate(model, view_of(kText), std::vector<ModelHead>{{0, 0}}, Ablation::zero,
                                     {.token = least, .top = 1});
  EXPECT_EQ(effect.tokens.back().token, least);
}

TEST(Effect, OfOneTokenHasNoLoss) {
  const Pair pair = random_pair();
  const Model& model = pair.model;
  const Effect effect = heed::ablate(model, view_of({4}), std::vector<ModelHead>{{0, 0}});
  EXPECT_TRUE(std::isnan(effect.loss_before));
  EXPECT_TRUE(std::isnan(effect.loss_after));
  EXPECT_GT(effect.moved, 0);
}

double sum_of(const Attribution& made) {
  double sum = made.embedding + made.constant;
  for (const double one : made.heads.values<double>()) sum += one;
  sum = std::accumulate(made.biases.begin(), made.biases.end(), sum);
  return std::accumulate(made.mlps.begin(), made.mlps.end(), sum);
}

// <d logit / d stream, x> with the scale of the last norm held constant; x is a row of an addition to the
// stream.
double share(const Gpt2& gpt2, const Gpt2Run& run, std::int64_t row, std::int64_t token,
             const std::vector<double>& added) {
  const Numbers weight = gpt2.numbers("ln_f.weight"), unembedding = gpt2.numbers("wte.weight");
  double mean = 0, variance = 0, mean_added = 0, sum = 0;
  for (std::int64_t j = 0; j < 12; ++j) mean += run.stream(row, j) / 12;
  for (std::int64_t j = 0; j < 12; ++j) variance += std::pow(run.stream(row, j) - mean, 2) / 12;
  for (const double one : added) mean_added += one / 12;
  for (std::int64_t j = 0; j < 12; ++j)
    sum += unembedding(token, j) * weight(0, j) * (added[static_cast<std::size_t>(j)] - mean_added);
  return sum / std::sqrt(variance + 1e-5);
}

std::vector<double> row_of(const Numbers& matrix, std::int64_t row) {
  const auto begin = matrix.values.begin() + row * matrix.columns;
  return {begin, begin + matrix.columns};
}

// The addition of a head to a row: its outputs times its rows of W_O.
std::vector<double> added_by(const Gpt2& gpt2, const Gpt2Layer& layer, std::int64_t n, std::int64_t head,
                             std::int64_t row) {
  const Numbers output = gpt2.numbers("h." + std::to_string(n) + ".attn.c_proj.weight");
  std::vector<double> added(12);
  for (std::int64_t k = 4 * head; k < 4 * head + 4; ++k)
    for (std::int64_t j = 0; j < 12; ++j)
      added[static_cast<std::size_t>(j)] += layer.heads(row, k) * output(k, j);
  return added;
}

TEST(Attribute, GivesEachHeadItsShare) {
  const Pair pair = random_pair();
  const Gpt2& gpt2 = pair.oracle;
  const Model& model = pair.model;
  const Gpt2Run run = run_of(gpt2, kText);
  const Attribution made = heed::attribute(model, view_of(kText), {.row = 5, .token = 13});
  EXPECT_EQ(made.row, 5);
  EXPECT_EQ(made.token, 13);
  EXPECT_NEAR(made.logit, run.logits(5, 13), kRounding);
  EXPECT_NEAR(sum_of(made), made.logit, kRounding);
  EXPECT_NEAR(made.embedding, share(gpt2, run, 5, 13, row_of(run.layers[0].stream, 5)), kRounding);
  for (std::int64_t n = 0; n < 2; ++n) {
    const auto& layer = run.layers[static_cast<std::size_t>(n)];
    const Numbers bias = gpt2.numbers("h." + std::to_string(n) + ".attn.c_proj.bias");
    EXPECT_NEAR(made.biases[static_cast<std::size_t>(n)], share(gpt2, run, 5, 13, row_of(bias, 0)),
                kRounding);
    EXPECT_NEAR(made.mlps[static_cast<std::size_t>(n)], share(gpt2, run, 5, 13, row_of(layer.mlp, 5)),
                kRounding);
    for (std::int64_t head = 0; head < 3; ++head)
      EXPECT_NEAR(made.heads.at<double>(n, head), share(gpt2, run, 5, 13, added_by(gpt2, layer, n, head, 5)),
                  kRounding)
          << n << "." << head;
  }
}

TEST(Attribute, SpeaksOfTheLikeliestTokenBehindTheLastRow) {
  const Pair pair = random_pair();
  const Gpt2& gpt2 = pair.oracle;
  const Model& model = pair.model;
  const Attribution made = heed::attribute(model, view_of(kText));
  EXPECT_EQ(made.row, 8);
  EXPECT_EQ(made.token, likeliest(probabilities(run_of(gpt2, kText).logits, 8)));
}

TEST(Lens, GivesWhatEachLayersStreamWouldPredict) {
  const Pair pair = random_pair();
  const Gpt2& gpt2 = pair.oracle;
  const Model& model = pair.model;
  const Gpt2Run run = run_of(gpt2, kText);
  const Lens made = heed::lens(model, view_of(kText), {.row = 6, .top = 29});
  EXPECT_EQ(made.token, likeliest(probabilities(run.logits, 6)));
  ASSERT_EQ(made.layers.size(), 3u);
  Numbers unembedding(12, 29);
  for (std::int64_t i = 0; i < 29; ++i)
    for (std::int64_t j = 0; j < 12; ++j) unembedding(j, i) = gpt2.numbers("wte.weight")(i, j);
  for (std::size_t n = 0; n < 3; ++n) {
    const Numbers& stream = n < 2 ? run.layers[n].stream : run.stream;
    const auto all = probabilities(product(normed(gpt2, "ln_f", stream), unembedding), 6);
    ASSERT_EQ(made.layers[n].top.size(), 29u);
    for (const auto& one : made.layers[n].top)
      EXPECT_NEAR(one.probability, all[static_cast<std::size_t>(one.token)], kRounding) << n;
    const double of_token = all[static_cast<std::size_t>(made.token)];
    EXPECT_NEAR(made.layers[n].probability, of_token, kRounding);
    EXPECT_EQ(made.layers[n].rank,
              std::count_if(all.begin(), all.end(), [&](double one) { return one > of_token; }));
    EXPECT_EQ(made.layers[n].top[static_cast<std::size_t>(made.layers[n].rank)].token, made.token);
  }
  EXPECT_EQ(made.layers[2].rank, 0);
}

TEST(Rollout, IsTheProductOfTheLayersMatrices) {
  const Pair pair = random_pair();
  const Gpt2& gpt2 = pair.oracle;
  const Model& model = pair.model;
  const Gpt2Run run = run_of(gpt2, kText);
  Numbers whole(9, 9);
  for (std::int64_t i = 0; i < 9; ++i) whole(i, i) = 1;
  for (const auto& layer : run.layers) {
    Numbers mixed(9, 9);
    for (std::int64_t i = 0; i < 9; ++i) {
      mixed(i, i) += 0.5;
      for (std::int64_t j = 0; j < 9; ++j)
        for (const Numbers& weights : layer.weights) mixed(i, j) += weights(i, j) / 6;
    }
    whole = product(mixed, whole);
  }
  Ids rows = {8, 0, 3};
  while (rows.size() < 70) rows.push_back(static_cast<std::int64_t>(rows.size()) % 9);  // several blocks
  const Tensor made = heed::rollout(model, view_of(kText), rows);
  ASSERT_EQ(made.shape(), heed::Dims({70, 9}));
  for (std::int64_t i = 0; i < 70; ++i)
    for (std::int64_t j = 0; j < 9; ++j)  // weights of at most 1, each rounded a few times to 2^-24
      EXPECT_NEAR(static_cast<double>(made.at<float>(i, j)), whole(rows[static_cast<std::size_t>(i)], j),
                  2e-6);
}

TEST(Cause, HasTheSameBitsForEveryNumberOfThreads) {
  const Pair pair = random_pair();
  const Model& model = pair.model;
  const std::vector<ModelHead> heads = {{1, 1}};
  const Effect one = heed::ablate(model, view_of(kText), heads, Ablation::mean, {.threads = 1});
  const Effect three = heed::ablate(model, view_of(kText), heads, Ablation::mean, {.threads = 3});
  EXPECT_EQ(one.loss_after, three.loss_after);
  EXPECT_EQ(one.moved, three.moved);
  const Attribution alone = heed::attribute(model, view_of(kText), {.threads = 1});
  const Attribution shared = heed::attribute(model, view_of(kText), {.threads = 3});
  EXPECT_TRUE(std::ranges::equal(alone.heads.values<double>(), shared.heads.values<double>()));
  const Ids rows = {8};
  const Tensor from_one = heed::rollout(model, view_of(kText), rows, 1);
  const Tensor from_three = heed::rollout(model, view_of(kText), rows, 3);
  EXPECT_TRUE(std::ranges::equal(from_one.values<float>(), from_three.values<float>()));
}

TEST(Cause, RefusesInOneSentence) {
  const Pair pair = random_pair();
  const Model& model = pair.model;
  const auto ablated = [&](const std::vector<ModelHead>& heads, const CauseOptions& options = {}) {
    return message_of([&] { (void)heed::ablate(model, view_of(kText), heads, Ablation::zero, options); });
  };
  EXPECT_EQ(ablated({}), "heads is empty; at least one is expected");
  EXPECT_EQ(ablated({{0, 0}, {2, 1}}), "heads[1] is 2.1; layer 0 to 1 and head 0 to 2 are expected");
  EXPECT_EQ(ablated({{1, 3}}), "heads[0] is 1.3; layer 0 to 1 and head 0 to 2 are expected");
  EXPECT_EQ(ablated({{-1, 0}}), "heads[0] is -1.0; layer 0 to 1 and head 0 to 2 are expected");
  EXPECT_EQ(ablated({{0, 0}}, {.row = 9}), "row is 9; 0 to 8 is expected");
  EXPECT_EQ(
      message_of([&] {
        (void)heed::ablate(model, view_of(kText), std::vector<ModelHead>{{0, 0}}, static_cast<Ablation>(2));
      }),
      "to is 2; 0 to 1 is expected");
  EXPECT_EQ(message_of([] { (void)heed::largest_pairs({}, -1); }), "count is -1; 0 or more is expected");
  EXPECT_EQ(ablated({{0, 0}}, {.token = 29}), "token is 29; 0 to 28 is expected");
  EXPECT_EQ(ablated({{0, 0}}, {.top = 0}), "top is 0; 1 or more is expected");
  EXPECT_EQ(message_of([&] {
              (void)heed::patch(model, view_of(kText), view_of({1, 2}), std::vector<ModelHead>{{0, 0}});
            }),
            "the length of other is 2; 9, the length of tokens, is expected");
  EXPECT_EQ(message_of([&] { (void)heed::rollout(model, view_of(kText), Ids{}); }),
            "rows is empty; at least one is expected");
  EXPECT_EQ(message_of([&] {
              (void)heed::rollout(model, view_of(kText), Ids{0, -1});
            }),
            "rows[1] is -1; 0 to 8 is expected");
  for (const auto& call : std::vector<std::function<void(const TensorView&)>>{
           [&](const TensorView& ids) { (void)heed::lens(model, ids); },
           [&](const TensorView& ids) { (void)heed::attribute(model, ids); },
           [&](const TensorView& ids) { (void)heed::rollout(model, ids, Ids{0}); },
           [&](const TensorView& ids) {
             (void)heed::patch(model, ids, ids, std::vector<ModelHead>{{0, 0}});
           }}) {
    EXPECT_EQ(message_of([&] { call(view_of({})); }), "tokens is empty; at least one is expected");
    EXPECT_EQ(message_of([&] { call(view_of({29})); }), "tokens[0] is 29; 0 to 28 is expected");
  }
}

}  // namespace
