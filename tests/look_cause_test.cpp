// heed look --model … --ablate, --patch, --attribute, --lens, --rollout: compares the command with the
// library, on a model that comes with heed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heed/model/cause.hpp"
#include "look_induction.hpp"

namespace {

using heed::Model;
using heed::ModelHead;
using heed::TensorView;
using heed::test::CommandResult;
using heed::test::kInductionText;
using heed::test::look_at_induction;
using heed::test::run_heed;
using heed::test::TemporaryFolder;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

Json answer(const std::string& option, Words more, const std::string& text = kInductionText) {
  more.push_back("--json");
  const CommandResult result = look_at_induction(more, text);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return Json::parse(result.output)[option];
}

const Model& induction() {
  static const Model model = heed::load_model(std::string(HEED_SOURCE_DIR) + "/models/induction");
  return model;
}

TensorView ids_of(const heed::ModelTokens& tokens) {
  return {tokens.ids.data(), {static_cast<std::int64_t>(tokens.ids.size())}};
}

TEST(LookCause, AblateGivesWhatTheLibraryDoes) {
  const heed::ModelTokens tokens = induction().tokenize(kInductionText);
  for (const auto& [option, to] :
       {std::pair("0.3,1.2", heed::Ablation::zero), std::pair("0.3,1.2=mean", heed::Ablation::mean)}) {
    const heed::Effect effect =
        heed::ablate(induction(), ids_of(tokens), std::vector<ModelHead>{{0, 3}, {1, 2}}, to, {.top = 2});
    const Json object = answer("ablate", {"--ablate", option, "--top-k", "2"});
    EXPECT_EQ(object["heads"], Json({"0.3", "1.2"}));
    EXPECT_EQ(object["row"], 6);
    EXPECT_EQ(object["loss"]["before"].get<double>(), effect.loss_before);
    EXPECT_EQ(object["loss"]["after"].get<double>(), effect.loss_after);
    EXPECT_EQ(object["divergence"].get<double>(), effect.divergence);
    EXPECT_EQ(object["moved"].get<double>(), effect.moved);
    ASSERT_EQ(object["next"].size(), effect.tokens.size());
    EXPECT_EQ(object["next"][0]["token"], "not");
    EXPECT_EQ(object["next"][0]["id"], 3);
    EXPECT_EQ(object["next"][0]["before"].get<double>(), effect.tokens[0].before);
    EXPECT_EQ(object["next"][0]["after"].get<double>(), effect.tokens[0].after);
  }
}

TEST(LookCause, WithoutThePreviousTokenHeadTheModelForgetsWhatFollowed) {
  const CommandResult result = look_at_induction({"--ablate", "0.3"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(
      result.output.starts_with("head 0.3 set to zero\n\n  after or (6)              before     after\n"
                                "  not                       0.9999    0.0"))
      << result.output;
  EXPECT_NE(result.output.find("mean loss, nats"), std::string::npos);
}

TEST(LookCause, PatchReadsTheOtherText) {
  const heed::ModelTokens tokens = induction().tokenize(kInductionText),
                          other = induction().tokenize("a b a b a b a");
  const heed::Effect effect = heed::patch(induction(), ids_of(tokens), ids_of(other),
                                          std::vector<ModelHead>{{1, 0}, {1, 1}}, {.row = 4});
  const Json object = answer("patch", {"--patch", "a b a b a b a:1.0,1.1", "--row", "4"});
  EXPECT_EQ(object["from"], "a b a b a b a");
  EXPECT_EQ(object["row"], 4);
  EXPECT_EQ(object["loss"]["after"].get<double>(), effect.loss_after);
  EXPECT_EQ(object["divergence"].get<double>(), effect.divergence);
}

TEST(LookCause, AttributeAddsUpToTheLogitOfTheTokenThatIsNamed) {
  EXPECT_EQ(answer("attribute", {"--attribute"})["token"], "not");
  const Json object = answer("attribute", {"--attribute", "be", "--row", "or:1"});
  EXPECT_EQ(object["token"], "be");
  EXPECT_EQ(object["row"], 2);
  double sum = object["embedding"].get<double>() + object["constant"].get<double>();
  for (const Json& layer : object["heads"])
    for (const Json& share : layer) sum += share.get<double>();
  for (const char* part : {"biases", "mlps"})
    for (const Json& share : object[part]) sum += share.get<double>();
  EXPECT_NEAR(sum, object["logit"].get<double>(), 1e-4);  // f32 streams of numbers up to ten
  EXPECT_EQ(answer("attribute", {"--attribute", "#1"})["id"], 1);
  const CommandResult result = look_at_induction({"--attribute", "not", "--top-k", "2"});
  EXPECT_TRUE(result.output.starts_with("logit of not after or (6): 15.0")) << result.output;
  EXPECT_NE(result.output.find("layer 1"), std::string::npos);
}

TEST(LookCause, LensEndsWithWhatTheModelSays) {
  const heed::Lens lens =
      heed::lens(induction(), ids_of(induction().tokenize(kInductionText)), {.row = 5, .top = 3});
  const Json object = answer("lens", {"--lens", "--row", "5", "--top-k", "3"});
  EXPECT_EQ(object["token"], "or");
  ASSERT_EQ(object["layers"].size(), 3u);
  for (std::size_t n = 0; n < 3; ++n) {
    EXPECT_EQ(object["layers"][n]["probability"].get<double>(), lens.layers[n].probability);
    EXPECT_EQ(object["layers"][n]["rank"].get<std::int64_t>(), lens.layers[n].rank);
    EXPECT_EQ(object["layers"][n]["top"].size(), 3u);
  }
  EXPECT_EQ(object["layers"][2]["top"][0]["token"], "or");
  const std::string printed = look_at_induction({"--lens"}).output;
  EXPECT_NE(printed.find("\n  embedding"), std::string::npos) << printed;
  EXPECT_NE(printed.find("\n  layer 1"), std::string::npos) << printed;
  // 80 columns have room for several tokens.
  EXPECT_NE(printed.substr(printed.find("\n  layer 1")).find(" · "), std::string::npos) << printed;
}

TEST(LookCause, RolloutTakesSeveralRows) {
  const std::vector<std::int64_t> rows = {2, 6, 0};
  const heed::Tensor flow = heed::rollout(induction(), ids_of(induction().tokenize(kInductionText)), rows);
  const Json object = answer("rollout", {"--rollout", "--row", "or,0"});
  ASSERT_EQ(object["rows"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(object["rows"][i]["row"], rows[i]);
    for (std::size_t j = 0; j < 7; ++j)
      EXPECT_EQ(object["rows"][i]["from"][j].get<float>(),
                flow.at<float>(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)));
  }
  EXPECT_NE(look_at_induction({"--rollout"}).output.find("\nor (6)\n  not (3)"), std::string::npos);
}

TEST(LookCause, ReadsATextFromAFile) {
  const TemporaryFolder folder;
  heed::test::write_file(folder / "text.txt", kInductionText);
  EXPECT_EQ(look_at_induction({"--text", folder / "text.txt", "--lens"}, "").output,
            look_at_induction({"--lens"}).output);
}

TEST(LookCause, RefusesInOneSentence) {
  const auto refusal = [](const Words& more, const std::string& text = kInductionText) {
    const CommandResult result = look_at_induction(more, text);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    return result.errors;
  };
  const auto expect = [](const std::string& errors, const std::string& said) {
    EXPECT_NE(errors.find(said), std::string::npos) << errors;
  };
  expect(refusal({"--ablate", "2.0"}), "--ablate is '2.0'; layers 0 to 1 with heads 0 to 3 are expected");
  expect(refusal({"--patch", "a b:0.4"}), "--patch is '0.4'; layers 0 to 1 with heads 0 to 3 are expected");
  for (const char* odd : {"5", "1.x", "1.2=max", "1.2,", "-1.2", "1.2.3"})
    expect(refusal({"--ablate", odd}), "--ablate is '" + std::string(odd) + "'; heads such as 5.1,6.9");
  for (const char* odd : {"a b", ":1.0", "a b:", "a b:1"})
    expect(refusal({"--patch", odd}), "--patch is '" + std::string(odd) + "'; OTHER_TEXT:HEADS");
  expect(refusal({"--patch", "a b:1.0"}),
         "the length of the text of --patch is 2; 7 tokens, the length of the text, are");
  expect(refusal({"--patch", "a b:1.0"}, "a"),
         "the length of the text of --patch is 2; 1 token, the length of the text, is expected");
  expect(refusal({"--attribute", "cat"}), "--attribute is 'cat', which is not a token of the model");
  expect(refusal({"--lens", "--row", "7"}), "--row is 7; there are 7 tokens, counted from 0");
  expect(refusal({"--lens", "--row", "or"}), "--row is 'or', which is 2 tokens; one is expected");
  expect(refusal({"--lens", "--rollout"}), "--lens and --rollout are both given; one question at a time");
  expect(refusal({"--lens", "--map", "2x2"}),
         "--map is given together with --lens, which allows only --text, --ids, --row");
  expect(refusal({"--lens"}, ""), "WORDS, --ids or one --text FILE is expected for --lens to read");
  const CommandResult alone = run_heed({"look", "doc.safetensors", "--lens"});
  EXPECT_EQ(alone.exit_code, 2);
  expect(alone.errors, "--lens is given without --model DIR, which it examines");
}

}  // namespace
