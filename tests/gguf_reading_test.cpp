// A GGUF file becomes a configuration, weights in the order of a folder, a tokenizer. Expectations
// follow from the formulas and layouts of the architectures.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gguf_bytes.hpp"
#include "io_support.hpp"
#include "model/gguf/gguf_architecture.hpp"
#include "model/gguf/gguf_model.hpp"
#include "support.hpp"

namespace heed::test {
namespace {

using detail::gguf_config;
using detail::gguf_tokenizer;
using detail::gguf_weights;
using detail::open_gguf;
using io::detail::GgufFile;
using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int64_t>;
using Numbers = std::vector<float>;

// The Llama under the name of another architecture.
GgufBytes named(const std::string& architecture, const std::string& epsilon = "layer_norm_rms_epsilon") {
  GgufBytes file = gguf_llama();
  for (auto& [name, value] : file.values)
    if (name.starts_with("llama.")) name = architecture + name.substr(5);
  file.drop(architecture + ".attention.layer_norm_rms_epsilon");
  file.set(architecture + ".attention." + epsilon, f32_value(1e-5f));
  file.set("general.architecture", text_value(architecture));
  return file;
}
GgufBytes with(GgufBytes file, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [name, value] : values) file.set(name, value);
  return file;
}
GgufBytes with_tensors(GgufBytes file, const std::vector<GgufTensorBytes>& tensors) {
  for (const GgufTensorBytes& tensor : tensors) {
    file.drop(tensor.name);
    file.tensors.push_back(tensor);
  }
  return file;
}

class GgufReading : public testing::Test {
 protected:
  std::vector<GgufFile> parts(const GgufBytes& file) {
    write_file(path_, file.bytes());
    return open_gguf(path_);
  }
  Json config(const GgufBytes& file) { return gguf_config(parts(file)); }
  std::string without_path(std::string message) {
    for (std::size_t at; (at = message.find(folder_.path() + "/")) != std::string::npos;)
      message.erase(at, folder_.path().size() + 1);
    return message;
  }
  std::string refusal(const GgufBytes& file) {
    return without_path(message_of([&] {
      const std::vector<GgufFile> opened = parts(file);
      (void)gguf_weights(opened, gguf_config(opened));
    }));
  }
  Numbers vector(const GgufBytes& file, const std::string& name, std::int64_t size) {
    const std::vector<GgufFile> opened = parts(file);
    const Tensor read = gguf_weights(opened, gguf_config(opened))->vector(name, size);
    return {read.values<float>().begin(), read.values<float>().end()};
  }
  Numbers matrix(const GgufBytes& file, const std::string& name, std::int64_t rows, std::int64_t columns) {
    const std::vector<GgufFile> opened = parts(file);
    const auto weights = gguf_weights(opened, gguf_config(opened));
    const float* read = weights->matrix(name, rows, columns).plain();
    return {read, read + rows * columns};
  }
  Ids ids(const GgufBytes& file, const std::string& text) {
    const detail::FolderTokenizer found = gguf_tokenizer(parts(file).front(), path_);
    Ids all;
    for (const TextToken& one : found.tokenizer.value().encode(text, true)) all.push_back(one.id);
    return all;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "m.gguf";
};

TEST_F(GgufReading, TextsEndAtTokensThatAreNamedSo) {
  const auto ends = [&](const std::vector<std::string>& tokens) {
    return config(with(gguf_llama(), {{"tokenizer.ggml.tokens", texts_value(tokens)},
                                      {"tokenizer.ggml.eos_token_id", u32_value(0)}}))["eos_token_id"];
  };
  EXPECT_EQ(ends({"</s>", "<|end|>", "a"}), Json::array({0, 1}));
  EXPECT_EQ(ends({"<|end|>", "<end_of_turn>", "<|im_end|>"}), Json::array({0, 1, 2}));
  EXPECT_EQ(ends({"<|return|>", "<|end|>", "<|call|>"}), Json::array({0, 2}));  // gpt-oss
}

TEST_F(GgufReading, WhatTheMetadataLacksHasADefault) {
  GgufBytes file = gguf_llama();
  file.drop("llama.attention.head_count_kv");
  file.drop("output.weight");
  Json made = config(file);
  EXPECT_EQ(made["head_dim"], 4);
  EXPECT_EQ(made["num_key_value_heads"], 2);
  EXPECT_EQ(made["tie_word_embeddings"], true);
  EXPECT_EQ(made["rope_theta"], 10000);
  EXPECT_FALSE(made.contains("rope_scaling") || made.contains("is_causal") || made.contains("bos_token_id"));
  made = config(with_tensors(with(file, {{"llama.attention.key_length", u32_value(2)},
                                         {"llama.attention.causal", flag_value(false)},
                                         {"llama.rope.freq_base", f32_value(500)},
                                         {"general.sampling.penalty_repeat", f32_value(1.5)},
                                         {"tokenizer.ggml.bos_token_id", u32_value(1)},
                                         {"tokenizer.ggml.eos_token_id", u32_value(2)},
                                         {"tokenizer.ggml.eot_token_id", u32_value(3)}}),
                             {{"blk.0.attn_q.bias", {8}, 0, f32_run(0, 8)}}));
  EXPECT_EQ(made["head_dim"], 2);
  EXPECT_EQ(made["is_causal"], false);
  EXPECT_EQ(made["rope_theta"], 500);
  EXPECT_EQ(made["bos_token_id"], 1);
  EXPECT_EQ(made["repetition_penalty"], 1.5);
  EXPECT_EQ(made["eos_token_id"], Json::array({2, 3}));
  EXPECT_EQ(made["attention_bias"], true);
  EXPECT_EQ(config(with(file, {{"llama.attention.head_count", u32_value(0)}}))["head_dim"],
            8);  // refused later
}

// Such counts are refused when the model takes them; nothing divides by them or overflows before.
TEST_F(GgufReading, CountsOfHeadsMayBeAnything) {
  const std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::uint64_t heads :
       {std::uint64_t{0}, std::uint64_t{1} << 62, most, most + 1, ~std::uint64_t{0}})
    for (const char* architecture : {"llama", "gemma2", "gemma3", "gptneox"}) {
      const std::string root = architecture;
      GgufBytes file = root == "gptneox" ? named(root, "layer_norm_epsilon")
                       : root == "llama" ? gguf_llama()
                                         : named(root);
      file.set(root + ".block_count", u32_value(root == "gemma3" ? 62 : 46));  // the largest models
      file.set(root + ".attention.head_count", little(11, 4) + little(heads, 8));
      file.set(root + ".attention.head_count_kv", little(11, 4) + little(heads, 8));
      file.set(root + ".attention.key_length", u32_value(4));
      file.set(root + ".attention.value_length", u32_value(4));
      file.set("gptneox.use_parallel_residual", flag_value(true));
      const std::string message = refusal(file);
      EXPECT_EQ(message, root == "gptneox" ? "'m.gguf' has heads that together are not as wide as the stream"
                                           : "no error");
    }
}

TEST_F(GgufReading, ScalingsOfPositions) {
  const auto scaling = [&](const std::vector<std::pair<std::string, std::string>>& values) {
    GgufBytes file = gguf_llama();
    for (const auto& [name, value] : values) file.set("llama.rope." + name, value);
    const Json made = config(file);
    return made.contains("rope_scaling") ? made["rope_scaling"] : Json();
  };
  const auto type = [](const char* name) {
    return std::pair<std::string, std::string>{"scaling.type", text_value(name)};
  };
  const std::pair<std::string, std::string> twice = {"scaling.factor", f32_value(2)};
  EXPECT_EQ(scaling({twice}), Json({{"rope_type", "linear"}, {"factor", 2.0}}));
  EXPECT_EQ(scaling({{"scale_linear", f32_value(4)}}), Json({{"rope_type", "linear"}, {"factor", 4.0}}));
  EXPECT_EQ(scaling({{"scaling.factor", f32_value(0)}}), Json());
  EXPECT_EQ(scaling({type("none"), twice}), Json());
  EXPECT_EQ(scaling({type("yarn"), twice}), Json({{"rope_type", "yarn"},
                                                  {"factor", 2.0},
                                                  {"attention_factor", 0.1 * std::log(2) + 1},
                                                  {"beta_fast", 32.0},
                                                  {"beta_slow", 1.0},
                                                  {"original_max_position_embeddings", 16}}));
  EXPECT_EQ(scaling({type("yarn"),
                     {"scaling.factor", f32_value(0.5f)},
                     {"scaling.attn_factor", f32_value(2)},
                     {"scaling.yarn_beta_fast", f32_value(8)},
                     {"scaling.yarn_beta_slow", f32_value(3)},
                     {"scaling.original_context_length", u32_value(4)}}),
            Json({{"rope_type", "yarn"},
                  {"factor", 0.5},
                  {"attention_factor", 2.0},
                  {"beta_fast", 8.0},
                  {"beta_slow", 3.0},
                  {"original_max_position_embeddings", 4}}));
  EXPECT_EQ(refusal(with(gguf_llama(), {{"llama.rope.scaling.attn_factor", f32_value(2)}})),
            "'m.gguf' has llama.rope.scaling.attn_factor without YaRN, which heed does not support");
}

// At base 1e6 and four pairs, waves are 6, 199, 6283 and 198692 positions long.
TEST_F(GgufReading, DivisorsOfLlama3AreItsRule) {
  const double smooth = (8192 / (2 * std::numbers::pi * 1000) - 1) / 3,
               between = 1 / ((1 - smooth) / 8 + smooth);
  const GgufBytes file =
      with_tensors(with(gguf_llama(), {{"llama.rope.freq_base", f32_value(1e6f)},
                                       {"llama.attention.key_length", u32_value(8)},
                                       {"llama.attention.value_length", u32_value(8)},
                                       {"llama.rope.dimension_count", u32_value(8)}}),
                   {{"rope_freqs.weight",
                     {4},
                     0,
                     of_f32(1) + of_f32(1) + of_f32(static_cast<float>(between)) + of_f32(8)}});
  EXPECT_EQ(config(file)["rope_scaling"], Json({{"rope_type", "llama3"},
                                                {"factor", 8.0},
                                                {"low_freq_factor", 1.0},
                                                {"high_freq_factor", 4.0},
                                                {"original_max_position_embeddings", 8192}}));
}

TEST_F(GgufReading, FactorsOfLongRope) {
  const GgufTensorBytes longer = {"rope_factors_long.weight", {2}, 0, of_f32(2) + of_f32(3)},
                        shorter = {"rope_factors_short.weight", {2}, 0, of_f32(1) + of_f32(1.5f)};
  const GgufBytes file = with(named("phi3"), {{"phi3.rope.scaling.original_context_length", u32_value(8)},
                                              {"phi3.rope.dimension_count", u32_value(2)}});
  Json made = config(with_tensors(file, {longer, shorter}));
  EXPECT_EQ(made["rope_scaling"], Json({{"rope_type", "longrope"},
                                        {"long_factor", {2.0, 3.0}},
                                        {"short_factor", {1.0, 1.5}},
                                        {"attention_factor", 1}}));
  EXPECT_EQ(made["original_max_position_embeddings"], 8);
  EXPECT_EQ(config(named("phi3"))["partial_rotary_factor"], 1);
  made = config(with_tensors(with(file, {{"phi3.rope.scaling.attn_factor", f32_value(1.25f)},
                                         {"phi3.rope.scaling.factor", f32_value(1)}}),
                             {longer, shorter}));
  EXPECT_EQ(made["rope_scaling"]["attention_factor"], 1.25);
  EXPECT_EQ(refusal(with_tensors(file, {longer})), "'m.gguf' has no tensor rope_factors_short.weight");
  EXPECT_EQ(refusal(with_tensors(file, {shorter})), "'m.gguf' has no tensor rope_factors_long.weight");
  EXPECT_EQ(
      refusal(with_tensors(with(file, {{"phi3.rope.scaling.factor", f32_value(2)}}), {longer, shorter})),
      "'m.gguf' has both rope_factors_long.weight and phi3.rope.scaling.factor; one is expected");
}

// A folder gives the rotated numbers of a head as int(width * share); in f64, 88 * (30. / 88) is below 30.
TEST_F(GgufReading, AsManyNumbersOfAHeadRotateAsTheFileSays) {
  for (const std::uint32_t width : {4u, 88u, 100u, 104u})
    for (std::uint32_t rotated = 2; rotated <= width; rotated += 2) {
      const Json made = config(with(named("phi3"), {{"phi3.attention.key_length", u32_value(width)},
                                                    {"phi3.attention.value_length", u32_value(width)},
                                                    {"phi3.rope.dimension_count", u32_value(rotated)}}));
      EXPECT_EQ(static_cast<std::uint32_t>(width * made["partial_rotary_factor"].get<double>()), rotated);
      EXPECT_LE(made["partial_rotary_factor"], 1);
    }
}

// Tensors may lie in the file in another order than they are listed; no two may share a byte.
TEST_F(GgufReading, TensorsLieInAnyOrder) {
  GgufBytes file = gguf_llama();
  const auto at = [&](std::uint64_t embedding, std::uint64_t norm) {
    file.tensor("token_embd.weight").offset = embedding;  // 96 bytes; the next is the norm's, of 32
    file.tensor("blk.0.attn_norm.weight").offset = norm;
    return file;
  };
  EXPECT_EQ(vector(at(32, 0), "model.layers.0.input_layernorm.weight", 8), (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(matrix(at(32, 0), "model.embed_tokens.weight", 3, 8).back(), 31);
  EXPECT_EQ(refusal(at(0, 64)),
            "'m.gguf' has a tensor 'blk.0.attn_norm.weight' that shares bytes with another");
  EXPECT_EQ(refusal(at(32, 32)),
            "'m.gguf' has a tensor 'blk.0.attn_norm.weight' that shares bytes with another");
}

// Only a bias whose numbers have another order in the file must be of single numbers.
TEST_F(GgufReading, ABiasOfAQuantisedTypeIsReadWhereItsOrderStays) {
  std::string bytes = little(0x3C00, 2);  // the scale: 1 in f16
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(i);
  const Numbers read = vector(with_tensors(gguf_llama(), {{"blk.0.attn_v.bias", {32}, 8, bytes}}),
                              "model.layers.0.self_attn.v_proj.bias", 32);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(read[i], static_cast<float>(i));
}

TEST_F(GgufReading, NormsOfGemmaAreStoredWithOneMore) {
  const Numbers read = vector(named("gemma"), "model.norm.weight", 8),
                llama = vector(gguf_llama(), "model.norm.weight", 8);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(read[i], llama[i] - 1);
  EXPECT_EQ(
      refusal(with_tensors(named("gemma"), {{"output_norm.weight", {32}, 8, std::string(34, '\0')}})),
      "'m.gguf' has a tensor 'output_norm.weight' of type Q8_0; F32, F16 or BF16 is expected for a norm");
}

// In the file all queries come first, then all keys, then all values; in a folder each head has its own
// three.
TEST_F(GgufReading, RowsOfGptNeoxAreThoseOfEachHead) {
  GgufBytes file = named("gptneox", "layer_norm_epsilon");
  file.set("gptneox.use_parallel_residual", flag_value(true));
  const auto query_key_value = [&](std::uint64_t rows, const std::vector<std::uint64_t>& sizes) {
    return with_tensors(file, {{"blk.0.attn_qkv.weight", sizes, 0, f32_run(0, rows)}});
  };
  const std::string name = "gpt_neox.layers.0.attention.query_key_value.weight";
  EXPECT_EQ(matrix(query_key_value(6, {1, 6}), name, 6, 1), (Numbers{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(matrix(query_key_value(7, {1, 7}), name, 7, 1), (Numbers{0, 1, 2, 3, 4, 5, 6}));  // refused later
  EXPECT_EQ(vector(with_tensors(file, {{"blk.0.attn_qkv.bias", {6}, 0, f32_run(0, 6)}}),
                   "gpt_neox.layers.0.attention.query_key_value.bias", 6),
            (Numbers{0, 2, 4, 1, 3, 5}));
  file.set("gptneox.embedding_length", u32_value(9));
  EXPECT_EQ(refusal(file), "'m.gguf' has heads that together are not as wide as the stream");
}

TEST_F(GgufReading, ExpertsAreMatricesOfTheirOwn) {
  const GgufBytes file = with(named("qwen3moe"), {{"qwen3moe.expert_count", u32_value(2)},
                                                  {"qwen3moe.expert_used_count", u32_value(1)},
                                                  {"qwen3moe.expert_feed_forward_length", u32_value(1)}});
  const auto gates = [&](const std::vector<std::uint64_t>& sizes, std::uint64_t count) {
    return with_tensors(file, {{"blk.0.ffn_gate_exps.weight", sizes, 0, f32_run(0, count)}});
  };
  EXPECT_EQ(matrix(gates({2, 1, 2}, 4), "model.layers.0.mlp.experts.1.gate_proj.weight", 1, 2),
            (Numbers{2, 3}));
  EXPECT_EQ(refusal(gates({2, 2}, 4)),
            "'m.gguf' has a tensor 'blk.0.ffn_gate_exps.weight' of 2 sizes; 3 are expected for all experts");
  EXPECT_EQ(refusal(gates({1, 1, 1025}, 1025)),
            "'m.gguf' has a tensor 'blk.0.ffn_gate_exps.weight' of 1025 experts; at most 1024 are expected");
  EXPECT_EQ(vector(with_tensors(file, {{"blk.0.ffn_gate_exps.bias", {2, 2}, 0, f32_run(0, 4)}}),
                   "model.layers.0.mlp.experts.1.gate_proj.bias", 2),
            (Numbers{2, 3}));
  EXPECT_EQ(refusal(with(named("qwen2"), {{"qwen2.expert_count", u32_value(4)}})),
            "'m.gguf' has qwen2.expert_count 4; at most 0 is expected");
}

TEST_F(GgufReading, NamesOfOthersAreKnownByTheirBeginning) {
  GgufBytes file = with(gguf_llama(), {{"my.note", u32_value(1)}, {"quantize.imatrix", u32_value(1)}});
  EXPECT_EQ(detail::unknown_in_gguf(parts(file).front()), std::vector<std::string>{"my.note"});
  for (const char* name : {"blk", "blk.0.weight", "blk.0.attn_q.scale", "rope.weight", "blk.*.attn_q.weight",
                           "blk.0x.attn_q.weight"})
    EXPECT_EQ(refusal(with_tensors(gguf_llama(), {{name, {1}, 0, of_f32(1)}})),
              "'m.gguf' has a tensor '" + std::string(name) +
                  "' that is not a parameter of the model of its metadata");
}

// Messages name tensors as the file does.
TEST_F(GgufReading, WeightsThatTheModelLacksHaveTheNamesOfTheFile) {
  for (const auto& [architecture, name, in_file] :
       {std::tuple{"llama", "model.layers.12.self_attn.q_proj.weight", "blk.12.attn_q.weight"},
        {"llama", "lm_head.weight", "output.weight"},
        {"gpt-oss", "model.layers.3.self_attn.sinks", "blk.3.attn_sinks.weight"},
        {"gpt-oss", "model.layers.3.mlp.experts.31.up_proj.bias", "blk.3.ffn_up_exps.bias"},
        {"gpt-oss", "model.layers.3.mlp.experts.x.up_proj.bias", "model.layers.3.mlp.experts.x.up_proj.bias"},
        {"gpt-oss", "model.layers.3.mlp.experts.1.down.bias", "model.layers.3.mlp.experts.1.down.bias"},
        {"gptneox", "gpt_neox.layers.0.attention.dense.bias", "blk.0.attn_output.bias"},
        {"llama", "model.elsewhere.weight", "model.elsewhere.weight"}}) {
    GgufBytes file;
    file.set("general.architecture", text_value(architecture));
    EXPECT_EQ(detail::gguf_name(detail::architecture_of(parts(file).front()), name), in_file);
  }
}

// llama.cpp has a default for each value that a file lacks (llama-model.cpp).
TEST_F(GgufReading, ValuesOfArchitecturesHaveTheDefaultsOfLlamaCpp) {
  const auto made = [&](const std::string& name,
                        const std::vector<std::pair<std::string, std::string>>& values) {
    GgufBytes file = named(name);
    for (const auto& [key, value] : values) file.set(name + "." + key, value);
    return config(file);
  };
  Json gemma = made("gemma3", {});
  EXPECT_TRUE(gemma["sliding_window"].is_null());
  EXPECT_EQ(gemma["sliding_window_pattern"], 1);
  EXPECT_EQ(gemma["rope_local_base_freq"], 10000);
  EXPECT_EQ(gemma["query_pre_attn_scalar"], 4);  // the width of a head
  EXPECT_FALSE(gemma.contains("final_logit_softcapping"));
  gemma = made("gemma3", {{"attention.sliding_window", u32_value(512)},
                          {"final_logit_softcapping", f32_value(30)},
                          {"attention.key_length", u32_value(2)},
                          {"attention.value_length", u32_value(2)},
                          {"block_count", u32_value(62)}});
  EXPECT_EQ(gemma["sliding_window"], 512);
  EXPECT_EQ(gemma["sliding_window_pattern"], 6);
  EXPECT_EQ(gemma["final_logit_softcapping"], 30);
  EXPECT_EQ(gemma["query_pre_attn_scalar"], 4);  // the largest: the stream's width over the heads
  Json granite = made("granite", {{"embedding_scale", f32_value(12)}, {"logit_scale", f32_value(0)}});
  EXPECT_EQ(granite["attention_multiplier"], 0.5);
  EXPECT_EQ(granite["embedding_multiplier"], 12);
  EXPECT_EQ(granite["residual_multiplier"], 1);
  EXPECT_EQ(granite["logits_scaling"], 1);
  EXPECT_FALSE(made("phi3", {}).contains("sliding_window"));
  EXPECT_EQ(made("phi3", {{"attention.sliding_window", u32_value(7)}})["sliding_window"], 7);
  const std::vector<std::pair<std::string, std::string>> experts = {
      {"expert_count", u32_value(4)},
      {"expert_used_count", u32_value(2)},
      {"expert_feed_forward_length", u32_value(3)},
      {"attention.sliding_window", u32_value(128)}};
  EXPECT_EQ(made("gpt-oss", experts)["rope_scaling"], Json({{"rope_type", "default"}, {"truncate", false}}));
  EXPECT_EQ(made("gpt-oss", experts)["num_local_experts"], 4);
}

TEST_F(GgufReading, EncodersAreCausalUnlessTheFileSaysNot) {
  const auto made = [&](const std::vector<GgufTensorBytes>& tensors) {
    GgufBytes file = with_tensors(named("nomic-bert", "layer_norm_epsilon"), tensors);
    if (!tensors.empty()) file.set("nomic-bert.attention.causal", flag_value(false));
    return config(file);
  };
  EXPECT_EQ(made({})["is_causal"], true);  // refused later
  EXPECT_EQ(made({})["type_vocab_size"], 0);
  const Json two = made({{"token_types.weight", {8, 2}, 0, f32_run(0, 16)}});
  EXPECT_EQ(two["is_causal"], false);
  EXPECT_EQ(two["type_vocab_size"], 2);
  EXPECT_EQ(made({{"token_types.weight", {16}, 0, f32_run(0, 16)}})["type_vocab_size"], 0);  // refused later
}

TEST_F(GgufReading, SinksAreNumbersOfAnAttention) {
  const std::vector<std::pair<std::string, std::string>> values = {
      {"gpt-oss.expert_count", u32_value(1)},
      {"gpt-oss.expert_used_count", u32_value(1)},
      {"gpt-oss.expert_feed_forward_length", u32_value(3)},
      {"gpt-oss.attention.sliding_window", u32_value(128)},
      {"gpt-oss.rope.scaling.type", text_value("yarn")},
      {"gpt-oss.rope.scaling.factor", f32_value(32)}};
  GgufBytes file =
      with_tensors(with(named("gpt-oss"), values), {{"blk.0.attn_sinks.weight", {2}, 0, f32_run(5, 2)}});
  for (const char* other : {"norm", "gate", "up", "down"})
    file.drop("blk.0.ffn_" + std::string(other) + ".weight");
  EXPECT_EQ(vector(file, "model.layers.0.self_attn.sinks", 2), (Numbers{5, 6}));
  EXPECT_EQ(config(file)["rope_scaling"]["rope_type"], "yarn");
  EXPECT_EQ(config(file)["rope_scaling"]["truncate"], false);
}

TEST_F(GgufReading, PartsOfASplitFileAreOpenedByTheFirst) {
  const auto part = [](std::uint32_t number, std::uint32_t count) {
    GgufBytes file;
    file.set("general.architecture", text_value("llama"));
    file.set("split.no", u32_value(number));
    file.set("split.count", u32_value(count));
    return file.bytes();
  };
  const auto write = [&](int at, const std::string& bytes) {
    write_file(folder_ / "m-0000" + std::to_string(at) + "-of-00002.gguf", bytes);
  };
  const auto opened = [&](int at) {
    return without_path(
        message_of([&] { (void)open_gguf(folder_ / "m-0000" + std::to_string(at) + "-of-00002.gguf"); }));
  };
  write(1, part(0, 2));
  write(2, part(1, 2));
  EXPECT_EQ(open_gguf(folder_ / "m-00001-of-00002.gguf").size(), 2u);
  EXPECT_EQ(opened(2),
            "'m-00002-of-00002.gguf' is part 2 of 2; the first part, whose name ends in "
            "-00001-of-00002.gguf, is expected");
  for (const std::string& other : {part(0, 2), part(1, 3), gguf_llama().bytes()}) {
    write(2, other);
    EXPECT_EQ(opened(1), "'m-00002-of-00002.gguf' is not part 2 of 2");
  }
}

GgufBytes byte_level(const std::string& pre, const std::vector<std::string>& tokens,
                     const std::vector<std::string>& merges) {
  return with(gguf_llama(), {{"tokenizer.ggml.model", text_value("gpt2")},
                             {"tokenizer.ggml.pre", text_value(pre)},
                             {"tokenizer.ggml.tokens", texts_value(tokens)},
                             {"tokenizer.ggml.merges", texts_value(merges)}});
}

TEST_F(GgufReading, PreTokenizersCutTexts) {
  const std::vector<std::string> digits = {"1", "2", "12"};
  EXPECT_EQ(ids(byte_level("gpt-2", digits, {"1 2"}), "12"), Ids{2});
  EXPECT_EQ(ids(byte_level("smollm", digits, {"1 2"}), "12"), (Ids{0, 1}));
  EXPECT_EQ(ids(byte_level("stablelm2", digits, {"1 2"}), "12"), (Ids{0, 1}));
  const GgufBytes llama =
      with(byte_level("llama-bpe", {"a", "b", "ab"}, {}), {{"tokenizer.ggml.bos_token_id", u32_value(0)}});
  EXPECT_EQ(ids(llama, "ab"), (Ids{0, 2}));  // a piece that is a token is not built from others
  EXPECT_EQ(ids(with(llama, {{"tokenizer.ggml.add_bos_token", flag_value(false)},
                             {"tokenizer.ggml.add_eos_token", flag_value(true)},
                             {"tokenizer.ggml.eos_token_id", u32_value(1)}}),
                "ab"),
            (Ids{2, 1}));
  const std::vector<std::string> accents = {"Ã", "©"};  // bytes C3 and A9
  EXPECT_EQ(ids(byte_level("qwen2", accents, {}), "e\u0301"), (Ids{0, 1}));
}

TEST_F(GgufReading, PiecesOfSentencePieceMergeByScore) {
  GgufBytes file =
      with(gguf_llama(),
           {{"tokenizer.ggml.model", text_value("llama")},
            {"tokenizer.ggml.tokens", texts_value({"<unk>", "a", "b", "ab", "▁", "▁a", "<s>", "bb", "ac"})},
            {"tokenizer.ggml.scores", f32s_value({0, -3, -3, -2, -3, -1, 0, -1, 0})},
            {"tokenizer.ggml.token_type", i32s_value({2, 1, 1, 1, 1, 1, 3, 4, 1})},
            {"tokenizer.ggml.add_bos_token", flag_value(false)}});
  EXPECT_EQ(ids(file, "ab"), (Ids{5, 2}));         // "▁a" has the higher score
  EXPECT_EQ(ids(file, "ac"), (Ids{5, 0}));         // no two tokens make "ac"
  EXPECT_EQ(ids(file, "a<s>bb"), (Ids{5, 6, 7}));  // tokens of other types are found in the text
  file.set("tokenizer.ggml.add_space_prefix", flag_value(false));
  EXPECT_EQ(ids(file, "ab"), Ids{3});
  file.drop("tokenizer.ggml.add_bos_token");
  file.set("tokenizer.ggml.bos_token_id", u32_value(6));
  EXPECT_EQ(ids(file, "ab"), (Ids{6, 3}));
}

TEST_F(GgufReading, Phi3sSpecialTokensTakeTheSpacesBehindThem) {
  GgufBytes file =
      with(gguf_llama(), {{"tokenizer.ggml.model", text_value("llama")},
                          {"tokenizer.ggml.tokens", texts_value({"<unk>", "a", "▁", "▁a", "<s>", "<|end|>"})},
                          {"tokenizer.ggml.scores", f32s_value({0, -3, -3, -1, 0, 0})},
                          {"tokenizer.ggml.token_type", i32s_value({2, 1, 1, 1, 3, 3})},
                          {"tokenizer.ggml.add_bos_token", flag_value(false)}});
  file.set("general.name", text_value("Phi-2"));
  EXPECT_EQ(ids(file, "a<|end|> a<s> a"), (Ids{3, 5, 2, 3, 4, 2, 3}));
  for (const char* name : {"Phi-3 Mini", "PHI3"}) {
    file.set("general.name", text_value(name));
    EXPECT_EQ(ids(file, "a<|end|>  a<s> a"), (Ids{3, 5, 3, 4, 2, 3}));
  }
  for (const char* kept : {"<unk>", "<|endoftext|>"}) {
    file.set("tokenizer.ggml.tokens", texts_value({"?", "a", "▁", "▁a", kept, "<|end|>"}));
    EXPECT_EQ(ids(file, "a" + std::string(kept) + " a"), (Ids{3, 4, 2, 3}));
  }
}

TEST_F(GgufReading, WordPiecesOfBert) {
  GgufBytes file = with(gguf_llama(),
                        {{"tokenizer.ggml.model", text_value("bert")},
                         {"tokenizer.ggml.tokens", texts_value({"[UNK]", "▁a", "b", "[CLS]", "[SEP]", "[x"})},
                         {"tokenizer.ggml.token_type", i32s_value({1, 1, 1, 3, 1, 1})},
                         {"tokenizer.ggml.unknown_token_id", u32_value(0)},
                         {"tokenizer.ggml.bos_token_id", u32_value(3)},
                         {"tokenizer.ggml.seperator_token_id", u32_value(4)}});
  EXPECT_EQ(ids(file, "AB c"), (Ids{3, 1, 2, 0, 4}));
  file.set("tokenizer.ggml.cls_token_id", u32_value(4));
  EXPECT_EQ(ids(file, "a"), (Ids{4, 1, 4}));
}

TEST_F(GgufReading, ATemplateComesWithItsTokens) {
  const auto chat = [&](const std::string& text) {
    const GgufBytes file = with(byte_level("gpt-2", {"a", "b"}, {}),
                                {{"tokenizer.chat_template", text_value(text)},
                                 {"tokenizer.ggml.bos_token_id", u32_value(1)},
                                 {"tokenizer.ggml.eos_token_id", u32_value(2)},
                                 {"tokenizer.ggml.padding_token_id", little(5, 4) + little(~0u, 4)}});
    return gguf_tokenizer(parts(file).front(), path_).chat;
  };
  EXPECT_EQ(chat("{{ x }}").text, "{{ x }}");
  EXPECT_EQ(chat("").tokens,
            (std::vector<std::pair<std::string, std::string>>{{"bos_token", "b"}}));  // the others are none
  EXPECT_EQ(without_path(message_of([&] { (void)chat("\xFF"); })),
            "'m.gguf' has a tokenizer.chat_template that is not UTF-8");
}

}  // namespace
}  // namespace heed::test
