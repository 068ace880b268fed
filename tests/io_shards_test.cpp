// Reading and writing tensors shard by shard. A shard that is read equals the same part of the whole. Files
// written have the same bytes as if one process wrote them.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "heed/attention/sharding.hpp"
#include "heed/error.hpp"
#include "heed/io/shards.hpp"
#include "heed/io/tensors.hpp"
#include "io_support.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::PositionRange;
using heed::Sharding;
using heed::Tensor;
using heed::TensorView;
using heed::io::SharedNpyFiles;
using heed::io::TensorOnDisk;
using heed::io::write_npy_shard;
using heed::test::read_file;
using heed::test::write_file;

class IoShards : public testing::Test {
 protected:
  static Tensor counted(const Dims& shape, DType dtype) {
    Tensor tensor(shape, DType::f64);
    double next = 0;
    for (double& value : tensor.values<double>())
      value = dtype == DType::boolean ? std::fmod(next++, 3) : next++;
    return Tensor::copy_of(tensor, dtype);
  }
  // The bytes of view[index] for index in positions along an axis, element by element.
  static std::string picked(const TensorView& view, int axis, std::span<const PositionRange> positions) {
    std::vector<std::int64_t> chosen;
    for (const PositionRange& range : positions)
      for (std::int64_t i = range.begin; i < range.end; ++i) chosen.push_back(i);
    std::string bytes;
    const std::size_t width = size_of(view.dtype());
    std::vector<std::int64_t> index(static_cast<std::size_t>(view.rank()), 0);
    const std::function<void(int, std::int64_t)> walk = [&](int at, std::int64_t offset) {
      if (at == view.rank()) {
        bytes.append(static_cast<const char*>(view.data()) + static_cast<std::size_t>(offset) * width, width);
        return;
      }
      const std::int64_t stride = view.strides()[at];
      if (at == axis)
        for (const std::int64_t i : chosen) walk(at + 1, offset + i * stride);
      else
        for (std::int64_t i = 0; i < view.size(at); ++i) walk(at + 1, offset + i * stride);
    };
    walk(0, 0);
    return bytes;
  }
  static std::string bytes_of(const Tensor& tensor) {
    return {static_cast<const char*>(tensor.view().data()),
            static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype())};
  }
  void expect_error(const std::string& message, heed::ErrorCode code,
                    const std::function<void()>& call) const {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown; expected: " << message;
    } catch (const heed::Error& error) {
      EXPECT_EQ(std::string(error.what()), message);
      EXPECT_EQ(error.code(), code);
    }
  }

  heed::test::TemporaryFolder folder;
};

TEST_F(IoShards, EveryAxisIsReadByOffset) {
  const Tensor whole = counted({3, 7, 5}, DType::f32);
  heed::io::write_npy(folder / "x.npy", whole);
  heed::io::write_safetensors(folder / "x.safetensors", {{"other", counted({3}, DType::f64)}, {"x", whole}});
  for (const TensorOnDisk& file :
       {TensorOnDisk(folder / "x.npy"), TensorOnDisk(folder / "x.safetensors", "x")})
    for (int axis = 0; axis < 3; ++axis)
      for (const Sharding& sharding :
           {Sharding::contiguous(whole.size(axis), 3), Sharding::zigzag(whole.size(axis), 2),
            Sharding::striped(whole.size(axis), 2, 1)})
        for (int rank = 0; rank < sharding.ranks(); ++rank) {
          EXPECT_EQ(file.dtype(), DType::f32);
          EXPECT_EQ(file.shape(), whole.shape());
          const Tensor shard = file.read(axis - 3, sharding.ranges(rank));
          EXPECT_EQ(shard.size(axis), sharding.rows(rank));
          EXPECT_EQ(bytes_of(shard), picked(whole, axis, sharding.ranges(rank)));
        }
}

TEST_F(IoShards, AnEmptyTensorsOtherSizesMayBeAnything) {
  const std::string path = folder / "x.npy";
  heed::io::write_npy(path, Tensor({std::int64_t{1} << 56, 0}, DType::f32));
  const TensorOnDisk file(path);
  for (int axis = 0; axis < 2; ++axis)
    EXPECT_EQ(file.read(axis, Sharding::contiguous(file.shape()[axis], 1).ranges(0)).shape(), file.shape());
}

// Column-major files, files of the other byte order, and bools that are neither 0 nor 1: read_npy() converts
// all of them.
TEST_F(IoShards, WhatReadNpyTurnsRoundIsTurnedRoundHere) {
  const auto file = [&](const std::string& descr, const std::string& order, const std::string& shape,
                        const std::string& data) {
    std::string header =
        "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
    header.append(117 - header.size(), ' ');
    header += '\n';
    std::string start = "\x93NUMPY";
    start += {'\x01', '\x00', static_cast<char>(header.size()), '\x00'};
    write_file(folder / "y.npy", start + header + data);
  };
  std::string data;
  for (int i = 0; i < 480; ++i) data += static_cast<char>(i * 37);
  for (const auto& [descr, order, shape, bytes] :
       {std::tuple("<f8", "True", "(4, 5, 3)", 480), std::tuple(">i4", "True", "(5, 4, 6)", 480),
        std::tuple(">f2", "False", "(6, 5, 8)", 480), std::tuple("|b1", "True", "(20, 24)", 480),
        std::tuple("<f8", "True", "(60,)", 480)}) {
    file(descr, order, shape, data.substr(0, static_cast<std::size_t>(bytes)));
    const Tensor whole = heed::io::read_npy(folder / "y.npy");
    TensorOnDisk lazy(folder / "y.npy");
    const std::optional<TensorView> mapped = lazy.mapped();
    ASSERT_EQ(mapped.has_value(), descr[0] != '>') << descr;
    if (mapped) {
      EXPECT_EQ(bytes_of(Tensor::copy_of(*mapped)), bytes_of(whole)) << descr;
    }
    for (int axis = 0; axis < whole.rank(); ++axis) {
      const std::vector<PositionRange> some = {{1, 2}, {3, whole.size(axis)}};
      if (whole.size(axis) < 4) continue;
      EXPECT_EQ(bytes_of(lazy.read(axis, some)), picked(whole, axis, some)) << descr << axis;
    }
  }
}

TEST_F(IoShards, MappedTensorsAreWhatReadsOfThemAre) {
  const Tensor whole = counted({3, 2, 5}, DType::i32);
  heed::io::write_npy(folder / "row.npy", whole);
  heed::io::write_safetensors(folder / "two.safetensors",
                              {{"other", counted({7}, DType::f64)}, {"one", whole}});
  TensorOnDisk npy(folder / "row.npy"), named(folder / "two.safetensors", "one");
  for (TensorOnDisk* file : {&npy, &named}) {
    const std::optional<TensorView> mapped = file->mapped();
    ASSERT_TRUE(mapped);
    EXPECT_EQ(bytes_of(Tensor::copy_of(*mapped)), bytes_of(whole));
    EXPECT_EQ(file->mapped()->data(), mapped->data());
  }
  // A file from another program, whose elements begin at an odd byte.
  std::string header = R"({"one":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  if (header.size() % 2 == 0) header += ' ';
  write_file(folder / "odd.safetensors",
             static_cast<char>(header.size()) + std::string(7, '\0') + header + std::string(4, '\0'));
  EXPECT_FALSE(TensorOnDisk(folder / "odd.safetensors", "one").mapped());
}

TEST_F(IoShards, ShardsOfAllMakeTheFileOfOne) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::boolean}) {
    const Tensor whole = counted({2, 11, 3}, dtype);
    heed::io::write_npy(folder / "one.npy", whole);
    for (int axis = 0; axis < 3; ++axis) {
      const Sharding sharding = Sharding::striped(whole.size(axis), 3, 2);
      SharedNpyFiles files;
      const std::string temporary = files.add(folder / "many.npy", dtype, whole.shape());
      EXPECT_EQ(temporary.front(), '/');
      for (int rank = 2; rank >= 0; --rank)
        write_npy_shard(temporary, axis, sharding.ranges(rank), sharding.shard(whole, axis, rank));
      EXPECT_EQ(folder.names().size(), 2u);  // the temporary file, not its target
      files.commit();
      EXPECT_EQ(read_file(folder / "many.npy"), read_file(folder / "one.npy")) << name_of(dtype) << axis;
      std::filesystem::remove(folder / "many.npy");
    }
  }
  for (const Dims& shape : {Dims{}, Dims{0}, Dims{3, 0}, Dims{4}}) {
    const Tensor whole = counted(shape, DType::f32);
    heed::io::write_npy(folder / "one.npy", whole);
    SharedNpyFiles files;
    write_npy_shard(files.add(folder / "many.npy", DType::f32, shape), whole);
    files.commit();
    EXPECT_EQ(read_file(folder / "many.npy"), read_file(folder / "one.npy"));
  }
}

TEST_F(IoShards, AShardMayHaveAnyStrides) {
  const Tensor whole = counted({4, 6}, DType::f32);
  const TensorView turned(whole.view().data(), DType::f32, {6, 4}, {1, 6});
  heed::io::write_npy(folder / "one.npy", turned);
  SharedNpyFiles files;
  const std::string temporary = files.add(folder / "many.npy", DType::f32, {6, 4});
  write_npy_shard(temporary, turned);
  files.commit();
  EXPECT_EQ(read_file(folder / "many.npy"), read_file(folder / "one.npy"));
}

TEST_F(IoShards, AFullDiskIsAnError) {
  SharedNpyFiles files;
  const std::string path = files.add(folder / "x.npy", DType::f32, {4});
  const Tensor whole = counted({4}, DType::f32);
  expect_error("cannot write '" + path + "': File too large", heed::ErrorCode::io, [&] {
    const heed::test::FullDisk full(136);  // the header and two numbers
    write_npy_shard(path, whole);
  });
}

TEST_F(IoShards, WhatIsNotCommittedLeavesNothing) {
  write_file(folder / "old.npy", "as it was");
  {
    SharedNpyFiles files;
    (void)files.add(folder / "old.npy", DType::f32, {4});
    (void)files.add(folder / "new.npy", DType::f32, {4});
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"old.npy"});
  EXPECT_EQ(read_file(folder / "old.npy"), "as it was");
}

TEST_F(IoShards, FilesThatCannotBeReadAreRefused) {
  const std::string path = folder / "x.npy", subject = "'" + path + "'";
  const auto open = [&] { (void)TensorOnDisk(path); };
  expect_error("cannot open " + subject + ": No such file or directory", heed::ErrorCode::io, open);
  write_file(path, "");
  expect_error(subject + " is not a .npy file: it does not begin with \\x93NUMPY", heed::ErrorCode::io, open);
  heed::io::write_npy(path, counted({5}, DType::f32));
  const std::string whole = read_file(path);
  write_file(path, whole.substr(0, 20));
  expect_error(subject + " ends inside its header: 10 of 118 bytes are there", heed::ErrorCode::io, open);
  write_file(path, whole.substr(0, whole.size() - 1));
  expect_error(subject + " has 19 bytes of data; its shape [5] of f32 needs 20", heed::ErrorCode::io, open);
  write_file(path, whole + "x");
  expect_error(subject + " has 21 bytes of data; its shape [5] of f32 needs 20", heed::ErrorCode::io, open);
  ASSERT_EQ(mkfifo((folder / "pipe.npy").c_str(), 0600), 0);
  expect_error("\'" + (folder / "pipe.npy") + "' is not a regular file, which random access needs",
               heed::ErrorCode::io, [&] { (void)TensorOnDisk(folder / "pipe.npy"); });
  heed::io::write_safetensors(folder / "x.safetensors", {{"x", counted({3}, DType::f64)}});
  expect_error("\'" + (folder / "x.safetensors") + "' has no tensor 'y'; it has 'x'", heed::ErrorCode::io,
               [&] { (void)TensorOnDisk(folder / "x.safetensors", "y"); });
}

TEST_F(IoShards, PositionsThatAreNotThereAreRefused) {
  const std::string path = folder / "x.npy";
  heed::io::write_npy(path, counted({5, 2}, DType::f32));
  const TensorOnDisk file(path);
  using Ranges = std::vector<PositionRange>;
  const auto read = [&](int axis, const Ranges& ranges) {
    return [&file, axis, ranges] { (void)file.read(axis, ranges); };
  };
  const auto code = heed::ErrorCode::invalid_argument;
  expect_error("axis is 2; one of shape [5, 2] is expected", code, read(2, {}));
  expect_error("axis is -3; one of shape [5, 2] is expected", code, read(-3, {}));
  expect_error("positions 4 to 6 are requested; positions within 0 to 5 are expected", code,
               read(0, {{4, 6}}));
  expect_error("positions 3 to 2 are requested; positions within 0 to 5 are expected", code,
               read(0, {{3, 2}}));
  expect_error("positions -1 to 2 are requested; positions within 0 to 5 are expected", code,
               read(0, {{-1, 2}}));
  expect_error("positions 6 to 6 are requested; positions within 0 to 5 are expected", code,
               read(0, {{6, 6}}));
  for (const Ranges& none : {Ranges{}, Ranges{{0, 0}}, Ranges{{5, 5}}})
    EXPECT_EQ(file.read(0, none).shape(), (heed::Dims{0, 2}));
  EXPECT_EQ(file.read(0, {Ranges{{0, 5}}}).shape(), (heed::Dims{5, 2}));
}

// The data alone fit; with the header before them they do not.
TEST_F(IoShards, AFileOfMoreBytesThanItsSizeCanCountIsRefused) {
  SharedNpyFiles files;
  const std::string path = folder / "x.npy";
  expect_error("cannot write '" + path + "': File too large", heed::ErrorCode::io,
               [&] { (void)files.add(path, DType::u8, {INT64_MAX}); });
}

// The second of two files in one place would take the place of the first.
TEST_F(IoShards, APlaceHasOneFileUntilItIsCommitted) {
  SharedNpyFiles files;
  (void)files.add(folder / "x.npy", DType::f32, {2});
  const std::string again = folder / "./x.npy";
  expect_error("path is '" + again + "' once more; a file of its own for each tensor is expected",
               heed::ErrorCode::invalid_argument, [&] { (void)files.add(again, DType::f32, {3}); });
  expect_error("shape [-2] has a negative size", heed::ErrorCode::invalid_argument,
               [&] { (void)files.add(folder / "y.npy", DType::f32, {-2}); });
  files.commit();
  EXPECT_EQ(heed::io::read_npy(folder / "x.npy").shape(), Dims{2});
  (void)files.add(again, DType::f32, {3});
  files.commit();
  EXPECT_EQ(heed::io::read_npy(again).shape(), Dims{3});
}

TEST_F(IoShards, ShardsThatDoNotFitTheirFileAreRefused) {
  SharedNpyFiles files;
  const std::string path = files.add(folder / "x.npy", DType::f32, {5, 2});
  const std::vector<PositionRange> rows = {{1, 3}};
  const auto write = [&](const Tensor& shard) {
    return [&path, &rows, shard] { write_npy_shard(path, 0, rows, shard); };
  };
  const std::string expected = "[2, 2] and f32, row-major in '" + path + "', are expected";
  const auto code = heed::ErrorCode::invalid_argument;
  expect_error("shard has shape [3, 2] and dtype f32; " + expected, code, write(counted({3, 2}, DType::f32)));
  expect_error("shard has shape [2, 2] and dtype f64; " + expected, code, write(counted({2, 2}, DType::f64)));
  EXPECT_NO_THROW(write(counted({2, 2}, DType::f32))());
  // One file in the other byte order, and one in column-major order.
  for (const auto& [descr, order] : {std::pair(">f4", "False"), std::pair("<f4", "True")}) {
    std::string header =
        "{'descr': '" + std::string(descr) + "', 'fortran_order': " + order + ", 'shape': (5, 2), }";
    header.append(117 - header.size(), ' ');
    const std::string other = folder / "other.npy";
    const std::string whole =
        std::string("\x93NUMPY\x01") + '\0' + '\x76' + '\0' + header + '\n' + std::string(40, 'x');
    write_file(other, whole);
    expect_error(
        "shard has shape [2, 2] and dtype f32; [2, 2] and f32, row-major in '" + other + "', are expected",
        code, [&] {
          write_npy_shard(other, 0, rows, counted({2, 2}, DType::f32));
        });
    EXPECT_EQ(read_file(other), whole);
  }
  ASSERT_EQ(symlink("/dev/null", (folder / "null.npy").c_str()), 0);
  expect_error(
      "\'" + (folder / "null.npy") + "' is not a regular file, which writing by several processes needs",
      heed::ErrorCode::io, [&] { (void)files.add(folder / "null.npy", DType::f32, {5}); });
  expect_error("cannot write \'" + (folder / "none/x.npy") + "': No such file or directory",
               heed::ErrorCode::io, [&] { (void)files.add(folder / "none/x.npy", DType::f32, {5}); });
}

}  // namespace
