// heed look --model …: the heads that stand out, needles and weights by norm, compared with the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "heed/io/tensors.hpp"
#include "heed/model/look.hpp"
#include "heed/random.hpp"
#include "look_induction.hpp"

namespace {

using heed::Model;
using heed::TextLook;
using heed::TextLookOptions;
using heed::WeighedBy;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::kInductionText;
using heed::test::look_at_induction;
using heed::test::run_heed;
using heed::test::TemporaryFolder;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

Json answer(Words more, const std::string& text = kInductionText) {
  more.push_back("--json");
  const CommandResult result = look_at_induction(more, text);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return Json::parse(result.output, nullptr, false);
}

TextLook looked_at(WeighedBy by = WeighedBy::attention) {
  const Model model = heed::load_model(std::string(HEED_SOURCE_DIR) + "/models/induction");
  const heed::ModelTokens tokens = model.tokenize(kInductionText);
  TextLookOptions options;
  options.by = by;
  options.needle = heed::spans_of(kInductionText, tokens, "be or");
  return look_at_text(model, tokens, options);
}

double induction_score(const Json& head) { return head["scores"]["induction"].get<double>(); }

TEST(LookModel, FindListsTheHeadsNearestToANameBestFirst) {
  const Json all = answer({})["summary"], best = answer({"--find", "induction", "--top", "3"})["summary"];
  ASSERT_EQ(best.size(), 3u);
  std::vector<double> scores;
  for (const Json& head : all)
    scores.push_back(std::max(induction_score(head), head["rest_scores"]["induction"].is_null()
                                                         ? 0
                                                         : head["rest_scores"]["induction"].get<double>()));
  std::sort(scores.rbegin(), scores.rend());
  for (std::size_t i = 0; i < 3; ++i) {
    const Json rest = best[i]["rest_scores"]["induction"];
    EXPECT_EQ(std::max(induction_score(best[i]), rest.is_null() ? 0 : rest.get<double>()), scores[i]);
    EXPECT_EQ(best[i]["label"].get<std::string>()[0], '1');
  }
  const std::string text = look_at_induction({"--find", "induction", "--top", "3"}).output;
  EXPECT_NE(text.find("heads nearest to induction, named at 0.300 or more"), std::string::npos) << text;
}

TEST(LookModel, TopCutsTheTable) {
  EXPECT_EQ(answer({"--sort", "entropy", "--top", "2"})["summary"].size(), 2u);
  EXPECT_EQ(answer({"--top", "20"})["summary"].size(), 8u);
}

TEST(LookModel, NeedleGivesTheWeightOfTheLastRow) {
  const TextLook library = looked_at();
  const Json heads = answer({"--needle", "be or"})["summary"];
  ASSERT_EQ(heads.size(), 8u);
  double before = 1;
  for (const Json& head : heads) {
    const auto& found = library.retrieval[head["head"].get<std::size_t>()];
    EXPECT_EQ(head["needle"]["last"].get<double>(), found.last);
    EXPECT_EQ(head["needle"]["mean"].get<double>(), found.mean);
    EXPECT_LE(found.last, before);
    before = found.last;
  }
  const std::string text = look_at_induction({"--needle", "be or"}).output;
  EXPECT_NE(text.find("weight on 'be or', token 1-2, 5-6"), std::string::npos) << text;
}

// Compares the output with the library on the same model.
TEST(LookModel, ByNormWeighsTheTableAndTheRows) {
  const TextLook library = looked_at(WeighedBy::norm);
  const Json object = answer({"--by", "norm"});
  for (std::size_t n = 0; n < 8; ++n)
    EXPECT_EQ(object["summary"][n]["entropy"].get<double>(), library.report.summaries[n].entropy);
  const Json rows = answer({"--by", "norm", "--row", "6", "--top-k", "1"})["rows"];
  for (std::size_t n = 0; n < 8; ++n)
    EXPECT_NEAR(rows[n]["keys"][0]["weight"].get<double>(),
                heed::number_at(library.report.max_weight, {0, static_cast<std::int64_t>(n), 6}),
                1e-6);  // rounding in f32, with rows in another order
}

TEST(LookModel, ByNormIsKeptInTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "doc.safetensors";
  ASSERT_EQ(look_at_induction({"--by", "norm", "--save", path}).exit_code, 0);
  const CommandResult row = run_heed({"look", path, "--row", "6", "--json"});
  ASSERT_EQ(row.exit_code, 0) << row.errors;
  const Json from_model = answer({"--by", "norm", "--row", "6"})["rows"];
  EXPECT_EQ(Json::parse(row.output)["rows"], from_model);
  EXPECT_EQ(run_heed({"look", path, "--check"}).exit_code, 0);
}

TEST(LookModel, SaysWhatAllHeadsTogetherAttendTo) {
  const TextLook library = looked_at();
  const Json received = answer({})["received"];
  ASSERT_EQ(received.size(), 7u);
  double sum = 0;
  for (const Json& one : received) sum += one["weight"].get<double>();
  EXPECT_NEAR(sum, 7, 1e-4);  // each of seven rows gives 1, in f32
  EXPECT_GE(received[0]["weight"].get<double>(), received[1]["weight"].get<double>());
}

TEST(LookModel, ReadsOneFileForAnyQuestion) {
  const TemporaryFolder folder;
  const std::string path = folder / "text.txt";
  heed::test::write_file(path, kInductionText);
  EXPECT_EQ(answer({"--text", path, "--row", "6"}, ""), answer({"--row", "6"}));
  EXPECT_EQ(answer({"--text", path}, ""), answer({}));
}

TEST(LookModel, SaysWhichHeadsAttendToMost) {
  const auto heading = [](Words more) {
    more.push_back("--brief");
    const std::string text = look_at_induction(more).output;
    const std::size_t at = text.find("attended to most, ");
    return at == std::string::npos ? text : text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(heading({}), "attended to most, by a head on average");
  EXPECT_EQ(heading({"--top", "8"}), "attended to most, by a head on average");
  EXPECT_EQ(heading({"--top", "4"}), "attended to most, by one of the 4 heads above on average");
  EXPECT_EQ(heading({"--head", "1.2"}), "attended to most, by the head above on average");
}

// A Llama of one layer, 2 heads and 3 words, for texts of `context` tokens.
std::string tiny_llama(const TemporaryFolder& folder, int context) {
  heed::Generator draw{5};
  std::vector<std::pair<std::string, heed::Tensor>> tensors;
  const auto add = [&](const std::string& name, const heed::Dims& shape) {
    tensors.emplace_back(name, heed::randn(draw, shape));
  };
  const std::string layer = "model.layers.0.";
  add("model.embed_tokens.weight", {3, 8});
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(layer + norm + ".weight", {8});
  for (const char* square : {"q_proj", "k_proj", "v_proj", "o_proj"})
    add(layer + "self_attn." + square + ".weight", {8, 8});
  for (const char* up : {"gate_proj", "up_proj"}) add(layer + "mlp." + up + ".weight", {4, 8});
  add(layer + "mlp.down_proj.weight", {8, 4});
  add("model.norm.weight", {8});
  add("lm_head.weight", {3, 8});
  std::vector<std::pair<std::string, heed::TensorView>> views(tensors.begin(), tensors.end());
  heed::io::write_safetensors(folder / "model.safetensors", views);
  heed::test::write_file(folder / "config.json", Json{{"model_type", "llama"},
                                                      {"vocab_size", 3},
                                                      {"hidden_size", 8},
                                                      {"intermediate_size", 4},
                                                      {"num_hidden_layers", 1},
                                                      {"num_attention_heads", 2},
                                                      {"num_key_value_heads", 2},
                                                      {"hidden_act", "silu"},
                                                      {"max_position_embeddings", context},
                                                      {"rms_norm_eps", 1e-6},
                                                      {"rope_theta", 10000.0},
                                                      {"tie_word_embeddings", false}}
                                                     .dump());
  heed::test::write_file(
      folder / "tokenizer.json",
      Json{{"version", "1.0"},
           {"added_tokens", Json::array()},
           {"normalizer", nullptr},
           {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
           {"post_processor", nullptr},
           {"decoder", nullptr},
           {"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}}}, {"unk_token", "a"}}}}
          .dump());
  return folder.path();
}

TEST(LookModel, SaysWhereATextIsLongerThanWhatTheModelWasTrainedOn) {
  const TemporaryFolder folder;
  const std::string model = tiny_llama(folder, 5);
  heed::test::write_file(folder / "long.txt", "a b c a b c");
  const std::string more =
      " has 6 tokens; the model was trained on up to 5, so its heads may behave differently beyond them\n";
  EXPECT_EQ(run_heed({"look", "--model", model, "a b c a b"}).errors, "");
  EXPECT_EQ(run_heed({"look", "--model", model, "a b c a b c"}).errors, "heed: WORDS" + more);
  for (const Words& question : {Words{"--json"}, Words{"--row", "5"}, Words{"--lens"}}) {
    Words command{"look", "--model", model, "--text", folder / "long.txt"};
    command.insert(command.end(), question.begin(), question.end());
    const CommandResult result = run_heed(command);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.errors, "heed: " + (folder / "long.txt") + more);
  }
}

TEST(LookModel, SaysThatAFolderHasAPickleAlone) {
  const TemporaryFolder folder;
  const std::string model = tiny_llama(folder, 5);
  ASSERT_EQ(run_heed({"look", "--model", model, "a b"}).exit_code, 0);
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    std::filesystem::rename(folder / "model.safetensors", folder / name);
    const CommandResult result = run_heed({"look", "--model", model, "a b"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.errors, "heed: '" + model + "' has its weights in " + name +
                                 ", which heed does not read; model.safetensors is expected, which "
                                 "transformers can write: AutoModelForCausalLM (AutoModel for an encoder) "
                                 ".from_pretrained(folder).save_pretrained(folder)\n");
    std::filesystem::rename(folder / name, folder / "model.safetensors");
  }
  std::filesystem::remove(folder / "model.safetensors");
  EXPECT_NE(run_heed({"look", "--model", model, "a b"}).errors.find("model.safetensors"), std::string::npos);
}

TEST(LookModel, RefusesInOneSentence) {
  const auto refusal = [](const CommandResult& result) {
    EXPECT_EQ(result.exit_code, 2) << result.output;
    return result.errors;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal(look_at_induction({"--needle", "yes"})),
                  "--needle is 'yes', which is not in the text; words of the text are expected"));
  EXPECT_TRUE(has(refusal(look_at_induction({"--layer", "2"})), "--layer is 2; the layers are 0 to 1"));
  EXPECT_TRUE(has(refusal(look_at_induction({"--find", "induction", "--needle", "be"})),
                  "--find and --needle are both given; one question at a time is expected"));
  EXPECT_TRUE(has(refusal(look_at_induction({"--find", "induction", "--row", "1"})),
                  "--row and --find are both given; one question at a time is expected"));
  EXPECT_TRUE(has(refusal(look_at_induction({"--needle", "be", "--csv", "a.csv"})),
                  "--csv is given together with --needle; --json writes its answer"));
  EXPECT_TRUE(has(refusal(run_heed({"look", "doc.safetensors", "--by", "norm"})),
                  "--by is given without --model DIR, which would read the text"));
}

}  // namespace
