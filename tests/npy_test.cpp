#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "io/npy_header.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Error;
using heed::Tensor;
using heed::TensorView;
using heed::io::read_npy;
using heed::io::read_npy_bytes;
using heed::io::write_npy;
using heed::test::bytes_of;
using heed::test::message_of;
using heed::test::peak_memory_of;
using heed::test::read_file;
using heed::test::TemporaryFolder;
using heed::test::write_file;

// A hand-made .npy file: version, verbatim header text, and the bytes of the elements.
std::string npy(int major, const std::string& header, const std::string& data) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(major);
  file += '\0';
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  for (std::size_t i = 0; i < length_bytes; ++i) file += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return file + header + data;
}

std::string npy_of(const std::string& dtype, const std::string& order, const std::string& shape,
                   const std::string& data) {
  return npy(1, "{'descr': '" + dtype + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n",
             data);
}

// The bytes of numbers in either byte order, whatever this machine's is.
template <class Bits>
std::string bytes_in_order(const std::vector<Bits>& values, bool big_endian) {
  std::string bytes;
  for (const Bits value : values)
    for (std::size_t i = 0; i < sizeof(Bits); ++i) {
      const std::size_t place = big_endian ? sizeof(Bits) - 1 - i : i;
      bytes += static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * place)) & 0xff);
    }
  return bytes;
}

Tensor parse(const std::string& file) { return read_npy_bytes(bytes_of(file), "x.npy"); }
std::string fault(const std::string& file) {
  return message_of([&] { (void)parse(file); });
}

TEST(NpyRead, EveryDTypeInBothByteOrders) {
  for (const bool big : {false, true}) {
    SCOPED_TRACE(big ? "big endian" : "little endian");
    const std::string order = big ? ">" : "<";
    const Tensor f64 =
        parse(npy_of(order + "f8", "False", "(2,)",
                     bytes_in_order<std::uint64_t>({0x3ff8000000000000, 0xc000000000000000}, big)));
    EXPECT_EQ(f64.at<double>(0), 1.5);
    EXPECT_EQ(f64.at<double>(1), -2.0);
    const Tensor f32 = parse(
        npy_of(order + "f4", "False", "(2,)", bytes_in_order<std::uint32_t>({0x3fc00000, 0xff800000}, big)));
    EXPECT_EQ(f32.at<float>(0), 1.5f);
    EXPECT_EQ(f32.at<float>(1), -std::numeric_limits<float>::infinity());
    const Tensor f16 =
        parse(npy_of(order + "f2", "False", "(1,)", bytes_in_order<std::uint16_t>({0x3e00}, big)));
    EXPECT_EQ(heed::to_float(f16.at<heed::Float16>(0)), 1.5f);
    const Tensor i64 = parse(
        npy_of(order + "i8", "False", "(1,)", bytes_in_order<std::uint64_t>({0xfffffffffffffffe}, big)));
    EXPECT_EQ(i64.at<std::int64_t>(0), -2);
    const Tensor i32 =
        parse(npy_of(order + "i4", "False", "(1,)", bytes_in_order<std::uint32_t>({0x01020304}, big)));
    EXPECT_EQ(i32.at<std::int32_t>(0), 0x01020304);
    // A single byte has no byte order; all order characters are accepted.
    EXPECT_EQ(parse(npy_of(order + "u1", "False", "(1,)", "\xfe")).at<std::uint8_t>(0), 0xfe);
    EXPECT_TRUE(parse(npy_of(order + "b1", "False", "(1,)", "\x01")).at<bool>(0));
  }
}

TEST(NpyRead, NoByteOrderIsThatOfTheMachine) {
  const float value = 1.5f;
  const std::string data(reinterpret_cast<const char*>(&value), sizeof value);
  EXPECT_EQ(parse(npy_of("=f4", "False", "(1,)", data)).at<float>(0), value);
  EXPECT_EQ(parse(npy_of("f4", "False", "(1,)", data)).at<float>(0), value);
  EXPECT_EQ(parse(npy_of("|u1", "False", "(1,)", "\x07")).at<std::uint8_t>(0), 7);
}

TEST(NpyRead, ABoolIsZeroOrOneWhateverByteTheFileHas) {
  const Tensor tensor = parse(npy_of("|b1", "False", "(4,)", std::string("\x00\x01\x02\xff", 4)));
  EXPECT_EQ(tensor.dtype(), DType::boolean);
  const auto* bytes = static_cast<const std::uint8_t*>(tensor.view().data());
  EXPECT_EQ(std::vector<int>(bytes, bytes + 4), (std::vector<int>{0, 1, 1, 1}));
}

TEST(NpyRead, FortranOrderBecomesRowMajor) {
  // Element (a, b, c) holds 100 a + 10 b + c; the file's first axis runs fastest.
  std::string data;
  for (int c = 0; c < 4; ++c)
    for (int b = 0; b < 3; ++b)
      for (int a = 0; a < 2; ++a) data += static_cast<char>(100 * a + 10 * b + c);
  const Tensor tensor = parse(npy_of("|u1", "True", "(2, 3, 4)", data));
  ASSERT_EQ(tensor.shape(), (Dims{2, 3, 4}));
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 3; ++b)
      for (int c = 0; c < 4; ++c) EXPECT_EQ(tensor.at<std::uint8_t>(a, b, c), 100 * a + 10 * b + c);
}

TEST(NpyRead, FortranOrderAndTheOtherByteOrderTogether) {
  const Tensor tensor =
      parse(npy_of(">i4", "True", "(2, 3)", bytes_in_order<std::uint32_t>({0, 10, 1, 11, 2, 12}, true)));
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 3; ++b) EXPECT_EQ(tensor.at<std::int32_t>(a, b), 10 * a + b);
}

TEST(NpyRead, RanksFromNoAxesToFive) {
  const std::vector<std::pair<std::string, Dims>> shapes{{"()", Dims{}},
                                                         {"(2,)", {2}},
                                                         {"(1, 2)", {1, 2}},
                                                         {"(2, 1, 1)", {2, 1, 1}},
                                                         {"(1,1,1,2)", {1, 1, 1, 2}},
                                                         {"(1, 1, 2, 1, 1,)", {1, 1, 2, 1, 1}}};
  for (const auto& [text, shape] : shapes)
    for (const char* order : {"False", "True"}) {
      SCOPED_TRACE(text);
      const Tensor tensor = parse(npy_of("|u1", order, text, shape.size() == 0 ? "\x05" : "\x05\x06"));
      EXPECT_EQ(tensor.shape(), shape);
      EXPECT_EQ(tensor.values<std::uint8_t>()[0], 5);
    }
}

TEST(NpyRead, AnAxisOfSizeZeroNeedsNoData) {
  const Tensor tensor = parse(npy_of("<f4", "True", "(3, 0, 2)", ""));
  EXPECT_EQ(tensor.shape(), (Dims{3, 0, 2}));
  EXPECT_EQ(tensor.count(), 0);
}

TEST(NpyRead, VersionsOneToThreeAndEverySpellingOfTheHeader) {
  const std::string plain = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}";
  const std::vector<std::string> headers{
      plain,
      plain + "   \n",
      "{'descr':'|u1','fortran_order':False,'shape':(1,),}",
      "{ \"shape\" : ( 1 , ) ,\n\t\"fortran_order\" : True , \"descr\" : \"|u1\" , }",
  };
  for (const int version : {1, 2, 3})
    for (const std::string& header : headers)
      EXPECT_EQ(parse(npy(version, header, "\x09")).at<std::uint8_t>(0), 9) << header;
}

TEST(NpyRead, StandardInputIsNamedByADash) {
  const std::string file = npy_of("|u1", "False", "(3,)", "abc");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], file.data(), file.size()), static_cast<ssize_t>(file.size()));
  close(ends[1]);
  const int saved = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  const Tensor tensor = read_npy("-");
  const std::string at_the_end = message_of([] { (void)read_npy("-"); });
  dup2(saved, STDIN_FILENO);
  close(saved);
  close(ends[0]);
  EXPECT_EQ(tensor.at<std::uint8_t>(2), 'c');
  EXPECT_EQ(at_the_end, "standard input is not a .npy file: it does not begin with \\x93NUMPY");
}

TEST(NpyRead, APipeIsReadInPiecesAndCheckedAtItsEnd) {
  // Larger than one piece of 8 MiB, so bytes are read before memory for all of them is allocated.
  const std::size_t count = (std::size_t{8} << 20) + 5;
  const std::string file =
      npy_of("|u1", "False", "(" + std::to_string(count) + ",)", std::string(count, 'z'));
  const TemporaryFolder folder;
  const std::string path = folder / "pipe";
  const auto read_through_pipe = [&](const std::string& content) {
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    std::thread writer([&] { write_file(path, content); });
    std::string message = "no error";
    try {
      const Tensor tensor = read_npy(path);
      EXPECT_EQ(tensor.count(), static_cast<std::int64_t>(count));
      for (const std::uint8_t value : tensor.values<std::uint8_t>())
        if (value != 'z') ADD_FAILURE() << "a byte is " << int{value};
    } catch (const Error& error) {
      message = error.what();
    }
    writer.join();
    std::filesystem::remove(path);
    return message;
  };
  const std::string needs = " bytes of data; its shape [8388613] of u8 needs 8388613";
  EXPECT_EQ(read_through_pipe(file), "no error");
  EXPECT_EQ(read_through_pipe(file.substr(0, file.size() - 1)), "'" + path + "' has 8388612" + needs);
  EXPECT_EQ(read_through_pipe(file + "z"), "'" + path + "' has more than 8388613" + needs);
}

TEST(NpyRead, WhatCannotBeOpenedIsNamedWithTheReason) {
  const TemporaryFolder folder;
  EXPECT_EQ(message_of([&] { (void)read_npy(folder / "none.npy"); }),
            "cannot open '" + (folder / "none.npy") + "': No such file or directory");
  EXPECT_EQ(message_of([&] { (void)read_npy(folder / "."); }),
            "cannot read '" + (folder / ".") + "': Is a directory");
  const std::string cut = (folder / "x.npy") + std::string("\0.txt", 5);  // a system call would write "x.npy"
  const std::string message =
      "the path '" + (folder / "x.npy") + "' goes on after a NUL byte, which no file's name has";
  EXPECT_EQ(message_of([&] { heed::io::write_npy(cut, Tensor({1})); }), message);
  EXPECT_EQ(message_of([&] { (void)read_npy(cut); }), message);
}

TEST(NpyRead, AFaultBeforeTheHeaderIsNamed) {
  EXPECT_EQ(fault(""), "'x.npy' is not a .npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(fault("\x93NUM"), "'x.npy' is not a .npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(fault("PK\x03\x04 a zip file"), "'x.npy' is not a .npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(fault("\x93NUMPY\x01"), "'x.npy' ends inside its version");
  EXPECT_EQ(fault(npy(4, "{}", "")),
            "'x.npy' has version 4.0 of the .npy format; 1.0, 2.0 or 3.0 is expected");
  EXPECT_EQ(fault(std::string("\x93NUMPY\x01\x01\x02\x00{}", 12)),
            "'x.npy' has version 1.1 of the .npy format; 1.0, 2.0 or 3.0 is expected");
  EXPECT_EQ(fault(std::string("\x93NUMPY\x01\x00\x02", 9)),
            "'x.npy' ends inside its header's length: 1 of 2 bytes are there");
  EXPECT_EQ(fault(std::string("\x93NUMPY\x01\x00\x05\x00{", 11)),
            "'x.npy' ends inside its header: 1 of 5 bytes are there");
  EXPECT_EQ(fault(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14)),
            "'x.npy' has a header of 4294967295 bytes; at most 10000 are expected");
  EXPECT_EQ(fault(npy(1, std::string(10001, ' '), "")),
            "'x.npy' has a header of 10001 bytes; at most 10000 are expected");
}

TEST(NpyRead, AFaultInTheHeaderIsNamed) {
  const auto header_fault = [](const std::string& header) { return fault(npy(1, header, "\x01")); };
  const std::string broken = "'x.npy' has a broken header: ";
  EXPECT_EQ(header_fault(""), broken + "'{' is expected at its byte 0");
  EXPECT_EQ(header_fault(" {}"), broken + "'{' is expected at its byte 0");
  EXPECT_EQ(header_fault("{,}"), broken + "a key is expected at its byte 1");
  EXPECT_EQ(header_fault("{descr: 1}"), broken + "a key is expected at its byte 1");
  EXPECT_EQ(header_fault("{'descr' '|u1'}"), broken + "':' is expected at its byte 9");
  EXPECT_EQ(header_fault("{'descr': '|u1' 'shape': ()}"), broken + "',' or '}' is expected at its byte 16");
  EXPECT_EQ(header_fault("{'descr': 5}"), broken + "the name of a dtype is expected at its byte 10");
  EXPECT_EQ(header_fault("{'descr': '|u1"), broken + "a printable character is expected at its byte 14");
  EXPECT_EQ(header_fault("{'descr': '\\x7cu1'}"),
            broken + "a printable character is expected at its byte 11");
  EXPECT_EQ(header_fault("{'fortran_order': 1}"), broken + "True or False is expected at its byte 18");
  EXPECT_EQ(header_fault("{'shape': [1]}"), broken + "'(' is expected at its byte 10");
  EXPECT_EQ(header_fault("{'shape': (1)}"), broken + "',' is expected at its byte 12");
  EXPECT_EQ(header_fault("{'shape': (1 2)}"), broken + "',' or ')' is expected at its byte 13");
  EXPECT_EQ(header_fault("{'shape': (,)}"), broken + "a whole number is expected at its byte 11");
  EXPECT_EQ(header_fault("{'shape': (True,)}"), broken + "a whole number is expected at its byte 11");
  EXPECT_EQ(header_fault("{'shape': (01,)}"), broken + "a whole number is expected at its byte 11");
  EXPECT_EQ(header_fault("{'shape': (1.0,)}"), broken + "',' or ')' is expected at its byte 12");
  EXPECT_EQ(header_fault("{'shape': (1,)} {"), broken + "nothing more is expected at its byte 16");
  EXPECT_EQ(header_fault("{'shape': (-1,)}"), "'x.npy' has a negative size in its shape");
  EXPECT_EQ(header_fault("{'shape': (1, 9223372036854775808)}"),
            "'x.npy' has the size '9223372036854775808' in its shape, which 64 bits cannot hold");
  EXPECT_EQ(header_fault("{'shape': (1, 1, 1, 1, 1, 1)}"),
            "'x.npy' has an array of more than the 5 axes that are supported");
  EXPECT_EQ(header_fault("{'shape': (), 'shape': ()}"), "'x.npy' has the key 'shape' twice in its header");
  EXPECT_EQ(header_fault("{'size': 3}"),
            "'x.npy' has the key 'size' in its header; descr, fortran_order and shape are expected");
  EXPECT_EQ(header_fault("{}"), "'x.npy' has a header without 'descr'");
  EXPECT_EQ(header_fault("{'descr': '|u1'}"), "'x.npy' has a header without 'fortran_order'");
  EXPECT_EQ(header_fault("{'descr': '|u1', 'fortran_order': False}"), "'x.npy' has a header without 'shape'");
}

TEST(NpyRead, ADTypeThatIsNotReadIsNamed) {
  const auto dtype_fault = [](const std::string& dtype) { return fault(npy_of(dtype, "False", "(1,)", "")); };
  const std::string expected = "; f8, f4, f2, i8, i4, u1 or b1 is expected";
  EXPECT_EQ(dtype_fault("|O"), "'x.npy' has the dtype '|O' (Python objects)" + expected);
  EXPECT_EQ(dtype_fault("<c8"), "'x.npy' has the dtype '<c8' (complex numbers)" + expected);
  EXPECT_EQ(dtype_fault("<U5"), "'x.npy' has the dtype '<U5' (text)" + expected);
  EXPECT_EQ(dtype_fault("|S1"), "'x.npy' has the dtype '|S1' (text)" + expected);
  EXPECT_EQ(dtype_fault("|V2"), "'x.npy' has the dtype '|V2' (raw bytes)" + expected);
  EXPECT_EQ(dtype_fault("<M8[ns]"), "'x.npy' has the dtype '<M8[ns]' (times)" + expected);
  EXPECT_EQ(dtype_fault("<u4"), "'x.npy' has the dtype '<u4'" + expected);
  EXPECT_EQ(dtype_fault("<i2"), "'x.npy' has the dtype '<i2'" + expected);
  EXPECT_EQ(dtype_fault("|f4"), "'x.npy' has the dtype '|f4'" + expected);
  EXPECT_EQ(dtype_fault(""), "'x.npy' has the dtype ''" + expected);
  EXPECT_EQ(dtype_fault(std::string(200, 'f')),
            "'x.npy' has the dtype '" + std::string(64, 'f') + "…'" + expected);
  EXPECT_EQ(fault(npy(1, "{'descr': [('a', '<f4')]}", "")), "'x.npy' has a structured dtype" + expected);
}

TEST(NpyRead, DataMustBeAsLongAsTheShapeSays) {
  const std::string file = npy_of("<f4", "False", "(2, 3)", std::string(24, 'x'));
  EXPECT_EQ(fault(file.substr(0, file.size() - 1)),
            "'x.npy' has 23 bytes of data; its shape [2, 3] of f32 needs 24");
  EXPECT_EQ(fault(file + "x"), "'x.npy' has 25 bytes of data; its shape [2, 3] of f32 needs 24");
  EXPECT_EQ(fault(npy_of("<f4", "True", "(2, 3)", "")),
            "'x.npy' has 0 bytes of data; its shape [2, 3] of f32 needs 24");
  EXPECT_EQ(fault(npy_of("<f8", "False", "(4611686018427387904,)", "")),
            "'x.npy' has the shape [4611686018427387904] of f64, more bytes than 64 bits can count");
  EXPECT_EQ(fault(npy_of("|u1", "False", "(4611686018427387904, 4)", "")),
            "'x.npy' has the shape [4611686018427387904, 4] of u8, more bytes than 64 bits can count");
}

TEST(NpyRead, AHeaderThatPromisesMoreThanTheFileHoldsTakesNoMemory) {
  const TemporaryFolder folder;
  const std::string path = folder / "big.npy";
  const std::string file = npy_of("|u1", "False", "(68719476736,)", "only these");
  std::string message;
  const auto read = [&] { message = message_of([&] { (void)read_npy(path); }); };
  const std::string expected =
      "'" + path + "' has 10 bytes of data; its shape [68719476736] of u8 needs 68719476736";
  write_file(path, file);
  const auto taken = peak_memory_of(read);
  EXPECT_EQ(message, expected);
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { write_file(path, file); });
  const auto taken_of_a_pipe = peak_memory_of(read);
  writer.join();
  EXPECT_EQ(message, expected);
  if (!taken || !taken_of_a_pipe) GTEST_SKIP() << heed::test::kUnmeasured;
  EXPECT_LE(*taken, std::int64_t{1} << 20);
  EXPECT_LE(*taken_of_a_pipe, std::int64_t{16} << 20);
}

// A file either loads or is refused with a message that names it.
void expect_loads_or_is_refused(const std::string& file, const std::string& what) {
  try {
    (void)parse(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), heed::ErrorCode::io) << what;
    EXPECT_TRUE(std::string_view(error.what()).starts_with("'x.npy' ")) << what << ": " << error.what();
  }
}

TEST(NpyRead, EveryTruncationIsRefused) {
  for (const int version : {1, 2, 3}) {
    const std::string file = npy(
        version, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }      \n", std::string(24, 'x'));
    for (std::size_t length = 0; length < file.size(); ++length)
      EXPECT_NE(fault(file.substr(0, length)), "no error") << "the first " << length << " bytes";
  }
}

TEST(NpyRead, EveryHeaderByteWithEveryValueLoadsOrIsRefused) {
  const std::string header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }      \n";
  for (const int version : {1, 2, 3}) {
    const std::string file = npy(version, header, std::string(24, 'x'));
    for (std::size_t at = 0; at < file.size() - 24; ++at)
      for (int value = 0; value < 256; ++value) {
        std::string mutant = file;
        mutant[at] = static_cast<char>(value);
        expect_loads_or_is_refused(mutant, "byte " + std::to_string(at) + " = " + std::to_string(value));
      }
  }
}

TEST(NpyWrite, EveryDTypeAndRankComesBackAsItWas) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  const std::vector<Dims> shapes{{}, {0}, {1}, {7}, {2, 3}, {2, 0}, {2, 3, 4}, {1, 2, 3, 4}, {2, 1, 3, 1, 5}};
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean})
    for (const Dims& shape : shapes) {
      SCOPED_TRACE(std::string(heed::name_of(dtype)) + " " + heed::to_string(shape));
      Tensor numbers(shape, DType::i32);
      std::int32_t next = 0;
      for (std::int32_t& value : numbers.values<std::int32_t>()) value = next++;
      const Tensor written = Tensor::copy_of(numbers, dtype);
      write_npy(path, written);
      const Tensor back = read_npy(path);
      ASSERT_EQ(back.dtype(), dtype);
      ASSERT_EQ(back.shape(), shape);
      const std::size_t bytes = static_cast<std::size_t>(back.count()) * heed::size_of(dtype);
      EXPECT_EQ(std::string_view(static_cast<const char*>(back.view().data()), bytes),
                std::string_view(static_cast<const char*>(written.view().data()), bytes));
    }
}

TEST(NpyWrite, AViewIsWrittenAsItShows) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  const Tensor base = Tensor::from<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  const auto written = [&](const TensorView& view) {
    write_npy(path, view);
    const Tensor back = read_npy(path);
    const auto values = back.values<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(written(base.view().transpose(0, 1)), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(written(TensorView(base.view().data_as<float>() + 5, {6}, {-1})),
            (std::vector<float>{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(written(base.view().narrow(1, 1, 1).expand({2, 2})), (std::vector<float>{1, 1, 4, 4}));
}

TEST(NpyWrite, BFloat16IsWrittenAsFloat32) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  write_npy(path, Tensor::from<heed::BFloat16>({heed::to_bfloat16(1.5f), heed::to_bfloat16(-3.0f)}, {2}));
  const Tensor back = read_npy(path);
  EXPECT_EQ(back.dtype(), DType::f32);
  EXPECT_EQ(back.at<float>(0), 1.5f);
  EXPECT_EQ(back.at<float>(1), -3.0f);
}

TEST(NpyWrite, AHeaderCannotNameBFloat16) {
  EXPECT_EQ(message_of([] { (void)heed::io::detail::npy_header_text(DType::bf16, {2}); }),
            "the .npy format has no name for the dtype bf16");
}

TEST(NpyWrite, ABoolOfAnyByteIsWrittenAsZeroOrOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  const std::vector<std::uint8_t> bytes{0, 2, 255};
  write_npy(path, TensorView(bytes.data(), DType::boolean, {3}));
  EXPECT_EQ(read_file(path).substr(128), std::string("\x00\x01\x01", 3));
}

TEST(NpyWrite, TheFileIsThatOfNumPyToTheByte) {
  // numpy.save(path, numpy.array([[1, 2, 3]], dtype='int32')), NumPy 2.4.
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  write_npy(path, Tensor::from<std::int32_t>({1, 2, 3}, {1, 3}));
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 3), }";
  header += std::string(117 - header.size(), ' ') + "\n";
  EXPECT_EQ(read_file(path), npy(1, header, bytes_in_order<std::uint32_t>({1, 2, 3}, false)));
}

}  // namespace
