#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Error;
using heed::ErrorCode;
using heed::Tensor;
using heed::TensorView;
using heed::io::read_safetensors;
using heed::io::SafetensorsReader;
using heed::io::TensorFile;
using heed::io::write_safetensors;
using heed::test::message_of;
using heed::test::peak_memory_of;
using heed::test::read_file;
using heed::test::TemporaryFolder;
using heed::test::write_file;

// A hand-made file.
std::string safetensors(const std::string& header, const std::string& data = "") {
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return file + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

// "t0", "t1", … (Appends, because GCC 12 wrongly warns of an overlap in `numbered("t", i)`.)
std::string numbered(const std::string& stem, std::size_t number) { return stem + std::to_string(number); }

class Safetensors : public testing::Test {
 protected:
  SafetensorsReader open(const std::string& content) {
    write_file(path_, content);
    return SafetensorsReader(path_);
  }
  /// The message that refuses the file, without the file's name at its beginning.
  std::string fault(const std::string& content) {
    return without_name(message_of([&] { (void)open(content); }));
  }
  std::string header_fault(const std::string& header, const std::string& data = "") {
    return fault(safetensors(header, data));
  }
  std::string without_name(const std::string& message) const {
    const std::string name = "'" + path_ + "' ";
    return message.starts_with(name) ? message.substr(name.size()) : message;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "x.safetensors";
};

using SafetensorsRead = Safetensors;
using SafetensorsWrite = Safetensors;

TEST_F(SafetensorsRead, TensorsByNameInTheOrderOfTheirData) {
  // The header lists them in another order. An empty tensor has the same offset as the next one.
  const SafetensorsReader reader = open(
      safetensors("{" + entry("b", "I32", "[2]", "[8,16]") + "," + entry("a", "F32", "[1,2]", "[0,8]") + "," +
                      entry("none", "F64", "[3,0]", "[8,8]") + ",\"__metadata__\":{\"by\":\"hand\"}}",
                  std::string("\0\0\xc0\x3f\0\0\0\xc0\x07\0\0\0\xff\xff\xff\xff", 16)));
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"a", "none", "b"}));
  EXPECT_EQ(reader.metadata(), (std::map<std::string, std::string>{{"by", "hand"}}));
  EXPECT_TRUE(reader.contains("b"));
  EXPECT_FALSE(reader.contains("c"));
  EXPECT_EQ(reader.dtype("b"), DType::i32);
  EXPECT_EQ(reader.shape("a"), (Dims{1, 2}));
  EXPECT_EQ(reader.read("a").at<float>(0, 0), 1.5f);
  EXPECT_EQ(reader.read("a").at<float>(0, 1), -2.0f);
  EXPECT_EQ(reader.read("b").at<std::int32_t>(0), 7);
  EXPECT_EQ(reader.read("b").at<std::int32_t>(1), -1);
  EXPECT_EQ(reader.read("none").shape(), (Dims{3, 0}));
}

TEST_F(SafetensorsRead, AFileOfNothingHasNoTensors) {
  EXPECT_TRUE(open(safetensors("{}")).names().empty());
  EXPECT_TRUE(open(safetensors("{\"__metadata__\":{}}   ")).names().empty());
}

TEST_F(SafetensorsRead, ATensorOfNoAxesHasOneElement) {
  const SafetensorsReader reader = open(safetensors("{" + entry("x", "U8", "[]", "[0,1]") + "}", "\x05"));
  const Tensor tensor = reader.read("x");
  EXPECT_EQ(tensor.shape(), Dims{});
  EXPECT_EQ(tensor.at<std::uint8_t>(), 5);
}

TEST_F(SafetensorsRead, ABoolIsZeroOrOneWhateverByteTheFileHas) {
  const Tensor tensor =
      open(safetensors("{" + entry("x", "BOOL", "[4]", "[0,4]") + "}", std::string("\x00\x01\x02\xff", 4)))
          .read("x");
  const auto* bytes = static_cast<const std::uint8_t*>(tensor.view().data());
  EXPECT_EQ(std::vector<int>(bytes, bytes + 4), (std::vector<int>{0, 1, 1, 1}));
}

TEST_F(SafetensorsRead, ANameMayHoldAnyText) {
  const SafetensorsReader reader = open(safetensors(
      "{" + entry("", "U8", "[1]", "[0,1]") + "," + entry("h\\u00e9 \\\"\\u4f60", "U8", "[1]", "[1,2]") + "}",
      "ab"));
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"", "h\xc3\xa9 \"\xe4\xbd\xa0"}));
  EXPECT_EQ(reader.read("").at<std::uint8_t>(0), 'a');
  EXPECT_EQ(reader.read("h\xc3\xa9 \"\xe4\xbd\xa0").at<std::uint8_t>(0), 'b');
}

TEST_F(SafetensorsRead, TypesAndRanksThatHeedHasNotAreRefusedWhenAskedFor) {
  const SafetensorsReader reader = open(safetensors(
      "{" + entry("f8", "F8_E4M3", "[2]", "[0,2]") + "," + entry("f4", "F4", "[4]", "[2,4]") + "," +
          entry("deep", "U8", "[1,1,1,1,1,1]", "[4,5]") + "," + entry("fine", "U8", "[1]", "[5,6]") + "}",
      "abcdef"));
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"f8", "f4", "deep", "fine"}));
  EXPECT_EQ(reader.read("fine").at<std::uint8_t>(0), 'f');
  const std::string expected = "; F64, F32, F16, BF16, I64, I32, U8 or BOOL is expected";
  EXPECT_EQ(without_name(message_of([&] { (void)reader.read("f8"); })),
            "has a tensor 'f8' of F8_E4M3" + expected);
  EXPECT_EQ(without_name(message_of([&] { (void)reader.dtype("f4"); })),
            "has a tensor 'f4' of F4" + expected);
  EXPECT_EQ(without_name(message_of([&] { (void)reader.shape("deep"); })),
            "has a tensor 'deep' of 6 axes; at most 5 are supported");
  EXPECT_EQ(without_name(message_of([&] { (void)read_safetensors(path_); })),
            "has a tensor 'f8' of F8_E4M3" + expected);
}

TEST_F(SafetensorsRead, ANameThatIsNotThereIsAnsweredWithThoseThatAre) {
  const auto missing = [&](const std::string& content) {
    const SafetensorsReader reader = open(content);
    return without_name(message_of([&] { (void)reader.read("w"); }));
  };
  EXPECT_EQ(missing(safetensors("{}")), "has no tensor 'w'; it has none");
  EXPECT_EQ(missing(safetensors(
                "{" + entry("b", "U8", "[1]", "[0,1]") + "," + entry("a", "U8", "[1]", "[1,2]") + "}", "xy")),
            "has no tensor 'w'; it has 'b', 'a'");
  std::string many;
  for (std::size_t i = 10; i < 35; ++i) many += entry(numbered("", i), "U8", "[0]", "[0,0]") + ",";
  const std::string message = missing(safetensors("{" + many.substr(0, many.size() - 1) + "}"));
  EXPECT_TRUE(message.ends_with("'29' and 5 more")) << message;
}

TEST_F(SafetensorsRead, WhatCannotBeOpenedIsNamedWithTheReason) {
  EXPECT_EQ(message_of([&] { SafetensorsReader reader(folder_ / "none"); }),
            "cannot open '" + (folder_ / "none") + "': No such file or directory");
  EXPECT_EQ(message_of([&] { SafetensorsReader reader(folder_ / "."); }),
            "cannot read '" + (folder_ / ".") + "': Is a directory");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(without_name(message_of([&] { SafetensorsReader reader(path_); })),
            "is not a regular file, which random access needs");
}

TEST_F(SafetensorsRead, AFaultOfTheLengthIsNamed) {
  EXPECT_EQ(fault(""),
            "is not a safetensors file: it has 0 bytes, and 8 for the length of a header are expected");
  EXPECT_EQ(fault("1234567"),
            "is not a safetensors file: it has 7 bytes, and 8 for the length of a header are expected");
  EXPECT_EQ(fault(std::string(8, '\0')), "has a header that does not begin with '{'");
  EXPECT_EQ(fault(std::string("\x03\0\0\0\0\0\0\0{}", 10)), "has a header of 3 bytes, of which 2 are there");
  EXPECT_EQ(fault(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)),
            "has a header of 100000001 bytes; at most 100000000 are expected");
  EXPECT_EQ(fault(std::string(8, '\xff') + "{}"),
            "has a header of 18446744073709551615 bytes; at most 100000000 are expected");
}

TEST_F(SafetensorsRead, AFileOfAnotherKindIsCalledByItsName) {
  EXPECT_EQ(fault(std::string("\x93NUMPY\x01\0", 8) + std::string(120, ' ')),
            "is a .npy file; a safetensors file is expected");
  EXPECT_EQ(fault("PK\x03\x04" + std::string(60, '\x14')),
            "is a zip file, as .npz and .pt are; a safetensors file is expected");
  EXPECT_EQ(fault("GGUF" + std::string(60, '\x03')), "is a GGUF file; a safetensors file is expected");
}

TEST_F(SafetensorsRead, AHeaderThatIsNotJsonIsRefusedAtItsByte) {
  const std::string start = "has a header that does not begin with '{'";
  EXPECT_EQ(header_fault(" {}"), start);
  EXPECT_EQ(header_fault("\xef\xbb\xbf{}"), start);
  EXPECT_EQ(header_fault("[]"), start);
  const std::string not_json = "has a header that is not JSON in UTF-8 at its byte ";
  EXPECT_EQ(header_fault("{"), not_json + "1");
  EXPECT_EQ(header_fault("{} {}"), not_json + "3");
  EXPECT_EQ(header_fault("{'a':1}"), not_json + "1");
  EXPECT_EQ(header_fault("{\"a\xff\":1}"), not_json + "3");
  EXPECT_EQ(header_fault("{\"\\ud800\":1}"), not_json + "8");
  EXPECT_EQ(header_fault("{\"__metadata__\":{\"a\":NaN}}"), not_json + "21");
  EXPECT_EQ(header_fault("{" + entry("x", "U8", "[1,]", "[0,1]") + "}", "a"), not_json + "30");
  EXPECT_EQ(header_fault("{" + entry("x", "U8", "[1]", "[0,1]") + ",}", "a"), not_json + "53");
}

TEST_F(SafetensorsRead, AControlCharacterIsRefused) {
  // The JSON reader ends at a zero byte, so the rest would go unnoticed.
  EXPECT_EQ(header_fault(std::string("{}\0garbage", 10)),
            "has the control character 0 at byte 2 of its header");
  EXPECT_EQ(header_fault("{\"a\x1b\":1}"), "has the control character 27 at byte 3 of its header");
  EXPECT_TRUE(open(safetensors("{\n\t}\r\n")).names().empty());
}

TEST_F(SafetensorsRead, AHeaderOfAnotherFormIsRefused) {
  const std::string malformed =
      "has a malformed entry 'x' in its header: an object of a dtype (a string), a shape (whole numbers) and "
      "data_offsets (two whole numbers) is expected";
  for (const char* value : {"1",
                            "null",
                            "true",
                            "\"U8\"",
                            "[]",
                            "1.5",
                            "-1",
                            "[\"U8\",[0],[0,0]]",
                            "[[[[[[[[",
                            "{\"dtype\":8}",
                            "{\"dtype\":[\"U8\"]}",
                            "{\"dtype\":{}}",
                            "{\"dtype\":null}",
                            "{\"shape\":3}",
                            "{\"shape\":\"3\"}",
                            "{\"shape\":[[1]]}",
                            "{\"shape\":[-1]}",
                            "{\"shape\":[-0]}",
                            "{\"shape\":[1.0]}",
                            "{\"shape\":[1e2]}",
                            "{\"shape\":[true]}",
                            "{\"shape\":[null]}",
                            "{\"shape\":[\"1\"]}",
                            "{\"shape\":[{}]}",
                            "{\"shape\":[18446744073709551616]}",
                            "{\"data_offsets\":[]}",
                            "{\"data_offsets\":[0]}",
                            "{\"data_offsets\":[0,1,2]}",
                            "{\"data_offsets\":[0,-1]}",
                            "{\"data_offsets\":{\"a\":1}}"})
    EXPECT_EQ(header_fault("{\"x\":" + std::string(value) + "}"), malformed) << value;
  EXPECT_EQ(header_fault("{\"x\":{\"size\":1}}"),
            "has a tensor 'x' with the key 'size'; dtype, shape and data_offsets are expected");
  EXPECT_EQ(header_fault("{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}"),
            "has a tensor 'x' with the key 'dtype' twice");
  EXPECT_EQ(header_fault("{\"x\":{}}"), "has a tensor 'x' without a dtype");
  EXPECT_EQ(header_fault("{\"x\":{\"dtype\":\"U8\"}}"), "has a tensor 'x' without a shape");
  EXPECT_EQ(header_fault("{\"x\":{\"dtype\":\"U8\",\"shape\":[]}}"),
            "has a tensor 'x' without a data_offsets");
  EXPECT_EQ(header_fault("{" + entry("x", "f32", "[]", "[0,4]") + "}"),
            "has a tensor 'x' of 'f32', a type that the format does not have");
  EXPECT_EQ(header_fault("{" + entry("x", "U9", "[]", "[0,4]") + "}"),
            "has a tensor 'x' of 'U9', a type that the format does not have");
}

TEST_F(SafetensorsRead, NestingHoweverDeepIsRefusedAtItsFirstWrongLevel) {
  const std::string deep = "{\"x\":{\"shape\":" + std::string(1000000, '[');
  EXPECT_TRUE(header_fault(deep).starts_with("has a malformed entry 'x' in its header"));
}

TEST_F(SafetensorsRead, MetadataMustBeStrings) {
  const std::string wrong = "has a __metadata__ entry that is not an object of strings";
  for (const char* value :
       {"1", "null", "\"text\"", "[]", "{\"a\":1}", "{\"a\":null}", "{\"a\":[]}", "{\"a\":{}}"})
    EXPECT_EQ(header_fault("{\"__metadata__\":" + std::string(value) + "}"), wrong) << value;
  EXPECT_EQ(header_fault("{\"__metadata__\":{},\"__metadata__\":{}}"),
            "has two entries named '__metadata__' in its header");
  EXPECT_EQ(header_fault("{\"__metadata__\":{\"a\":\"1\",\"\\u0061\":\"2\"}}"),
            "has two entries named 'a' in its metadata");
}

TEST_F(SafetensorsRead, TwoTensorsOfOneNameAreRefused) {
  // The same name in another spelling, once with data of its own, so that only the name is wrong, and once
  // with shared data.
  for (const char* offsets : {"[2,3]", "[0,1]"})
    EXPECT_EQ(header_fault("{" + entry("x", "U8", "[1]", "[0,1]") + "," + entry("y", "U8", "[1]", "[1,2]") +
                               "," + entry("\\u0078", "U8", "[1]", offsets) + "}",
                           "abc"),
              "has two tensors named 'x'");
}

TEST_F(SafetensorsRead, OffsetsMustCoverTheDataWithoutHoles) {
  const auto two = [](const std::string& a, const std::string& b) {
    return "{" + entry("a", "U8", "[2]", a) + "," + entry("b", "U8", "[2]", b) + "}";
  };
  EXPECT_EQ(header_fault(two("[0,2]", "[2,4]"), "1234"), "no error");
  EXPECT_EQ(header_fault(two("[2,4]", "[0,2]"), "1234"), "no error");
  EXPECT_EQ(header_fault(two("[0,2]", "[1,3]"), "123"), "has a tensor 'b' whose data overlap those of 'a'");
  EXPECT_EQ(header_fault(two("[0,2]", "[0,2]"), "12"), "has a tensor 'b' whose data overlap those of 'a'");
  EXPECT_EQ(header_fault(two("[0,2]", "[3,5]"), "12345"),
            "has 1 byte before the data of 'b' outside any tensor");
  EXPECT_EQ(header_fault(two("[1,3]", "[3,5]"), "12345"),
            "has 1 byte before the data of 'a' outside any tensor");
  EXPECT_EQ(header_fault(two("[0,2]", "[2,4]"), "12345"), "has 1 byte after its last tensor");
  EXPECT_EQ(header_fault("{}", "1"), "has 1 byte after its last tensor");
  EXPECT_EQ(header_fault(two("[2,0]", "[2,4]"), "1234"),
            "has a tensor 'a' whose data run backwards, from byte 2 to byte 0");
  EXPECT_EQ(header_fault(two("[0,2]", "[2,4]"), "123"), "has a tensor 'b' whose data end at byte 4 of 3");
  EXPECT_EQ(header_fault(two("[0,2]", "[2,18446744073709551615]"), "1234"),
            "has a tensor 'b' whose data end at byte 18446744073709551615 of 4");
}

TEST_F(SafetensorsRead, BytesMustFitTheShapeAndTheType) {
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& data) {
    return header_fault("{" + entry("x", dtype, shape, "[0," + std::to_string(data.size()) + "]") + "}",
                        data);
  };
  EXPECT_EQ(one("F32", "[2]", "12345678"), "no error");
  EXPECT_EQ(one("F32", "[2]", "1234567"), "has a tensor 'x' of 7 bytes; its shape and F32 need 8");
  EXPECT_EQ(one("F32", "[0]", "1234"), "has a tensor 'x' of 4 bytes; its shape and F32 need 0");
  EXPECT_EQ(one("F32", "[]", ""), "has a tensor 'x' of 0 bytes; its shape and F32 need 4");
  EXPECT_EQ(one("F4", "[3]", "12"), "has a tensor 'x' that does not fill its last byte");
  EXPECT_EQ(one("U8", "[9223372036854775808]", ""),
            "has a tensor 'x' with more elements than 64 bits can count");
  EXPECT_EQ(one("U8", "[4294967296,4294967296]", ""),
            "has a tensor 'x' with more elements than 64 bits can count");
  EXPECT_EQ(one("U8", "[0,4294967296,4294967296]", ""),
            "has a tensor 'x' with more elements than 64 bits can count");
  EXPECT_EQ(one("F64", "[2305843009213693952]", ""),
            "has a tensor 'x' with more bytes than 64 bits can count");
}

TEST_F(SafetensorsRead, WhatAFileQuotesIsFitForATerminal) {
  EXPECT_EQ(header_fault("{" + entry("\\u001b[31m" + std::string(100, 'x'), "Q", "[]", "[0,0]") + "}"),
            "has a tensor '?[31m" + std::string(59, 'x') + "…' of 'Q', a type that the format does not have");
}

TEST_F(SafetensorsRead, EveryLimitOfTheHeaderHasItsMessage) {
  std::string tensors;
  for (std::size_t i = 0; i <= 65536; ++i) tensors += entry(numbered("", i), "U8", "[0]", "[0,0]") + ",";
  EXPECT_EQ(header_fault("{" + tensors), "has more than 65536 tensors, the limit");
  std::string metadata;
  for (std::size_t i = 0; i <= 16384; ++i) metadata += numbered("\"", i) + "\":\"\",";
  EXPECT_EQ(header_fault("{\"__metadata__\":{" + metadata),
            "has more than 16384 entries of metadata, the limit");
  const std::string too_long =
      "has a string, or a gap between two, of more than 1048576 bytes in its header, the limit";
  const std::string longest(1048576, 'a');
  EXPECT_EQ(open(safetensors("{\"__metadata__\":{\"a\":\"" + longest + "\"}}")).metadata().at("a"), longest);
  EXPECT_EQ(header_fault("{\"__metadata__\":{\"a\":\"a" + longest + "\"}}"), too_long);
  EXPECT_EQ(header_fault("{" + std::string(1048577, ' ') + "}"), too_long);
  EXPECT_EQ(header_fault("{}" + std::string(1048577, ' ')), too_long);
  EXPECT_EQ(header_fault("{\"x\":{\"shape\":[" + std::string(1048577, '1') + "]}}"), too_long);
}

TEST_F(SafetensorsRead, AFileCutShortWhileItIsOpenIsAnError) {
  const SafetensorsReader reader =
      open(safetensors("{" + entry("x", "U8", "[100000]", "[0,100000]") + "}", std::string(100000, 'x')));
  ASSERT_EQ(truncate(path_.c_str(), 4096), 0);
  EXPECT_EQ(without_name(message_of([&] { (void)reader.read("x"); })),
            "ends at byte 4096; it was 100071 bytes long when it was opened");
}

TEST_F(SafetensorsRead, AnEscapedQuoteDoesNotEndAString) {
  const std::string text = "\\\\\\\" \\\\";
  EXPECT_EQ(open(safetensors("{\"__metadata__\":{\"" + text + "\":\"" + text + "\"}}")).metadata(),
            (std::map<std::string, std::string>{{"\\\" \\", "\\\" \\"}}));
}

TEST_F(SafetensorsRead, RefusingTakesNoMoreMemoryThanTheFileAndSixteenMebibytes) {
  // The largest number of entries, each as short as possible, the longest string, and the fault at the very
  // end.
  std::string header = "{";
  for (std::size_t i = 0; i < 65536; ++i) header += entry(numbered("", i), "U8", "[0]", "[0,0]") + ",";
  header += "\"__metadata__\":{";
  for (std::size_t i = 0; i < 16383; ++i) header += numbered("\"", i) + "\":\"\",";
  header += "\"a\":\"" + std::string(1048576, 'a') + "\"},}";
  write_file(path_, safetensors(header));
  const auto size = static_cast<std::int64_t>(header.size());
  std::string().swap(header);
  std::string message;
  const auto taken =
      peak_memory_of([&] { message = without_name(message_of([&] { SafetensorsReader reader(path_); })); });
  EXPECT_TRUE(message.starts_with("has a header that is not JSON")) << message;
  if (!taken) GTEST_SKIP() << heed::test::kUnmeasured;
  EXPECT_LE(*taken, size + (std::int64_t{16} << 20));
  EXPECT_GT(*taken, 0);
  RecordProperty("bytes_over_the_file", std::to_string(*taken - size));
}

// A small file of two tensors, one with metadata and escapes, for tests that damage it.
std::string small_file() {
  return safetensors("{\"__metadata__\":{\"k\":\"v\\u00e9\"}," + entry("a", "F32", "[1,2]", "[0,8]") + "," +
                         entry("b", "U8", "[3]", "[8,11]") + "}   ",
                     "12345678abc");
}

void expect_loads_or_is_refused(const std::string& path, const std::string& what) {
  try {
    (void)read_safetensors(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io) << what;
    EXPECT_TRUE(std::string_view(error.what()).starts_with("'" + path + "' "))
        << what << ": " << error.what();
  }
}

TEST_F(SafetensorsRead, EveryTruncationIsRefused) {
  const std::string file = small_file();
  EXPECT_EQ(fault(file), "no error");
  for (std::size_t length = 0; length < file.size(); ++length)
    EXPECT_NE(fault(file.substr(0, length)), "no error") << "the first " << length << " bytes";
}

TEST_F(SafetensorsRead, EveryHeaderByteWithEveryValueLoadsOrIsRefused) {
  const std::string content = small_file();
  write_file(path_, content);
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
  };
  for (std::size_t at = 0; at < content.size() - 11; put(at, content[at]), ++at)
    for (int value = 0; value < 256; ++value) {
      put(at, static_cast<char>(value));
      expect_loads_or_is_refused(path_, "byte " + std::to_string(at) + " = " + std::to_string(value));
    }
}

// The bytes of a tensor's elements.
std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.view().data()),
          static_cast<std::size_t>(tensor.count()) * heed::size_of(tensor.dtype())};
}

TEST_F(SafetensorsWrite, EveryDTypeAndRankComesBackAsItWas) {
  const std::vector<Dims> shapes{{}, {0}, {1}, {7}, {2, 3}, {2, 0}, {2, 3, 4}, {1, 2, 3, 4}, {2, 1, 3, 1, 5}};
  std::vector<Tensor> written;
  std::vector<std::pair<std::string, TensorView>> views;
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8, DType::boolean})
    for (const Dims& shape : shapes) {
      Tensor numbers(shape, DType::i32);
      std::int32_t next = 0;
      for (std::int32_t& value : numbers.values<std::int32_t>()) value = next++;
      written.push_back(Tensor::copy_of(numbers, dtype));
    }
  for (std::size_t i = 0; i < written.size(); ++i) views.emplace_back(numbered("t", i), written[i]);
  const std::map<std::string, std::string> metadata{{"format", "heed"}, {"", "\"\\\n\t\x01 h\xc3\xa9"}};
  write_safetensors(path_, views, metadata);

  const SafetensorsReader reader(path_);
  EXPECT_EQ(reader.metadata(), metadata);
  EXPECT_EQ(reader.names().size(), written.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    const Tensor back = reader.read(numbered("t", i));
    EXPECT_EQ(back.dtype(), written[i].dtype());
    EXPECT_EQ(back.shape(), written[i].shape());
    EXPECT_EQ(bytes_of(back), bytes_of(written[i]));
  }
  const TensorFile file = read_safetensors(path_);
  EXPECT_EQ(file.metadata, metadata);
  EXPECT_EQ(file.tensors.size(), written.size());
}

TEST_F(SafetensorsWrite, AViewIsWrittenAsItShows) {
  const Tensor base = Tensor::from<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  const std::vector<std::uint8_t> bools{0, 2, 255};
  write_safetensors(path_, {{"transposed", base.view().transpose(0, 1)},
                            {"reversed", TensorView(base.view().data_as<float>() + 5, {6}, {-1})},
                            {"bools", TensorView(bools.data(), DType::boolean, {3})}});
  const SafetensorsReader reader(path_);
  EXPECT_EQ(bytes_of(reader.read("transposed")), bytes_of(Tensor::from<float>({0, 3, 1, 4, 2, 5}, {6})));
  EXPECT_EQ(bytes_of(reader.read("reversed")), bytes_of(Tensor::from<float>({5, 4, 3, 2, 1, 0}, {6})));
  EXPECT_EQ(read_file(path_).substr(read_file(path_).size() - 3), std::string("\0\1\1", 3));
}

TEST_F(SafetensorsWrite, WideElementsComeFirstAndTheDataIsAligned) {
  const Tensor bytes({3}, DType::u8);
  const Tensor floats({5});
  const Tensor doubles({1}, DType::f64);
  const Tensor numbers({2}, DType::i32);
  write_safetensors(path_, {{"bytes", bytes}, {"floats", floats}, {"doubles", doubles}, {"an", numbers}});
  EXPECT_EQ(SafetensorsReader(path_).names(), (std::vector<std::string>{"doubles", "floats", "an", "bytes"}));
  const std::string file = read_file(path_);
  const std::size_t header = static_cast<unsigned char>(file[0]) + 256u * static_cast<unsigned char>(file[1]);
  EXPECT_EQ((8 + header) % 64, 0u);
  EXPECT_EQ(file.size(), 8 + header + 8 + 20 + 8 + 3);
  // The header is plain JSON, which another reader agrees on.
  const nlohmann::json json = nlohmann::json::parse(file.substr(8, header));
  EXPECT_EQ(json["floats"]["data_offsets"], (std::vector<int>{8, 28}));
  EXPECT_EQ(json["bytes"]["dtype"], "U8");
}

TEST_F(SafetensorsWrite, WhatCouldNotBeReadBackIsRefusedAndNothingWritten) {
  const Tensor x({1});
  const auto refused = [&](const std::vector<std::pair<std::string, TensorView>>& tensors,
                           const std::map<std::string, std::string>& metadata = {}) {
    return message_of([&] { write_safetensors(path_, tensors, metadata); });
  };
  const std::string cannot = "cannot write '" + path_ + "': ";
  EXPECT_EQ(refused({{"a", x}, {"b", x}, {"a", x}}), cannot + "two tensors are named 'a'");
  EXPECT_EQ(refused({{"__metadata__", x}}), cannot + "no tensor can be named '__metadata__'");
  EXPECT_EQ(refused({{"a\xff", x}}), cannot + "the name or text of metadata 'a?' is not UTF-8");
  EXPECT_EQ(refused({}, {{"k", "\xc3"}}), cannot + "the name or text of metadata '?' is not UTF-8");
  EXPECT_EQ(refused({{std::string(1048577, 'a'), x}}),
            cannot + "a name or text of metadata has 1048577 bytes; at most 1048576 are expected");
  std::vector<std::pair<std::string, TensorView>> many;
  for (int i = 0; i <= 65536; ++i) many.emplace_back(std::to_string(i), x);
  EXPECT_EQ(refused(many), cannot + "65537 tensors were given; at most 65536 are expected");
  std::map<std::string, std::string> entries;
  for (int i = 0; i <= 16384; ++i) entries[std::to_string(i)] = "";
  EXPECT_EQ(refused({}, entries),
            cannot + "16385 entries of metadata were given; at most 16384 are expected");
  for (int i = 0; i < 97; ++i) entries[std::to_string(i)] = std::string(1048576, 'x');
  entries.erase("16384");
  const std::string too_long = refused({}, entries);
  EXPECT_TRUE(too_long.starts_with(cannot + "its header would have ")) << too_long;
  EXPECT_TRUE(folder_.names().empty());
}

}  // namespace
