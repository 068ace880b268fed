// Hostile GGUF files: each is refused with a message that names it, and needs no more memory than a valid
// file of its size.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gguf_bytes.hpp"
#include "heed/model/model.hpp"
#include "io_support.hpp"
#include "model/gguf/gguf_file.hpp"
#include "support.hpp"

namespace heed::test {
namespace {

using io::detail::GgufFile;
using Edit = std::function<void(GgufBytes&)>;

// The message of load_model() about the file, without the file's name.
std::string refusal_at(const std::string& path) {
  const std::string message = message_of([&] { (void)load_model(path); }), begin = "'" + path + "' ";
  return message.starts_with(begin) ? message.substr(begin.size()) : message;
}

std::string refusal_of(const std::string& bytes) {
  const TemporaryFolder folder;
  write_file(folder / "m.gguf", bytes);
  return refusal_at(folder / "m.gguf");
}

std::string refusal(const Edit& edit) {
  GgufBytes file = gguf_llama();
  edit(file);
  return refusal_of(file.bytes());
}

struct Case {
  const char* message;
  Edit edit;
};
void expect_refused(const std::vector<Case>& cases) {
  for (const Case& one : cases) EXPECT_EQ(refusal(one.edit), one.message);
}
Edit with(const std::string& name, const std::string& value) {
  return [=](GgufBytes& file) { file.set(name, value); };
}
Edit without(const std::string& name) {
  return [=](GgufBytes& file) { file.drop(name); };
}

TEST(GgufErrors, TheFileThatTheOthersBreakIsTaken) {
  EXPECT_EQ(refusal([](GgufBytes& /*file*/) {}), "no error");
}

TEST(GgufErrors, EveryTruncationIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.gguf", whole = gguf_llama().bytes();
  write_file(path, whole);
  for (std::size_t size = whole.size(); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    const std::string message = refusal_at(path);
    const bool spoken = message == "is not a GGUF file" || message.ends_with(", within its header") ||
                        message.ends_with(" beyond the end of the file");
    ASSERT_TRUE(spoken) << size << " bytes: " << message;
  }
}

TEST(GgufErrors, Headers) {
  constexpr std::uint64_t kVast = std::uint64_t{1} << 63;
  expect_refused({
      {"is not a GGUF file", [](GgufBytes& file) { file.magic = "GGUf"; }},
      {"is GGUF of version 1; 2 or 3 is expected", [](GgufBytes& file) { file.version = 1; }},
      {"is GGUF of version 50331648; 2 or 3 is expected",  // 3 in big-endian order
       [](GgufBytes& file) { file.version = 3u << 24; }},
      {"has 65537 tensors and 8 values; at most 65536 of each are expected",
       [](GgufBytes& file) { file.tensor_count = 65537; }},
      {"has 12 tensors and 18446744073709551615 values; at most 65536 of each are expected",
       [](GgufBytes& file) { file.value_count = ~std::uint64_t{0}; }},
      {"has general.alignment 4; a power of two from 8 to 65536 is expected",
       with("general.alignment", u32_value(4))},
      {"has general.alignment 48; a power of two from 8 to 65536 is expected",
       with("general.alignment", u32_value(48))},
      {"has general.alignment 131072; a power of two from 8 to 65536 is expected",
       with("general.alignment", u32_value(131072))},
      {"has 'general.alignment' that is not a whole number", with("general.alignment", text_value("32"))},
      {"has 'general.alignment' that is a list", with("general.alignment", i32s_value({32}))},
      {"has the name of a value of 0 bytes; 1 to 65535 are expected", with("", u32_value(1))},
      {"has the name of a value of 65536 bytes; 1 to 65535 are expected",
       with(std::string(65536, 'a'), u32_value(1))},
      {"has 'x' of kind 13; 0 to 12 is expected", with("x", little(13, 4))},
      {"has 'x' of kind 13; 0 to 12 is expected", with("x", list_value(13, 1, ""))},
      {"has 'x', a list of lists, which heed does not read", with("x", list_value(9, 1, ""))},
      {"has a list that is longer than the file", with("x", list_value(4, kVast / 4, ""))},
      {"has a list that is longer than the file", with("x", list_value(0, kVast, ""))},
      {"has two values named 'x?'",
       [](GgufBytes& file) {
         file.values.insert(file.values.end(), 2, {"x\n", u32_value(1)});
       }},
      {"has no general.architecture", without("general.architecture")},
  });
}

// Lengths that exceed the file. The message ends with the file's size, which the cases leave out.
TEST(GgufErrors, LengthsBeyondTheFile) {
  const std::uint64_t most = ~std::uint64_t{0};
  const std::string vast = little(8, 4) + little(most, 8);
  for (const std::string& value :
       {vast, little(8, 4) + little(most - 7, 8), list_value(8, most, ""), list_value(8, most / 8, ""),
        list_value(0, most / 2, ""), list_value(12, most / 16, ""), list_value(8, 1, little(most, 8))}) {
    GgufBytes file = gguf_llama();
    file.set("x", value);
    const std::string bytes = file.bytes();
    EXPECT_EQ(refusal_of(bytes), "ends at byte " + std::to_string(bytes.size()) + ", within its header");
  }
}

TEST(GgufErrors, Tensors) {
  const auto sized = [](std::vector<std::uint64_t> sizes) -> Edit {
    return [=](GgufBytes& file) { file.tensor("x").sizes = sizes; };
  };
  const auto placed = [](std::uint64_t offset) -> Edit {
    return [=](GgufBytes& file) { file.tensor("output_norm.weight").offset = offset; };
  };
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 32;
  expect_refused({
      {"has the name of a tensor of 0 bytes; 1 to 65535 are expected",
       [](GgufBytes& file) { file.tensor("").sizes = {1}; }},
      {"has a tensor 'x' with 0 axes; 1 to 4 are expected", sized({})},
      {"has a tensor 'x' with 5 axes; 1 to 4 are expected", sized({1, 1, 1, 1, 1})},
      {"has a tensor 'x' with an axis of size 0", sized({2, 0})},
      {"has a tensor 'x' with more elements than 64 bits can count", sized({kLarge, kLarge})},
      {"has a tensor 'x' with more elements than 64 bits can count", sized({kLarge << 31})},
      {"has a tensor 'x' with more elements than 64 bits can count", sized({kLarge, kLarge / 2})},
      {"has two tensors named 'token_embd.weight'",
       [](GgufBytes& file) { file.tensors.push_back(file.tensors.front()); }},
      {"has a tensor 'output_norm.weight' at offset 8, which is not a multiple of the alignment 32",
       placed(8)},
      {"has a tensor 'output_norm.weight' at offset 1048576, beyond the end of the file", placed(1 << 20)},
      {"has a tensor 'output_norm.weight' at offset 18446744073709551584, beyond the end of the file",
       placed(~std::uint64_t{31})},
      {"has a tensor 'output_norm.weight' that shares bytes with another", placed(0)},
      {"has a tensor 'output_norm.weight' of type I32; heed reads F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, "
       "Q2_K, "
       "Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16 and MXFP4",
       [](GgufBytes& file) { file.tensor("output_norm.weight").type = 26; }},
      {"has a tensor 'output_norm.weight' of type number 99; heed reads F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, "
       "Q8_0, "
       "Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16 and MXFP4",
       [](GgufBytes& file) { file.tensor("output_norm.weight").type = 99; }},
      {"has a tensor 'output_norm.weight' with rows of 8 numbers, which is not a multiple of 32",
       [](GgufBytes& file) { file.tensor("output_norm.weight").type = 8; }},
      {"has a tensor 'output.weight' that ends beyond the end of the file",
       [](GgufBytes& file) {
         file.tensor("output.weight").sizes = {8, 1 << 20};
       }},
      {"has a tensor 'output.weight' that ends beyond the end of the file",
       [](GgufBytes& file) {
         file.tensor("output.weight").sizes = {8, std::uint64_t{1} << 59};
       }},
      {"has a tensor 'blk.0.attn_rot_embd.weight' that is not a parameter of the model of its metadata",
       [](GgufBytes& file) {
         file.tensors.push_back({"blk.0.attn_rot_embd.weight", {2}, 0, f32_run(0, 2)});
       }},
      // Names of safetensors tensors are not valid in GGUF.
      {"has a tensor 'model.norm.weight' that is not a parameter of the model of its metadata",
       [](GgufBytes& file) { file.tensor("output_norm.weight").name = "model.norm.weight"; }},
  });
}

TEST(GgufErrors, ShapesThatTheMetadataContradicts) {
  expect_refused({
      {"has no matrix token_embd.weight", without("token_embd.weight")},
      {"has no matrix token_embd.weight",
       [](GgufBytes& file) { file.tensor("token_embd.weight").sizes = {24}; }},
      {"has no tensor blk.0.ffn_up.weight, which the model of its metadata needs",
       without("blk.0.ffn_up.weight")},
      {"has no tensor blk.0.attn_q.weight, which the model of its metadata needs",
       without("blk.0.attn_q.weight")},
      {"has no tensor output_norm.weight, which the model of its metadata needs",
       without("output_norm.weight")},
      {"has no tensor blk.1.attn_norm.weight, which the model of its metadata needs",
       with("llama.block_count", u32_value(2))},
      {"has a tensor 'blk.1.attn_norm.weight' that is not a parameter of the model of its metadata",
       [](GgufBytes& file) {
         file.tensors.push_back({"blk.1.attn_norm.weight", {8}, 0, f32_run(0, 8)});
       }},
      {"has a tensor blk.0.ffn_gate.weight of shape [4, 8]; [5, 8] is expected, as its "
       "metadata says",
       with("llama.feed_forward_length", u32_value(5))},
      {"has a tensor output_norm.weight of shape [2, 4]; [8] is expected, as its metadata says",
       [](GgufBytes& file) {
         file.tensor("output_norm.weight").sizes = {4, 2};
       }},
      {"has a tensor blk.0.attn_q.weight of shape [1, 8, 8]; [8, 8] is expected, as its "
       "metadata says",
       [](GgufBytes& file) {
         file.tensor("blk.0.attn_q.weight").sizes = {8, 8, 1};
       }},
  });
}

TEST(GgufErrors, Metadata) {
  const auto rope = [](const GgufTensorBytes& tensor) -> Edit {
    return [=](GgufBytes& file) { file.tensors.push_back(tensor); };
  };
  const std::string name = "rope_freqs.weight";
  constexpr std::uint32_t kInfinity = 0x7F800000;
  expect_refused({
      {"has general.architecture 'phi2'; heed runs llama, qwen2, qwen3, qwen3moe, gpt-oss, starcoder2, "
       "stablelm, gpt2, gptneox, bert, nomic-bert, olmo2, phi3, smollm3, granite, gemma, gemma2, "
       "gemma3 from GGUF",
       with("general.architecture", text_value("phi2"))},
      {"has 'general.architecture' that is not a string", with("general.architecture", u32_value(1))},
      {"has no llama.expert_used_count", with("llama.expert_count", u32_value(4))},
      {"no error", with("llama.expert_count", u32_value(0))},
      {"has the bias blk.0.attn_q.bias of type Q8_0, whose numbers have another order here; F32, F16 or BF16 "
       "is expected",
       [](GgufBytes& bytes) {
         bytes.tensors.push_back({"blk.0.attn_q.bias", {32}, 8, std::string(34, '\0')});
       }},
      {"has 'llama.attention.clamp_kqv', which heed does not know",
       with("llama.attention.clamp_kqv", f32_value(1))},
      {"has 'llama.attention.causal' that is neither true nor false",
       with("llama.attention.causal", u32_value(1))},
      {"is the first of 3 parts; a name that ends in -00001-of-00003.gguf is expected, since it gives the "
       "names of the "
       "others",
       with("split.count", u32_value(3))},
      {"has split.count 10000; at most 9999 is expected", with("split.count", u32_value(10000))},
      {"no error", with("llama.pooling_type", u32_value(1))},
      {"has no llama.attention.layer_norm_rms_epsilon", without("llama.attention.layer_norm_rms_epsilon")},
      {"has 'llama.attention.layer_norm_rms_epsilon' that is not a finite number",
       with("llama.attention.layer_norm_rms_epsilon", little(6, 4) + little(kInfinity, 4))},
      {"has 'llama.block_count' that is beyond 63 bits",
       with("llama.block_count", little(10, 4) + little(~std::uint64_t{0}, 8))},
      {"has 'llama.block_count' that is not a whole number", with("llama.block_count", f32_value(1))},
      {"has num_hidden_layers 0; 1 to 1024 is expected", with("llama.block_count", u32_value(0))},
      {"has no llama.block_count", without("llama.block_count")},
      {"has no llama.context_length", without("llama.context_length")},
      {"has no llama.embedding_length", without("llama.embedding_length")},
      {"has no llama.feed_forward_length", without("llama.feed_forward_length")},
      {"has no llama.attention.head_count", without("llama.attention.head_count")},
      {"has num_attention_heads -1; 1 to 4096 is expected",
       with("llama.attention.head_count", little(5, 4) + little(~std::uint64_t{0}, 4))},
      {"has num_key_value_heads 3; 1 to 2 is expected", with("llama.attention.head_count_kv", u32_value(3))},
      {"no error", with("llama.vocab_size", u32_value(3))},
      {"has llama.vocab_size 4; token_embd.weight has 3 rows", with("llama.vocab_size", u32_value(4))},
      {"has 'llama.vocab_size' that is not a whole number", with("llama.vocab_size", text_value("3"))},
      {"has llama.rope.dimension_count 2; heads are 4 wide",
       with("llama.rope.dimension_count", u32_value(2))},
      {"has llama.attention.value_length 8; heads are 4 wide",
       with("llama.attention.value_length", u32_value(8))},
      {"has llama.rope.scaling.type 'longrope'; none, linear, yarn or Llama 3's divisors are expected",
       with("llama.rope.scaling.type", text_value("longrope"))},
      {"no error", with("llama.rope.scaling.type", text_value("linear"))},
      {"has factor that is not above 0", with("llama.rope.scaling.factor", f32_value(-1))},
      {"has a tensor rope_freqs.weight that is not at most 4096 numbers of F32",
       rope({name, {2}, 1, little(0, 4)})},
      {"has a tensor rope_freqs.weight that is not at most 4096 numbers of F32",
       rope({name, {4097}, 0, f32_run(0, 4097)})},
      {"has a tensor rope_freqs.weight that is not at most 4096 numbers of F32",
       rope({name, {3}, 0, f32_run(1, 2)})},
      {"no error", rope({name, {2}, 0, of_f32(1) + of_f32(1)})},
      {"has a tensor rope_freqs.weight with 1 number; 2 are expected, one for each rotated pair",
       rope({name, {1}, 0, of_f32(1)})},
      {"has a tensor rope_freqs.weight with 4 numbers; 2 are expected, one for each rotated pair",
       rope({name, {4}, 0, of_f32(1) + of_f32(1) + of_f32(1) + of_f32(1)})},
      {"has a tensor rope_freqs.weight that does not follow Llama 3's rule, the only one that heed supports",
       rope({name, {2}, 0, of_f32(1) + of_f32(2)})},
      {"has a tensor rope_freqs.weight that does not follow Llama 3's rule, the only one that heed supports",
       rope({name, {2}, 0, little(kInfinity, 4) + little(kInfinity + 1, 4)})},
      {"has a tensor 'rope_freqs.weight' that shares bytes with another",
       [&](GgufBytes& file) {
         file.drop("output_norm.weight");
         std::string ones;
         for (int i = 0; i < 8; ++i) ones += of_f32(1);
         file.tensors.insert(file.tensors.begin(), {"output_norm.weight", {8}, 0, ones});
         file.tensors.push_back({name, {2}, 0, "", 0});
       }},
      {"has both rope_freqs.weight and llama.rope.scaling.factor; one is expected",
       [&](GgufBytes& file) {
         file.set("llama.rope.scaling.factor", f32_value(2));
         file.tensors.push_back({name, {2}, 0, of_f32(1) + of_f32(1)});
       }},
  });
}

// Requests values as a type that they do not have.
TEST(GgufErrors, KindsOfValues) {
  GgufBytes file;
  file.set("number", u32_value(1));
  file.set("texts", texts_value({"a"}));
  file.set("numbers", f32s_value({1}));
  file.set("two", little(7, 4) + little(2, 1));
  file.set("nan", little(12, 4) + little(~std::uint64_t{0}, 8));
  const TemporaryFolder folder;
  write_file(folder / "m.gguf", file.bytes());
  const GgufFile read(folder / "m.gguf");
  const auto says = [&](const char* name, const std::string& what, const auto& ask) {
    EXPECT_EQ(message_of([&] { (void)ask(read.at(name)); }),
              "'" + folder / "m.gguf" + "' has '" + name + "' that is " + what);
  };
  using Value = io::detail::GgufValue;
  says("number", "not a list", [](const Value& value) { return value.integers(); });
  says("number", "not a list", [](const Value& value) { return value.reals(); });
  says("number", "not a list", [](const Value& value) { return value.texts(); });
  says("texts", "a list", [](const Value& value) { return value.text(); });
  says("numbers", "a list", [](const Value& value) { return value.real(); });
  says("numbers", "a list", [](const Value& value) { return value.flag(); });
  says("texts", "not a list of whole numbers", [](const Value& value) { return value.integers(); });
  says("texts", "not a list of numbers", [](const Value& value) { return value.reals(); });
  says("numbers", "not a list of strings", [](const Value& value) { return value.texts(); });
  says("numbers", "not a whole number", [](const Value& value) { return value.integers(); });
  says("number", "neither true nor false", [](const Value& value) { return value.flag(); });
  says("two", "neither true nor false", [](const Value& value) { return value.flag(); });
  says("nan", "not a finite number", [](const Value& value) { return value.real(); });
}

void add_byte_level(GgufBytes& file) {
  file.set("tokenizer.ggml.model", text_value("gpt2"));
  file.set("tokenizer.ggml.pre", text_value("gpt-2"));
  file.set("tokenizer.ggml.tokens", texts_value({"a", "b", "ab"}));
  file.set("tokenizer.ggml.merges", texts_value({"a b"}));
}
void add_sentence_piece(GgufBytes& file) {
  file.set("tokenizer.ggml.model", text_value("llama"));
  file.set("tokenizer.ggml.tokens", texts_value({"a", "b", "ab"}));
  file.set("tokenizer.ggml.scores", f32s_value({-1, -2, 0}));
  file.set("tokenizer.ggml.bos_token_id", u32_value(0));
}

TEST(GgufErrors, Tokenizers) {
  const auto bytes = [](const std::string& name, const std::string& value) -> Edit {
    return [=](GgufBytes& file) {
      add_byte_level(file);
      file.set("tokenizer.ggml." + name, value);
    };
  };
  const auto pieces = [](const std::string& name, const std::string& value) -> Edit {
    return [=](GgufBytes& file) {
      add_sentence_piece(file);
      file.set("tokenizer.ggml." + name, value);
    };
  };
  const auto lacking = [](const std::string& name) -> Edit {
    return [=](GgufBytes& file) {
      name == "scores" ? add_sentence_piece(file) : add_byte_level(file);
      file.drop("tokenizer.ggml." + name);
    };
  };
  expect_refused({
      {"no error", add_byte_level},
      {"no error", add_sentence_piece},
      {"has no tokenizer.ggml.tokens", lacking("tokens")},
      {"has no tokenizer.ggml.merges", lacking("merges")},
      {"has no tokenizer.ggml.scores", lacking("scores")},
      {"no error",
       [](GgufBytes& file) {
         add_byte_level(file);
         file.set("llama.vocab_size", u32_value(3));
       }},
      {"has llama.vocab_size 3; tokenizer.ggml.tokens has 2",
       [](GgufBytes& file) {
         add_byte_level(file);
         file.set("llama.vocab_size", u32_value(3));
         file.set("tokenizer.ggml.tokens", texts_value({"a", "b"}));
       }},
      {"has 0 tokens; 1 to 2000000 are expected", bytes("tokens", texts_value({}))},
      {"has 2000001 tokens; 1 to 2000000 are expected",
       bytes("tokens", list_value(8, 2000001, std::string(8 * 2000001, '\0')))},
      {"has the token 'a' twice", bytes("tokens", texts_value({"a", "b", "a"}))},
      {"has a token that is not UTF-8", bytes("tokens", texts_value({"a", "b", "\xFF"}))},
      {"has 2 token types for 3 tokens", bytes("token_type", i32s_value({1, 1}))},
      {"has 4 scores for 3 tokens", pieces("scores", f32s_value({0, 0, 0, 0}))},
      {"has a token of more than 512 bytes",
       pieces("tokens", texts_value({"a", "b", std::string(513, 'c')}))},
      {"has tokenizer.ggml.bos_token_id 3; 0 to 2 is expected", pieces("bos_token_id", u32_value(3))},
      {"has tokenizer.ggml.unknown_token_id 3; 0 to 2 is expected", pieces("unknown_token_id", u32_value(3))},
      {"has tokenizer.ggml.unknown_token_id 100; 0 to 2 is expected", pieces("model", text_value("bert"))},
      {"has 'tokenizer.ggml.add_bos_token' that is neither true nor false",
       bytes("add_bos_token", u32_value(1))},
      {"has no tokenizer.ggml.eos_token_id", bytes("add_eos_token", flag_value(true))},
  });
}

// The model still accepts ids.
TEST(GgufErrors, WithoutATokenizerThatHeedKnowsTextsAreRefused) {
  const auto expect = [](const std::string& lack, const Edit& edit) {
    const TemporaryFolder folder;
    GgufBytes file = gguf_llama();
    edit(file);
    write_file(folder / "m.gguf", file.bytes());
    const Model model = load_model(folder / "m.gguf");
    EXPECT_EQ(message_of([&] { (void)model.tokenize("a"); }),
              "the model " + lack + ", so the text cannot be split into tokens");
    EXPECT_EQ(model.tokenizer(), nullptr);
    const Tensor ids = Tensor::from<std::int64_t>({0, 2}, {2});
    EXPECT_EQ(model.hidden_states(ids).shape(), (Dims{2, 8}));
  };
  const auto set = [](const std::string& name, const std::string& value) -> Edit {
    return [=](GgufBytes& file) {
      add_byte_level(file);
      file.set("tokenizer.ggml." + name, text_value(value));
    };
  };
  expect("has no tokenizer.ggml.model", [](GgufBytes& /*file*/) {});
  expect("has tokenizer.ggml.model 't5', which heed does not know; gpt2, llama or bert is expected",
         set("model", "t5"));
  for (const std::string pre : {"tekken", "gpt-2 phi-2"})
    expect("has tokenizer.ggml.pre '" + pre + "', which heed does not know", set("pre", pre));
  expect("has no tokenizer.ggml.pre, which tells how to split texts", [](GgufBytes& file) {
    add_byte_level(file);
    file.drop("tokenizer.ggml.pre");
  });
  expect("has no tokenizer.ggml.bos_token_id, with which its texts begin", set("pre", "llama-bpe"));
}

// Layers that share their bytes would be copied once each, which would take 65,000 times the file.
TEST(GgufErrors, SharedBytesAreNotCopied) {
  GgufBytes file = gguf_llama();
  constexpr std::uint64_t kRows = 8192;
  file.tensors.push_back({"blk.1.attn_q.weight", {8, kRows}, 0, f32_run(0, 8 * kRows)});
  for (int layer = 2; layer < 1000; ++layer)
    file.tensors.push_back({"blk." + std::to_string(layer) + ".attn_q.weight", {8, kRows}, 0, "", 1024});
  const std::string bytes = file.bytes();
  const auto taken = peak_memory_of([&] {
    EXPECT_EQ(refusal_of(bytes), "has a tensor 'blk.2.attn_q.weight' that shares bytes with another");
  });
  if (!taken) GTEST_SKIP() << kUnmeasured;
  EXPECT_LE(*taken, 8 << 20);  // not 261 MB
}

// a, aa, …, 512 of them, and the same for each letter: 131,000 pairs per letter, of 342 bytes on average.
TEST(GgufErrors, PiecesOfVeryManyPairsAreNotCopied) {
  std::vector<std::string> tokens;
  for (char letter = 'a'; letter <= 'z'; ++letter)
    for (std::size_t size = 1; size <= 512; ++size) tokens.emplace_back(size, letter);
  const auto taken = peak_memory_of([&] {
    EXPECT_EQ(refusal([&](GgufBytes& file) {
                add_sentence_piece(file);
                file.set("tokenizer.ggml.tokens", texts_value(tokens));
                file.set("tokenizer.ggml.scores", f32s_value(std::vector<float>(tokens.size())));
              }),
              "has tokens that can be built from others in more ways than fit into 64 MiB");
  });
  if (!taken) GTEST_SKIP() << kUnmeasured;
  EXPECT_LE(*taken, 256 << 20);
}

}  // namespace
}  // namespace heed::test
