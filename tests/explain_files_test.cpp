// heed explain and its files: it reads parameters that it, the library or PyTorch saved. Other files are
// refused with a message.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "explain_support.hpp"
#include "golden.hpp"
#include "heed/nn/layers.hpp"

namespace {

using heed::DType;
using heed::Tensor;
using heed::TensorView;
using heed::nn::MultiHeadAttention;
using heed::test::CommandInput;
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

TEST_F(Explain, ReadsInEveryLayoutWhatItSaved) {
  for (const std::string layout : {"per-head", "in-proj", "fused-qkv"})
    for (const std::string init : {"torch", "lecun"}) {
      const Words sizes = {kFox, "--heads", "2", "--key-dim", "3", "--value-dim", "5", "--dim", "6"};
      Words drawn = sizes;
      drawn.insert(drawn.end(), {"--init", init, "--layout", layout, "--seed", "9"});
      const Tensor expected = named(saved(drawn), "output");
      const heed::io::SafetensorsReader file(path);
      EXPECT_EQ(file.contains("in_proj_weight"), layout == "in-proj");
      EXPECT_EQ(file.contains("qkv_layer.weight"), layout == "fused-qkv");
      EXPECT_EQ(file.contains("query.weight"), layout == "per-head");
      const Json again = json_of({kFox, "--params", path});
      EXPECT_TRUE(same_bits(tensor_of(step_of(again, "output")), expected)) << layout << " " << init;
      EXPECT_EQ(again.at("layout"), layout);
      EXPECT_EQ(again.at("weights"), "read from " + path);
      // Only some of the words, with the sizes repeated.
      Words part = sizes;
      part[0] = "lazy fox";
      part.insert(part.end(), {"--params", path, "--layout", layout});
      EXPECT_EQ(step_of(json_of(part), "ids").at("values"), Json({4, 2}));
    }
}

TEST_F(Explain, NotesWhatItSaved) {
  const auto file = saved({"to be", "--causal", "--heads", "2", "--against", "be quiet \x07"});
  EXPECT_EQ(file.metadata.at("format"), "heed explain 1");
  EXPECT_EQ(file.metadata.at("tokens"), R"(["to","be"])");
  EXPECT_EQ(file.metadata.at("context_tokens"), R"(["be","quiet","\u0007"])");
  EXPECT_EQ(file.metadata.at("vocabulary"), R"(["\u0007","be","quiet","to"])");
  EXPECT_EQ(file.metadata.at("causal"), "true");
  EXPECT_EQ(file.metadata.at("heads"), "2");
  EXPECT_EQ(file.metadata.at("layout"), "per-head");
  EXPECT_EQ(Json::parse(file.metadata.at("scale")), 1 / std::sqrt(24.0));
  const std::string text = output_of({"to be", "--save", path});
  EXPECT_NE(text.find("Saved every step and the parameters to " + path), std::string::npos);
}

class ExplainParams : public Explain {
 protected:
  void write(const std::vector<std::pair<std::string, TensorView>>& tensors,
             const std::map<std::string, std::string>& metadata = {}) const {
    heed::io::write_safetensors(path, tensors, metadata);
  }
  // Expects the refusal of a broken file; the message begins with its name.
  void expect_broken(const std::string& message, const Words& more = {}) const {
    Words arguments = {"to be", "--params", path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refusal(1, arguments, path + ": " + message);
  }
  heed::Generator generator{3};
  const Tensor q = heed::randn(generator, {2, 3, 4});
  const Tensor k = heed::randn(generator, {2, 3, 4});
  const Tensor v = heed::randn(generator, {2, 5, 4});
};

TEST_F(ExplainParams, OfTorchMultiheadAttentionAreTaken) {
  const auto recorded = [](const std::string& name) { return golden("torch_multihead_attention/" + name); };
  const Tensor in_weight = recorded("in_proj_weight");
  const Tensor in_bias = recorded("in_proj_bias");
  const Tensor out_weight = recorded("out_proj_weight");
  const Tensor out_bias = recorded("out_proj_bias");
  // The recording's first sentence stands in for embedded words, so the output must be the recorded one.
  const Tensor table = Tensor::copy_of(recorded("x_query").view().select(0, 0));
  write({{"in_proj_weight", in_weight},
         {"in_proj_bias", in_bias},
         {"out_proj.weight", out_weight},
         {"out_proj.bias", out_bias},
         {"embedding.weight", table}});
  const Json object = json_of({"a b c d e", "--params", path, "--heads", "4", "--causal"});
  EXPECT_TRUE(relative_error(tensor_of(step_of(object, "output")),
                             recorded("causal_out").view().select(0, 0)) <= kTolerance);
  EXPECT_TRUE(relative_error(tensor_of(step_of(object, "weights")),
                             recorded("causal_weights").view().select(0, 0)) <= kTolerance);
  expect_refusal(2, {"a b c d e", "--params", path},
                 "--heads is missing: " + path + " does not say how many heads are in in_proj_weight");
}

TEST_F(ExplainParams, WithoutAnOutputProjectionEndAtTheMergedHeads) {
  write({{"query.weight", q}, {"key.weight", k}, {"value.weight", v}});
  const Json object = json_of({"to be", "--params", path});
  EXPECT_EQ(object.at("steps").back().at("name"), "merged");
  EXPECT_EQ(object.at("dim"), 4);
  (void)output_of({"to be", "--params", path, "--word", "be"});
}

TEST_F(ExplainParams, AsTheLibrarySavesThemAreTaken) {
  MultiHeadAttention layer({.dim = 4, .heads = 2}, generator);
  save_parameters(path, layer.parameters());
  const Json object = json_of({"to be", "--params", path, "--heads", "2"});
  EXPECT_EQ(step_of(object, "query").at("shape"), Json({2, 2, 2}));
}

TEST_F(ExplainParams, OfOtherFloatsAreConverted) {
  const Tensor half_q = Tensor::copy_of(q, DType::bf16);
  write({{"query.weight", half_q}, {"key.weight", k}, {"value.weight", v}});
  EXPECT_EQ(json_of({"to be", "--params", path}).at("heads"), 2);
}

TEST_F(ExplainParams, ThatContradictTheCommandLineAreRefused) {
  write({{"query.weight", q}, {"key.weight", k}, {"value.weight", v}});
  const auto refusal = [&](const std::string& option, const std::string& number, const std::string& found) {
    expect_refusal(2, {"to be", "--params", path, option, number},
                   option + " is " + number + ", but " + path + " has " + found);
  };
  refusal("--heads", "3", "2");
  refusal("--key-dim", "4", "3");
  refusal("--value-dim", "4", "5");
  refusal("--dim", "5", "4");
  expect_refusal(2, {"to be", "--params", path, "--layout", "in-proj"},
                 "--layout is in-proj, but " + path + " has query.weight, which is per-head");
  expect_refusal(2, {"to be", "--params", path, "--init", "torch"},
                 "--init draws weights and --params reads them; one of the two is expected");
}

TEST_F(ExplainParams, OfAnotherFormatAreRefusedByTheirName) {
  expect_refusal(2, {"to be", "--params", "x.npy"},
                 "--params is 'x.npy'; a file whose name ends in .safetensors is expected");
}

TEST_F(ExplainParams, ThatDoNotFitTogetherAreRefused) {
  expect_refusal(1, {"to be", "--params", folder / "none.safetensors"},
                 "cannot open '" + folder / "none.safetensors" + "': No such file or directory");
  write({});
  expect_broken(
      "has neither query.weight nor in_proj_weight nor qkv_layer.weight; an attention layer is expected");
  write({{"query.weight", q}});
  expect_broken("has no tensor key.weight");
  write({{"query.weight", q}, {"key.weight", v}, {"value.weight", v}});
  expect_broken(
      "key has shape [2, 5, 4]; [2, 3, C] is expected for a query of shape [2, 3, 4] and a value of shape "
      "[2, 5, 4]");
  const Tensor whole({2, 3, 4}, DType::i64);
  write({{"query.weight", whole}, {"key.weight", k}, {"value.weight", v}});
  expect_broken("tensor query.weight is i64; a floating dtype is expected");
  const Tensor flat({7, 4});
  write({{"query.weight", flat}, {"key.weight", k}, {"value.weight", v}});
  expect_broken("tensor query.weight has shape [7, 4]; the rows of 2 heads are expected", {"--heads", "2"});
  write({{"in_proj_weight", flat}});
  expect_broken(
      "in_proj_weight has shape [7, 4]; 2 query, 2 key and 2 value heads of one size do not make that many "
      "rows",
      {"--heads", "2"});
  const Tensor wide_k({2, 3, 6});
  const Tensor wide_v({2, 5, 6});
  write({{"query.weight", q}, {"key.weight", wide_k}, {"value.weight", wide_v}});
  expect_broken(
      "its keys are made from 6 features and its queries from 4; the same number is expected because both "
      "are made from embedded words");
}

TEST_F(ExplainParams, ThatTheLayerHasNoPlaceForAreRefused) {
  const Tensor row({1, 1, 4});
  write({{"query.weight", q}, {"key.weight", k}, {"value.weight", v}, {"bias_k", row}});
  expect_broken("has a tensor bias_k, which is not a parameter of the layer");
  const Tensor none({2, 0, 4});
  write({{"query.weight", none}, {"key.weight", none}, {"value.weight", v}});
  expect_broken("has a projection of shape [0, 4]; sizes of at least 1 are expected");
}

TEST_F(ExplainParams, ThatAreNotNumbersAreShownAsSuch) {
  Tensor broken = q;
  for (float& value : broken.values<float>()) value = std::nanf("");
  write({{"query.weight", broken}, {"key.weight", k}, {"value.weight", v}});
  const std::string text = output_of({"to be", "--params", path});
  EXPECT_NE(text.find("to → nothing"), std::string::npos) << text;
  EXPECT_NE(output_of({"to be", "--params", path, "--word", "be"}).find("nan"), std::string::npos);
  EXPECT_TRUE(
      step_of(json_of({"to be", "--params", path}), "weights").at("values").at(0).at(0).at(0).is_null());
}

TEST_F(ExplainParams, WithWordsThatDoNotFitAreRefused) {
  const Tensor three({3, 4});
  write({{"query.weight", q}, {"key.weight", k}, {"value.weight", v}, {"embedding.weight", three}});
  expect_broken(
      "tensor embedding.weight has shape [3, 4]; [2, 4] is expected for 2 distinct words and projections "
      "from "
      "4");
  const auto write_vocabulary = [&](const std::string& list) {
    write({{"query.weight", q}, {"key.weight", k}, {"value.weight", v}, {"embedding.weight", three}},
          {{"vocabulary", list}});
  };
  write_vocabulary(R"(["be","not","to"])");
  EXPECT_EQ(step_of(json_of({"to be", "--params", path}), "ids").at("values"), Json({2, 0}));
  expect_refusal(2, {"to bee", "--params", path},
                 "the word 'bee' is not in the vocabulary of " + path + ", which has 3 words");
  for (const char* broken :
       {R"(["to","be","not"])", R"(["be","be","to"])", "[1,2,3]", "[]", "{", R"("be")", ""}) {
    write_vocabulary(broken);
    expect_broken("its vocabulary is not a sorted list of distinct words");
  }
}

TEST_F(ExplainParams, AreNeverOverwritten) {
  write({{"query.weight", q}, {"key.weight", k}, {"value.weight", v}});
  const std::string before = heed::test::read_file(path);
  EXPECT_EQ(explain({"to be", "--params", path, "--save", path}).exit_code, 2);
  EXPECT_EQ(heed::test::read_file(path), before);
}

TEST_F(Explain, FailsBeforeItPrintsWhereItCannotSave) {
  expect_refusal(
      1, {"to be", "--save", folder / "none/steps.safetensors"},
      "cannot write '" + folder / "none/steps.safetensors" + "' (--save): No such file or directory");
  CommandInput closed;
  closed.close_output = true;
  expect_refusal(1, {"to be", "--json", "--save", path},
                 "standard output could not be written: Bad file descriptor", closed);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
