// The files of a model's folder, read alone: config.json, the weights and their index, and SentencePiece's
// rules. Damaged ones are refused in a sentence.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "heed/io/tensors.hpp"
#include "io/json_file.hpp"
#include "io_support.hpp"
#include "model/files/config.hpp"
#include "model/files/weights.hpp"
#include "support.hpp"
#include "text/charsmap.hpp"

namespace heed::test {
namespace {

using detail::AlignedText;
using detail::Charsmap;
using detail::JsonLimits;
using detail::JsonPart;
using detail::ModelConfig;
using detail::Weights;

// The message of a call, without the folder's path.
std::string message_in(const TemporaryFolder& folder, const std::function<void()>& call) {
  std::string message = message_of(call);
  for (std::size_t at; (at = message.find(folder.path())) != std::string::npos;)
    message.replace(at, folder.path().size(), "DIR");
  return message;
}

TEST(ModelFiles, AConfigGivesWhatItsMembersAre) {
  const ModelConfig config(
      nlohmann::ordered_json::parse(R"({"n": 3, "x": 0.5, "yes": true, "t": "a", "list": ["a", "b"],
                                                            "ns": [1, 2], "xs": [0.5, 2], "o": {"n": 1}, "empty": {}, "no": null})"),
      "c.json");
  EXPECT_EQ(config.integer("n", 3, 3), 3);
  EXPECT_EQ(config.real("n"), 3);
  EXPECT_EQ(config.positive("x"), 0.5);
  EXPECT_TRUE(config.flag("yes"));
  EXPECT_EQ(config.text("t", "b"), "a");
  EXPECT_EQ(config.text("missing", "b"), "b");
  EXPECT_EQ(config.texts("list"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(config.texts("no").empty());
  EXPECT_EQ(config.integers("ns"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(config.integers("n"), std::vector<std::int64_t>{3});
  EXPECT_TRUE(config.integers("missing").empty());
  EXPECT_EQ(config.positives("xs"), (std::vector<double>{0.5, 2}));
  EXPECT_EQ(config.object("o").value().integer("n", 0, 9), 1);
  EXPECT_FALSE(config.object("empty"));
  EXPECT_FALSE(config.object("no"));
}

TEST(ModelFiles, AConfigWithAWrongMemberIsRefused) {
  const ModelConfig config(
      nlohmann::ordered_json::parse(
          R"({"n": 3, "vast": 18446744073709551615, "x": -0.5, "t": "a", "list": ["a", 1], "ns": [1, 0.5],
              "xs": [2, 0], "names": [1, "a"], "null": null})"),
      "c.json");
  const auto refused = [&](auto call) { return message_of([&] { (void)call(); }); };
  EXPECT_EQ(refused([&] { return config.integer("m", 0, 9); }), "'c.json' has no m");
  EXPECT_EQ(refused([&] { return config.integer("null", 0, 9); }),
            "'c.json' has null null; a value is expected");
  EXPECT_EQ(refused([&] { return config.integer("x", 0, 9); }),
            "'c.json' has x that is not a whole number; 0 to 9 is expected");
  EXPECT_EQ(refused([&] { return config.integer("n", 4, 9); }), "'c.json' has n 3; 4 to 9 is expected");
  EXPECT_EQ(refused([&] { return config.integer("n", 0, 2); }), "'c.json' has n 3; 0 to 2 is expected");
  EXPECT_EQ(refused([&] { return config.integer("vast", -9, std::numeric_limits<std::int64_t>::max()); }),
            "'c.json' has vast 18446744073709551615; -9 to 9223372036854775807 is expected");
  EXPECT_EQ(refused([&] { return config.real("t"); }), "'c.json' has t that is not a finite number");
  EXPECT_EQ(refused([&] { return config.positive("x"); }), "'c.json' has x that is not above 0");
  EXPECT_EQ(refused([&] { return config.flag("n"); }), "'c.json' has n that is neither true nor false");
  EXPECT_EQ(refused([&] { return config.text("n"); }), "'c.json' has n that is not a string");
  EXPECT_EQ(refused([&] { return config.texts("t"); }), "'c.json' has t that is not a list");
  EXPECT_EQ(refused([&] { return config.texts("list"); }),
            "'c.json' has a list list with an entry that is not a string");
  for (const char* name : {"ns", "t"})
    EXPECT_EQ(
        refused([&] { return config.integers(name); }),
        "'c.json' has " + std::string(name) + " that is neither a whole number nor a list of whole numbers");
  EXPECT_EQ(refused([&] { return config.positives("t"); }), "'c.json' has t that is not a list");
  for (const char* name : {"xs", "names"})
    EXPECT_EQ(refused([&] { return config.positives(name); }),
              "'c.json' has " + std::string(name) + " with an entry that is not a finite number above 0");
  EXPECT_EQ(refused([&] { return config.object("n"); }), "'c.json' has n that is not a JSON object");
  EXPECT_EQ(refused([] { return ModelConfig(nlohmann::ordered_json::array(), "c.json"); }),
            "'c.json' is not a JSON object");
}

TEST(ModelFiles, JsonIsRefusedBeforeItTakesMemory) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.json";
  const auto refusal = [&](const std::string& text,
                           const JsonLimits& limits = {.depth = 2, .members = 2, .values = 5}) {
    write_file(path, text);
    return message_in(folder, [&] { (void)io::detail::json_in(path, 1, limits); });
  };
  EXPECT_EQ(refusal(R"([null, true, -1, "a\"]"])"), "no error");
  EXPECT_EQ(refusal(R"({"a": 1, "b": {"c": 0.5}})"), "no error");
  EXPECT_EQ(refusal("[[[1]]]"), "DIR/x.json nests values more than 2 deep, the limit");
  EXPECT_EQ(refusal("[[[{}]]]"), "DIR/x.json nests values more than 2 deep, the limit");
  EXPECT_EQ(refusal(R"({"a": 1, "b": 2, "c": 3})"),
            "DIR/x.json has an object of more than 2 members, the limit");
  for (const char* last : {"null", "false", "-1", "1", "0.5", "\"a\"", "[]", "{}"})
    EXPECT_EQ(refusal("[1, 2, 3, 4, " + std::string(last) + "]"),
              "DIR/x.json has more than 5 values, the limit");
  EXPECT_EQ(refusal("[1"), "DIR/x.json is not JSON");
  EXPECT_EQ(refusal(std::string("[1]\0", 4)), "DIR/x.json is not JSON");
  EXPECT_EQ(refusal(std::string((1 << 20) + 1, ' ')), "DIR/x.json is larger than 1 MiB");
  write_file(path, "[\"" + std::string((1 << 20) + 1, 'a') + "\"]");
  EXPECT_EQ(message_in(folder, [&] { (void)io::detail::json_in(path, 2, {}); }),
            "DIR/x.json has a string, a number or a gap of more than 1048576 bytes, the limit");
  EXPECT_EQ(message_in(folder, [&] { (void)io::detail::json_in(folder.path(), 1, {}); }),
            "DIR is a folder; a file is expected");
  EXPECT_EQ(message_in(folder, [&] { (void)io::detail::json_in(folder / "none.json", 1, {}); }),
            "DIR/none.json could not be opened: No such file or directory");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message_in(folder, [&] { (void)io::detail::json_in(folder / "pipe", 1, {}); }),
            "DIR/pipe is not a regular file");
  EXPECT_FALSE(detail::json_of("[").has_value());
  EXPECT_TRUE(detail::json_of("[[1]]", {.depth = 1}).value().is_null());
  EXPECT_EQ(detail::json_of("[1]").value(), nlohmann::ordered_json({1}));
}

TEST(ModelFiles, NumbersThatAreNotFiniteAreRefused) {
  // Text cannot say infinity in JSON, but the metadata of a GGUF file can.
  const double infinity = std::numeric_limits<double>::infinity();
  const ModelConfig config({{"x", infinity}, {"xs", {1.0, infinity}}}, "c.json");
  EXPECT_EQ(message_of([&] { (void)config.real("x"); }), "'c.json' has x that is not a finite number");
  EXPECT_EQ(message_of([&] { (void)config.positives("xs"); }),
            "'c.json' has xs with an entry that is not a finite number above 0");
}

// A safetensors file of one tensor.
std::string safetensors(const std::string& name, const std::string& dtype, const std::string& shape,
                        const std::string& bytes, const std::string& blanks = "") {
  const std::string header = "{\"" + name + R"(": {"dtype": ")" + dtype + R"(", "shape": )" + shape +
                             R"(, "data_offsets": [0, )" + std::to_string(bytes.size()) + "]}}" + blanks;
  std::string size(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) size[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return size + header + bytes;
}

const std::string kOnes = std::string("\0\0\x80?\0\0\x80?", 8);  // two numbers of f32

TEST(ModelFiles, WeightsAreThoseOfTheFilesThatTheIndexNames) {
  const TemporaryFolder folder;
  write_file(folder / "a.safetensors", safetensors("a", "F32", "[1, 2]", kOnes));
  for (const char* blanks : {"", " ", "  ", "   "}) {  // whatever its place, f32 is read in place or copied
    write_file(folder / "b.safetensors", safetensors("b", "F32", "[2, 1, 1]", kOnes, blanks));
    write_file(folder / "model.safetensors.index.json",
               R"({"weight_map": {"a": "a.safetensors", "b": "b.safetensors", "c": "b.safetensors"}})");
    const auto weights = Weights::open(folder.path());
    EXPECT_EQ(weights->matrix("a", 1, 2).plain()[1], 1);
    EXPECT_EQ(weights->matrices("b", 2, 1, 1).at(1).plain()[0], 1);
    EXPECT_EQ(weights->numbers(), 4);
    weights->require_all_taken();
  }
}

TEST(ModelFiles, AnIndexThatIsNoneIsRefused) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& index) {
    write_file(folder / "model.safetensors.index.json", index);
    return message_in(folder, [&] { (void)Weights::open(folder.path()); });
  };
  for (const char* index : {"[]", "{}", R"({"weight_map": 1})"})
    EXPECT_EQ(refusal(index), "'DIR/model.safetensors.index.json' has no weight_map");
  for (const char* file : {"\"../a\"", "\"\"", "1", "\".\"", "\"..\"", "\"/a\""})
    EXPECT_EQ(refusal(R"({"weight_map": {"a": )" + std::string(file) + "}}"),
              "'DIR/model.safetensors.index.json' names a file outside its folder for 'a'");
  for (const char* file : {"a", "b"}) write_file(folder / file, safetensors("a", "F32", "[2]", kOnes));
  EXPECT_EQ(refusal(R"({"weight_map": {"a": "a", "b": "b"}})"),
            "'DIR/b' has a tensor 'a' that is also in another file");
  write_file(folder / "pytorch_model.bin", "");
  EXPECT_EQ(refusal(R"({"weight_map": {}})"), "no error");  // the index says what counts
  std::filesystem::remove(folder / "model.safetensors.index.json");
  EXPECT_EQ(message_in(folder, [&] { (void)Weights::open(folder.path()); })
                .find("'DIR' has its weights in pytorch_model.bin, "),
            0);
  write_file(folder / "model.safetensors", safetensors("a", "F32", "[2]", kOnes));
  EXPECT_EQ(message_in(folder, [&] { (void)Weights::open(folder.path()); }), "no error");
}

TEST(ModelFiles, AWeightOfAnotherKindIsRefused) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& dtype, const std::string& shape, auto take) {
    write_file(folder / "model.safetensors", safetensors("a", dtype, shape, kOnes));
    return message_in(folder, [&] {
      const auto weights = Weights::open(folder.path());
      take(*weights);
      weights->require_all_taken();
    });
  };
  const auto vector = [](Weights& weights) { (void)weights.vector("a", 2); };
  const auto bytes = [](Weights& weights) { (void)weights.bytes("a", {8}); };
  const auto nothing = [](Weights&) {};
  EXPECT_EQ(refusal("F32", "[2]", vector), "no error");
  for (const auto& [dtype, bits] : {std::pair{"F16", "\0<\0\xC0"}, {"BF16", "\x80?\0\xC0"}}) {  // 1 and -2
    write_file(folder / "model.safetensors", safetensors("a", dtype, "[2]", std::string(bits, 4)));
    const Tensor read = Weights::open(folder.path())->vector("a", 2);
    EXPECT_EQ(read.values<float>()[0], 1) << dtype;
    EXPECT_EQ(read.values<float>()[1], -2) << dtype;
  }
  EXPECT_EQ(refusal("U8", "[8]", bytes), "no error");
  EXPECT_EQ(refusal("F32", "[2]", [](Weights& weights) { weights.leave("a"); }), "no error");
  EXPECT_EQ(
      refusal("F32", "[2]", nothing),
      "'DIR/model.safetensors' has a tensor 'a' that is not a parameter of the model of its config.json");
  EXPECT_EQ(refusal("F32", "[2]", [](Weights& weights) { (void)weights.vector("b", 2); }),
            "'DIR' has no tensor b, which the model of its config.json needs");
  EXPECT_EQ(refusal("F32", "[2, 1]", vector),
            "'DIR/model.safetensors' has a tensor a of shape [2, 1]; [2] is expected, as config.json says");
  EXPECT_EQ(refusal("F32", "[2]", bytes), "'DIR/model.safetensors' has a tensor a that is not u8");
  for (const auto& [dtype, shape] : {std::pair{"U8", "[8]"},
                                     {"I32", "[2]"},
                                     {"F8_E4M3", "[8]"},
                                     {"F32", "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]"}})
    EXPECT_EQ(refusal(dtype, shape, vector),
              "'DIR/model.safetensors' has a tensor a that is neither f32 nor bf16 nor f16");
}

std::string base64(const std::string& bytes) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i)
      text += at + i <= bytes.size() ? digits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string units_as_bytes(const std::vector<std::uint32_t>& units) {
  std::string bytes;
  for (const std::uint32_t unit : units)
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(unit >> (8 * i) & 0xFF);
  return bytes;
}

// A double array in which the children of the node after n bytes lie from 256 (n + 1) on, so that each length
// of a text has at most one.
class Rules {
 public:
  explicit Rules(std::size_t longest) : units_(256 * (longest + 2)) { units_[0] = 256u << 10; }

  void add(const std::string& from, const std::string& to) {
    for (std::size_t n = 0; n < from.size(); ++n) {
      const std::size_t base = 256 * (n + 1), node = base + static_cast<unsigned char>(from[n]);
      const std::size_t offset = node ^ (base + 256);
      units_[node] |= static_cast<std::uint32_t>(offset << 10) | static_cast<unsigned char>(from[n]);
      if (n + 1 < from.size()) continue;
      units_[node] |= 1u << 8;
      units_[base + 256] = 1u << 31 | static_cast<std::uint32_t>(texts_.size());
    }
    texts_ += to + '\0';
  }
  [[nodiscard]] std::vector<std::uint32_t>& units() { return units_; }
  [[nodiscard]] std::string encoded() const {
    return base64(units_as_bytes({static_cast<std::uint32_t>(4 * units_.size())}) + units_as_bytes(units_) +
                  texts_);
  }

 private:
  std::vector<std::uint32_t> units_;
  std::string texts_;
};

const nlohmann::json kPart = nlohmann::json::object();

std::string normalised(const Rules& rules, const std::string& text) {
  AlignedText changed(text);
  Charsmap(rules.encoded(), JsonPart(kPart, "'t.json'", "a normalizer")).apply(changed);
  return changed.text();
}

TEST(ModelFiles, RulesOfSentencePieceReplaceTexts) {
  Rules ligature(3);
  ligature.add("ﬁ", "fi");
  EXPECT_EQ(normalised(ligature, "ﬁn ﬀ\r\n"), "fin ﬀ\r\n");
  Rules letter(1);
  letter.add("~", "");
  EXPECT_EQ(normalised(letter, "a~b~"), "ab");
  EXPECT_EQ(normalised(letter, "~a"), "a");
  EXPECT_EQ(normalised(letter, "ab"), "ab");
  Rules grapheme(3);  // a letter and its accent, as a whole
  grapheme.add("e\u0301", "é");
  EXPECT_EQ(normalised(grapheme, "e\u0301!"), "é!");
  EXPECT_EQ(normalised(grapheme, "e\u0301\u0301\u0301\u0301"),
            "e\u0301\u0301\u0301\u0301");  // too long to be looked up
  Rules longer(1);
  longer.add("&", "and so on");
  EXPECT_EQ(normalised(longer, "a&\u0301b"), "aand so onb");
  Rules accent(2);  // of the points of a grapheme that no rule begins with, or that is too long
  accent.add("\u0301", "!");
  EXPECT_EQ(normalised(accent, "ae\u0301\u0301\u0301"), "ae!!!");
  Rules first(1);
  first.add("e", "x");
  EXPECT_EQ(normalised(first, "e\u0301\u0301\u0301e"), "x\u0301\u0301\u0301x");
  first.units()[0] = 0x1FFFFFu << 10;  // a rule that is beyond the end applies to nothing
  EXPECT_EQ(normalised(first, "e"), "e");
}

TEST(ModelFiles, DamagedRulesAreRefused) {
  const auto refusal = [](const std::string& encoded) {
    return message_of([&] { (void)Charsmap(encoded, JsonPart(kPart, "'t.json'", "a normalizer")); });
  };
  const std::string whose = "'t.json' has a normalizer whose precompiled_charsmap ";
  for (const char* text : {"AAA", "AA-A", "A===", "AA[A", "AA{A"})
    EXPECT_EQ(refusal(text), whose + "is not in base 64");
  for (const std::string& bytes :
       {std::string(), std::string(3, 'a'), units_as_bytes({3}), units_as_bytes({8, 1})})
    EXPECT_EQ(refusal(base64(bytes)), whose + "is cut off");
  Rules wild(1);
  wild.add("~", "\xFF");
  EXPECT_EQ(refusal(wild.encoded()), whose + "has texts that are not UTF-8");
  Rules far(1);
  far.add("~", "é");
  EXPECT_EQ(refusal(far.encoded()), "no error");
  for (const std::uint32_t value : {1u, 9u}) {  // within a letter, and beyond the texts
    far.units()[512] = 1u << 31 | value;
    EXPECT_EQ(refusal(far.encoded()), whose + "points beyond its end");
  }
  far.units()[256 + '~'] |= 0x1FFFFFu << 10;
  EXPECT_EQ(refusal(far.encoded()), whose + "points beyond its end");
}

}  // namespace
}  // namespace heed::test
