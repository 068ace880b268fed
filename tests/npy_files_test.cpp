// Writing several .npy files together: either all of them or none.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "heed/io/tensors.hpp"
#include "io/atomic_file.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::Tensor;
using heed::io::detail::AtomicFile;
using heed::test::bytes_of;
using heed::test::message_of;
using heed::test::read_file;
using heed::test::TemporaryFolder;
using heed::test::write_file;
using Names = std::vector<std::string>;

std::unique_ptr<AtomicFile> staged(const std::string& path, const std::string& content) {
  auto file = std::make_unique<AtomicFile>(path);
  file->write(bytes_of(content));
  return file;
}

TEST(NpyFiles, AreAllWritten) {
  const TemporaryFolder folder;
  write_file(folder / "b.npy", "old");
  heed::io::write_npy_files({{folder / "a.npy", Tensor::from<float>({1, 2}, {2})},
                             {folder / "b.npy", Tensor::from<std::int64_t>({3}, {1})}});
  EXPECT_EQ(heed::io::read_npy(folder / "a.npy").at<float>(1), 2);
  EXPECT_EQ(heed::io::read_npy(folder / "b.npy").at<std::int64_t>(0), 3);
  EXPECT_EQ(folder.names(), (Names{"a.npy", "b.npy"}));
}

// Writes in pieces of 4 MiB, counting numbers as they are stored: bf16 as f32. One tensor is empty.
TEST(NpyFiles, TellHowMuchIsWritten) {
  const TemporaryFolder folder;
  std::vector<double> shares;
  heed::io::write_npy_files({{folder / "a.npy", Tensor({3, 1 << 20}, heed::DType::f32)},
                             {folder / "b.npy", Tensor({0, 5}, heed::DType::f32)},
                             {folder / "c.npy", Tensor({1 << 20}, heed::DType::bf16)}},
                            [&](double share) { shares.push_back(share); });
  EXPECT_EQ(shares, (std::vector<double>{0.25, 0.5, 0.75, 1}));
  shares.clear();
  heed::io::write_npy_files({{folder / "a.npy", Tensor({(1 << 20) + 1}, heed::DType::f32)}},
                            [&](double share) { shares.push_back(share); });
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_LT(shares[0], 1);
  EXPECT_EQ(shares[1], 1);
  heed::io::write_npy_files({{folder / "a.npy", Tensor({0}, heed::DType::f32)}},
                            [&](double) { FAIL() << "there is nothing to write"; });
  EXPECT_EQ(folder.names(), (Names{"a.npy", "b.npy", "c.npy"}));
}

TEST(NpyFiles, AreNotWrittenWhereOneOfThemCannotBe) {
  const TemporaryFolder folder;
  write_file(folder / "a.npy", "old");
  const Tensor tensor({1});
  EXPECT_EQ(message_of([&] {
              heed::io::write_npy_files(
                  {{folder / "a.npy", tensor}, {folder / "b.npy", tensor}, {folder / "none/c.npy", tensor}});
            }),
            "cannot write '" + (folder / "none/c.npy") + "': No such file or directory");
  EXPECT_EQ(folder.names(), Names{"a.npy"});
  EXPECT_EQ(read_file(folder / "a.npy"), "old");
}

TEST(NpyFiles, AreRefusedWhereTwoAreOneFile) {
  const TemporaryFolder folder;
  write_file(folder / "a.npy", "old");
  std::filesystem::create_symlink("a.npy", folder / "link.npy");
  const Tensor tensor({1});
  for (const char* second : {"a.npy", "./a.npy", "link.npy"})
    EXPECT_EQ(message_of([&] {
                heed::io::write_npy_files({{folder / "a.npy", tensor}, {folder / second, tensor}});
              }),
              "files writes '" + (folder / second) + "' twice; a file for each tensor is expected");
  EXPECT_EQ(message_of([&] {
              heed::io::write_npy_files({{folder / "new.npy", tensor}, {folder / "./new.npy", tensor}});
            }),
            "files writes '" + (folder / "./new.npy") + "' twice; a file for each tensor is expected");
  EXPECT_EQ(folder.names(), (Names{"a.npy", "link.npy"}));
  EXPECT_EQ(read_file(folder / "a.npy"), "old");
}

// The last rename fails, because its folder is gone. The four files renamed before it must be restored.
TEST(NpyFiles, AreTakenBackWhereTheLastRenameFails) {
  const TemporaryFolder folder;
  const std::string gone = folder / "gone";
  std::filesystem::create_directory(gone);
  write_file(folder / "replaced", "old");
  std::vector<std::unique_ptr<AtomicFile>> files;
  files.push_back(staged(folder / "replaced", "new"));
  files.push_back(staged(folder / "replaced", "newer"));
  files.push_back(staged(folder / "created", "new"));
  files.push_back(staged(folder / "created", "newer"));
  files.push_back(staged(gone + "/c", "new"));
  std::filesystem::remove_all(gone);
  EXPECT_EQ(message_of([&] { commit_together(files); }),
            "cannot write '" + gone + "/c': No such file or directory");
  files.clear();
  EXPECT_EQ(folder.names(), Names{"replaced"});
  EXPECT_EQ(read_file(folder / "replaced"), "old");
}

TEST(NpyFiles, ThatAreDevicesAreWrittenStraight) {
  heed::io::write_npy_files({{"/dev/null", Tensor({3})}, {"/dev/null", Tensor({3})}});
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

}  // namespace
