// Reading GGUF files: metadata values, numbers of each type compared with the format's definition, and the
// order of rows. python/tests/test_gguf.py compares logits and tokens with other libraries.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "each_target.hpp"
#include "gguf_bytes.hpp"
#include "heed/attention/targets.hpp"
#include "heed/io/tensors.hpp"
#include "heed/model/generate.hpp"
#include "heed/model/model.hpp"
#include "io_support.hpp"
#include "model/files/weights.hpp"
#include "model/gguf/ggml_types.hpp"
#include "model/gguf/gguf_file.hpp"
#include "model/gguf/gguf_model.hpp"
#include "support.hpp"

namespace heed::test {
namespace {

using io::detail::GgufFile;
using Row = std::vector<float>;

std::shared_ptr<detail::Weights> weights_of(const GgufBytes& bytes) {
  const TemporaryFolder folder;
  GgufBytes complete = bytes;
  complete.set("general.architecture", heed::test::text_value("llama"));
  write_file(folder / "m.gguf", complete.bytes());
  const GgufFile file(folder / "m.gguf");
  return detail::gguf_weights(
      {&file, 1}, {{"model_type", "llama"}, {"num_attention_heads", 2}, {"num_key_value_heads", 1}});
}

std::vector<Row> rows_of(detail::Weights& weights, const std::string& name, std::int64_t rows,
                         std::int64_t columns) {
  const detail::WeightMatrix matrix = weights.matrix(name, rows, columns);
  std::vector<Row> all(static_cast<std::size_t>(rows), Row(static_cast<std::size_t>(columns)));
  for (std::size_t i = 0; i < all.size(); ++i)
    read_weight_row(matrix, static_cast<std::int64_t>(i), all[i].data());
  return all;
}

// Reads a matrix of 2 rows.
std::vector<Row> read_as(std::uint32_t type, std::uint64_t columns, const std::string& data) {
  GgufBytes file;
  file.tensors.push_back({"blk.0.ffn_up.weight", {columns, 2}, type, data});
  return rows_of(*weights_of(file), "model.layers.0.mlp.up_proj.weight", 2,
                 static_cast<std::int64_t>(columns));
}

// Scales that f16 holds exactly, as values and as bits.
struct Half {
  float value;
  std::uint16_t bits;
};
constexpr std::array<Half, 4> kHalves = {
    {{0.25f, 0x3400}, {-1.5f, 0xBE00}, {0x1p-24f, 0x0001}, {2048.0f, 0x6800}}};
std::string of(const Half& half) { return little(half.bits, 2); }

// Irregular codes, so that exchanged numbers would show.
int code_of(int place, int most) { return (place * place * 7 + place * 13 + place / 16) % (most + 1); }

// All products below are exact: small whole numbers times powers of two, or 1.5. Q4_K rounds its difference.
TEST(Gguf, ReadsNumbersOfThreeWidths) {
  const std::vector<Row> expected = {{1, -2, 0.5f}, {0, 0x1p-14f, -96}};
  EXPECT_EQ(read_as(0, 3, of_f32(1) + of_f32(-2) + of_f32(0.5f) + of_f32(0) + of_f32(0x1p-14f) + of_f32(-96)),
            expected);
  std::string half, brain;
  for (const unsigned bits : {0x3C00u, 0xC000u, 0x3800u, 0u, 0x0400u, 0xD600u}) half += little(bits, 2);
  for (const unsigned bits : {0x3F80u, 0xC000u, 0x3F00u, 0u, 0x3880u, 0xC2C0u}) brain += little(bits, 2);
  EXPECT_EQ(read_as(1, 3, half), expected);
  EXPECT_EQ(read_as(30, 3, brain), expected);
}

// d and 32 signed bytes q: d q.
TEST(Gguf, ReadsQ8_0) {
  std::vector<Row> expected(2);
  std::string data;
  for (std::size_t block = 0; block < 4; ++block) {
    data += of(kHalves[block]);
    for (int i = 0; i < 32; ++i) {
      const int code = code_of(i + 5 * static_cast<int>(block), 255) - 128;
      data += little(static_cast<std::uint64_t>(code), 1);
      expected[block / 2].push_back(kHalves[block].value * static_cast<float>(code));
    }
  }
  EXPECT_EQ(read_as(8, 64, data), expected);
}

// d and 16 bytes. Number i < 16 is d (q - 8) with q from the low half of byte i; number i + 16 uses its high
// half.
TEST(Gguf, ReadsQ4_0) {
  std::vector<Row> expected(2);
  std::string data;
  for (std::size_t block = 0; block < 4; ++block) {
    std::array<std::uint8_t, 16> bytes = {};
    for (int i = 0; i < 32; ++i) {
      const int code = code_of(i + 5 * static_cast<int>(block), 15);
      bytes[static_cast<std::size_t>(i % 16)] |= static_cast<std::uint8_t>(code << (i / 16 * 4));
      expected[block / 2].push_back(kHalves[block].value * static_cast<float>(code - 8));
    }
    data += of(kHalves[block]);
    for (const std::uint8_t byte : bytes) data += little(byte, 1);
  }
  EXPECT_EQ(read_as(2, 64, data), expected);
}

// Blocks of random bytes, and what PyPI's gguf reads from them (tests/python/make_ggml_golden.py). Bit for
// bit, on every target of this machine: each number is a few products of f32 in a fixed order.
TEST(Gguf, ReadsTheNumbersOfTheGgufPackage) {
  const heed::io::SafetensorsReader golden(std::string(HEED_TEST_DATA) + "/ggml_blocks.safetensors");
  int types = 0;
  for (const std::string& name : golden.names()) {
    if (!name.ends_with(".type")) continue;
    const std::string type = name.substr(0, name.size() - 5);
    const auto number = static_cast<std::uint32_t>(golden.read(name).at<std::int64_t>(0));
    EXPECT_EQ(heed::detail::name_of_ggml_type(number), type);
    const heed::detail::WeightFormat* format = heed::detail::format_of_ggml_type(number);
    ASSERT_NE(format, nullptr) << type;
    EXPECT_EQ(format->name, type);
    const heed::Tensor bytes = golden.read(type + ".bytes"), numbers = golden.read(type + ".numbers");
    ASSERT_EQ(bytes.count(), heed::detail::bytes_of(*format, numbers.count())) << type;
    heed::test::EachTarget each;
    for (const std::string& target : each.available()) {
      heed::set_target(target);
      Row found(static_cast<std::size_t>(numbers.count()));
      heed::detail::read_numbers(*format, bytes.values<std::uint8_t>().data(), numbers.count(), found.data());
      for (std::size_t i = 0; i < found.size(); ++i) {
        const float expected = numbers.values<float>()[i];
        if (std::isnan(expected) && std::isnan(found[i])) continue;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected))
            << target << " " << type << " " << i;
      }
    }
    ++types;
  }
  EXPECT_EQ(types, 13);
}

// d, m, and for each of 8 parts of 32 numbers a scale s and a minimum l of 6 bits: d s q - m l. Bytes 0-3
// hold s of parts 0-3 and the two high bits of s of parts 4-7; bytes 4-7 hold the same of l. Bytes 8-11 hold
// the four low bits of s (low half) and l (high half) of parts 4-7.
TEST(Gguf, ReadsQ4K) {
  std::vector<Row> expected(2);
  std::string data;
  for (std::size_t block = 0; block < 2; ++block) {
    const Half d = kHalves[block], m = kHalves[block + 2];
    std::array<unsigned, 12> scales = {};
    std::array<unsigned, 128> codes = {};
    for (unsigned part = 0; part < 8; ++part) {
      const auto s = static_cast<unsigned>(code_of(static_cast<int>(part) + 3, 63)), l = (s * 5 + 40) % 64;
      if (part < 4) {
        scales[part] |= s;
        scales[part + 4] |= l;
      } else {
        scales[part - 4] |= s / 16 * 64;
        scales[part] |= l / 16 * 64;
        scales[part + 4] |= s % 16 + l % 16 * 16;
      }
      for (unsigned i = 0; i < 32; ++i) {
        const auto code = static_cast<unsigned>(code_of(static_cast<int>(part * 32 + i + block), 15));
        codes[part / 2 * 32 + i] |= code << (part % 2 * 4);
        expected[block].push_back(d.value * static_cast<float>(s * code) - m.value * static_cast<float>(l));
      }
    }
    data += of(d) + of(m);
    for (const unsigned byte : scales) data += little(byte, 1);
    for (const unsigned byte : codes) data += little(byte, 1);
  }
  EXPECT_EQ(read_as(12, 256, data), expected);
}

// Codes q of 6 bits, a signed scale s of 8 bits for each 16 of them, and d: d s (q - 32). In each 128
// numbers, the four low bits are stored in 64 bytes: runs 0 and 1 (of 32) in the low halves, runs 2 and 3 in
// the high halves. Byte i of 32 holds the two high bits of number i of runs 0 to 3, lowest first.
TEST(Gguf, ReadsQ6K) {
  std::vector<Row> expected(2);
  std::string data;
  for (std::size_t block = 0; block < 2; ++block) {
    const Half d = kHalves[block];
    std::array<unsigned, 128> low = {};
    std::array<unsigned, 64> high = {};
    std::string scales;
    for (unsigned i = 0; i < 256; ++i) {
      const auto code = static_cast<unsigned>(code_of(static_cast<int>(i + block), 63));
      const int scale = code_of(static_cast<int>(i / 16 + block), 255) - 128;
      const unsigned run = i % 128 / 32;
      low[i / 128 * 64 + run % 2 * 32 + i % 32] |= code % 16 << (run / 2 * 4);
      high[i / 128 * 32 + i % 32] |= code / 16 << (run * 2);
      if (i % 16 == 0) scales += little(static_cast<std::uint64_t>(scale), 1);
      expected[block].push_back(d.value * static_cast<float>(scale * (static_cast<int>(code) - 32)));
    }
    for (const unsigned byte : low) data += little(byte, 1);
    for (const unsigned byte : high) data += little(byte, 1);
    data += scales + of(d);
  }
  EXPECT_EQ(read_as(14, 256, data), expected);
}

// In the file, a head of 4 rows has the pairs (0, 2) and (1, 3) one after the other.
TEST(Gguf, PutsRowsOfLlamasQueriesAndKeysInHalves) {
  const auto row = [](float first) { return f32_run(first, 2); };
  const auto numbers = [](float first) { return Row{first, first + 1}; };
  GgufBytes file;
  const std::string head = row(0) + row(20) + row(10) + row(30);
  file.tensors.push_back(
      {"blk.0.attn_q.weight", {2, 8}, 0, head + row(100) + row(120) + row(110) + row(130)});
  file.tensors.push_back({"blk.0.attn_k.weight", {2, 4}, 0, head});
  file.tensors.push_back({"blk.0.attn_v.weight", {2, 4}, 0, head});
  const std::string at = "model.layers.0.self_attn.";
  const std::vector<Row> one = {numbers(0), numbers(10), numbers(20), numbers(30)};
  std::vector<Row> two = one;
  for (const float first : {100.0f, 110.0f, 120.0f, 130.0f}) two.push_back(numbers(first));
  const auto weights = weights_of(file);
  EXPECT_EQ(rows_of(*weights, at + "q_proj.weight", 8, 2), two);
  EXPECT_EQ(rows_of(*weights, at + "k_proj.weight", 4, 2), one);
  EXPECT_EQ(rows_of(*weights, at + "v_proj.weight", 4, 2)[1], numbers(20));
}

TEST(Gguf, IsAModel) {
  const TemporaryFolder folder;
  write_file(folder / "m.gguf", gguf_llama().bytes());
  const Model model = load_model(folder / "m.gguf");
  EXPECT_EQ(model.info().family, "llama");
  EXPECT_EQ(model.info().layers, 1);
  EXPECT_EQ(model.info().heads, 2);
  EXPECT_EQ(model.info().kv_heads, 1);
  EXPECT_EQ(model.info().head_dim, 4);
  EXPECT_EQ(model.info().vocabulary, 3);
  EXPECT_EQ(model.info().parameters, 24 + 8 + 64 + 32 + 32 + 64 + 8 + 32 + 32 + 32 + 8 + 24);
}

TEST(Gguf, HasThePenaltyOfRepeatedTokens) {
  const TemporaryFolder folder;
  const auto written = [&](const GgufBytes& file) {
    write_file(folder / "m.gguf", file.bytes());
    const Model model = load_model(folder / "m.gguf");
    heed::ModelTokens prompt;
    prompt.ids = {0};
    return message_of([&] { (void)heed::generate(model, prompt, {.tokens = 1}); });
  };
  GgufBytes file = gguf_llama();
  EXPECT_EQ(written(file), "no error");
  file.set("general.sampling.penalty_repeat", f32_value(0));
  EXPECT_EQ(written(file),
            "'" + (folder / "m.gguf") + "' has repetition_penalty 0.0; a number of f32 above 0 is expected");
  file.set("general.sampling.min_p", f32_value(0.5f));
  file.set("general.sampling.penalty_last_n", u32_value(0));
  EXPECT_EQ(written(file), "'" + (folder / "m.gguf") +
                               "' has min_p 0.5, which heed cannot apply; 0, or temperature 0, is expected");
  file.set("general.sampling.min_p", f32_value(0));
  EXPECT_EQ(written(file), "no error");
}

TEST(Gguf, ReadsValuesOfEachKind) {
  const std::uint64_t minus_two = ~std::uint64_t{1};
  GgufBytes file;
  file.version = 2;
  file.set("u8", little(0, 4) + little(200, 1));
  file.set("i8", little(1, 4) + little(minus_two, 1));
  file.set("u16", little(2, 4) + little(60000, 2));
  file.set("i16", little(3, 4) + little(minus_two, 2));
  file.set("u32", u32_value(4000000000));
  file.set("i32", little(5, 4) + little(minus_two, 4));
  file.set("f32", f32_value(0.5f));
  file.set("true", flag_value(true));
  file.set("false", flag_value(false));
  file.set("text", text_value("two words"));
  file.set("u64", little(10, 4) + little(std::uint64_t{1} << 62, 8));
  file.set("i64", little(11, 4) + little(minus_two, 8));
  file.set("f64", little(12, 4) + of_f64(0.1));
  file.set("texts", texts_value({"a", "", "bc"}));
  file.set("f32s", f32s_value({0.5f, -1}));
  file.set("i32s", i32s_value({1, static_cast<std::uint32_t>(minus_two)}));
  file.set("none", list_value(4, 0, ""));
  const TemporaryFolder folder;
  write_file(folder / "m.gguf", file.bytes());
  const GgufFile read(folder / "m.gguf");
  EXPECT_EQ(read.metadata().size(), file.values.size());
  EXPECT_EQ(read.at("u8").integer(), 200);
  EXPECT_EQ(read.at("u16").integer(), 60000);
  EXPECT_EQ(read.at("u32").integer(), 4000000000);
  EXPECT_EQ(read.at("u64").integer(), std::int64_t{1} << 62);
  for (const char* name : {"i8", "i16", "i32", "i64"}) EXPECT_EQ(read.at(name).integer(), -2) << name;
  EXPECT_EQ(read.at("f32").real(), 0.5);
  EXPECT_EQ(read.at("f64").real(), 0.1);
  EXPECT_EQ(read.at("i8").real(), -2);
  EXPECT_TRUE(read.at("true").flag());
  EXPECT_FALSE(read.at("false").flag());
  EXPECT_EQ(read.at("text").text(), "two words");
  EXPECT_EQ(read.at("texts").texts(), (std::vector<std::string_view>{"a", "", "bc"}));
  EXPECT_EQ(read.at("f32s").reals(), (std::vector<double>{0.5, -1}));
  EXPECT_EQ(read.at("i32s").integers(), (std::vector<std::int64_t>{1, -2}));
  EXPECT_TRUE(read.at("none").integers().empty());
  EXPECT_EQ(read.find("other"), nullptr);
}

}  // namespace
}  // namespace heed::test
