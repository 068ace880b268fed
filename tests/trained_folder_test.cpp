// Folders of models that heed trained, in GPT-2's format, which heed/model/model.hpp reads like any other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "heed/io/tensors.hpp"
#include "heed/model/model.hpp"
#include "heed/nn/trained_model.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::Model;
using heed::ModelTokens;
using heed::Tensor;
using heed::TensorView;
using heed::TrainedModel;
using heed::test::message_of;
using heed::test::read_file;
using heed::test::TemporaryFolder;
using heed::test::write_file;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

const std::string kModels = std::string(HEED_SOURCE_DIR) + "/models/";
constexpr const char* kRepeats = "one two, three one two";
constexpr const char* kStory = "Anna had a red ball.\nShe ";

TensorView ids_of(const ModelTokens& tokens) {
  return {tokens.ids.data(), {static_cast<std::int64_t>(tokens.ids.size())}};
}

// Both compute in f32 with products in another order: about a hundred roundings of the largest logit.
TEST(TrainedFolder, GivesTheSameLogitsAsAModelOfGpt2) {
  for (const auto& [name, text] : {std::pair("induction", kRepeats), std::pair("stories", kStory)}) {
    const Model model = heed::load_model(kModels + name);
    EXPECT_EQ(model.info().family, "gpt2");
    EXPECT_EQ(model.tokenizer(), nullptr);
    const ModelTokens tokens = model.tokenize(text);
    const Tensor found = model.logits(model.hidden_states(ids_of(tokens)));
    const Tensor expected = heed::load_trained_model(kModels + name).model.forward(ids_of(tokens)).logits;
    const auto a = found.values<float>(), b = expected.values<float>();
    ASSERT_EQ(a.size(), b.size());
    float largest = 0, apart = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(b[i]));
      apart = std::max(apart, std::abs(a[i] - b[i]));
    }
    EXPECT_GT(largest, 1);
    EXPECT_LE(apart, 100 * 0x1p-24f * largest) << name;
  }
}

TEST(TrainedFolder, HasTokensOfCharacters) {
  const Model model = heed::load_model(kModels + "stories");
  EXPECT_FALSE(model.info().symbols);
  const ModelTokens tokens = model.tokenize("Tom ");
  EXPECT_EQ(tokens.shown, (Words{"T", "o", "m", " "}));
  EXPECT_EQ(tokens.places[1], (heed::TextToken{tokens.ids[1], 1, 2, false}));
  EXPECT_EQ(model.text_of(tokens.ids[0], tokens), "T");
  EXPECT_EQ(message_of([&] { (void)model.tokenize("T#", "it"); }),
            "it has the character '#', which the model does not know");
  EXPECT_EQ(message_of([&] { (void)model.tokenize("", "it"); }),
            "it has no tokens; at least one is expected");
  EXPECT_EQ(message_of([&] { (void)model.text_of(46, tokens); }), "id is 46; 0 to 45 is expected");
}

TEST(TrainedFolder, HasTokensOfWordsThatSymbolsStandFor) {
  const Model model = heed::load_model(kModels + "induction");
  EXPECT_TRUE(model.info().symbols);
  const ModelTokens tokens = model.tokenize("to be,  or to be");
  EXPECT_EQ(tokens.shown, (Words{"to", "be", "or", "to", "be"}));
  EXPECT_EQ(tokens.ids, (std::vector<std::int64_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(tokens.places[2], (heed::TextToken{2, 8, 10, false}));
  EXPECT_EQ(tokens.places[3], (heed::TextToken{0, 11, 13, false}));
  EXPECT_EQ(model.text_of(2, tokens), "or");
  EXPECT_EQ(model.text_of(17, tokens), "#17");
}

// A model of three layers with MLPs, and one of two layers without.
TEST(TrainedFolder, KeepsEveryBitOfTheWeights) {
  for (const char* name : {"induction", "stories"}) {
    TrainedModel trained = heed::load_trained_model(kModels + name);
    const TemporaryFolder folder;
    save_model(folder.path(), trained);
    for (const std::string file : {"model.safetensors", "vocabulary.json"})
      EXPECT_EQ(read_file(folder / file), read_file(kModels + name + "/" + file)) << name;
  }
}

class ChangedFolder : public testing::Test {
 protected:
  ChangedFolder() {
    TrainedModel trained = heed::load_trained_model(kModels + "induction");
    save_model(folder.path(), trained);
  }
  // Writes the tensor of this name with its first number changed.
  void change(const std::string& name, float value) {
    heed::io::TensorFile file = heed::io::read_safetensors(folder / "model.safetensors");
    std::vector<std::pair<std::string, TensorView>> tensors;
    for (auto& [tensor_name, tensor] : file.tensors) {
      if (tensor_name == name) tensor.values<float>()[0] = value;
      tensors.emplace_back(tensor_name, tensor);
    }
    heed::io::write_safetensors(folder / "model.safetensors", tensors, file.metadata);
  }
  std::string refusal() const {
    return message_of([&] { (void)heed::load_trained_model(folder.path()); });
  }

  TemporaryFolder folder;
};

TEST_F(ChangedFolder, OfAttentionOnlyHasNoMlpThatAddsSomething) {
  change("transformer.h.0.mlp.c_fc.weight", 3);  // the next layer multiplies this by 0
  EXPECT_EQ(refusal(), "no error");
  for (const char* name : {"transformer.h.1.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias"}) {
    change(name, 1);
    EXPECT_EQ(refusal(), (folder / "model.safetensors") + " has a tensor " + name +
                             " that is not 0, although the model is attention only");
    change(name, 0);
  }
}

// Two layers of 64 have 2 norms and 4 projections with biases each. Embedding, positions and unembedding are
// 64 x 64, and there is a last norm.
constexpr std::int64_t kParameters = 2 * (2 * 64 + 4 * (64 * 64 + 64)) + 3 * 64 * 64 + 2 * 64;
constexpr std::int64_t kMlp = 2 * 64 + (64 + 1) + (64 + 64);  // its norm, one unit in and out

TEST_F(ChangedFolder, CountsOnlyMlpsThatAddSomething) {
  const auto count = [&] { return heed::load_model(folder.path()).info().parameters; };
  EXPECT_EQ(count(), kParameters);
  change("transformer.h.0.mlp.c_fc.weight", 3);
  EXPECT_EQ(count(), kParameters);
  change("transformer.h.1.mlp.c_proj.weight", 1);
  EXPECT_EQ(count(), kParameters + kMlp);
  change("transformer.h.0.mlp.c_proj.bias", 1);
  EXPECT_EQ(count(), kParameters + 2 * kMlp);
}

TEST_F(ChangedFolder, NamesTheTensorThatDoesNotFit) {
  heed::io::TensorFile file = heed::io::read_safetensors(folder / "model.safetensors");
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const auto& [name, tensor] : file.tensors)
    tensors.emplace_back(name, name == "lm_head.weight" ? tensor.view().transpose(0, 1) : tensor.view());
  tensors.pop_back();
  const Tensor spare({64, 64});
  tensors.emplace_back("spare", spare);
  heed::io::write_safetensors(folder / "model.safetensors", tensors);
  const std::string message = refusal();
  EXPECT_TRUE(message.starts_with((folder / "model.safetensors") + " has ")) << message;
}

TEST_F(ChangedFolder, HasAVocabularyOfTheModelsSize) {
  write_file(folder / "vocabulary.json", "{\"symbols\":63}");
  EXPECT_EQ(refusal(),
            (folder / "config.json") + " has vocab_size 64; its settings and vocabulary.json give 63");
  EXPECT_EQ(message_of([&] { (void)heed::load_model(folder.path()); }),
            (folder / "vocabulary.json") + " has 63 tokens; config.json says 64");
}

// Other programs read config.json too, so it must describe what heed computes.
TEST_F(ChangedFolder, HasOnlyTheRulesOfHeedsOwnModels) {
  const Json config = Json::parse(read_file(folder / "config.json"));
  const auto with = [&](const char* key, const Json& value) {
    Json other = config;
    other[key] = value;
    write_file(folder / "config.json", other.dump());
    return refusal();
  };
  const std::string said = (folder / "config.json") + " has ",
                    give = "; its settings and vocabulary.json give ";
  EXPECT_EQ(with("is_causal", false), said + "is_causal false" + give + "true");
  EXPECT_EQ(with("is_causal", nullptr), said + "is_causal null" + give + "true");
  EXPECT_EQ(with("scale_attn_weights", false), said + "scale_attn_weights false" + give + "true");
  EXPECT_EQ(with("hidden_size", 8), said + "n_embd 8" + give + "64");
  EXPECT_EQ(with("add_cross_attention", true), said + "add_cross_attention true" + give + "false");
  for (const char* key : {"use_cache", "summary_type", "unknown"}) EXPECT_EQ(with(key, 1), "no error") << key;
}

}  // namespace
