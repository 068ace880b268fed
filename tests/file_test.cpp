#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "io/atomic_file.hpp"
#include "io/held_temporary.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

namespace fs = std::filesystem;

using heed::Tensor;
using heed::io::read_npy;
using heed::io::write_npy;
using heed::io::write_safetensors;
using heed::io::detail::AtomicFile;
using heed::test::bytes_of;
using heed::test::FullDisk;
using heed::test::message_of;
using heed::test::read_file;
using heed::test::TemporaryFolder;
using heed::test::write_file;

using Names = std::vector<std::string>;

void write_whole(const std::string& path, const std::string& content) {
  AtomicFile file(path);
  file.write(bytes_of(content));
  file.commit();
}

unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 07777u;
}

// Root may do everything, so permissions are tested as another user.
class AsOrdinaryUser {
 public:
  AsOrdinaryUser() : was_root_(geteuid() == 0) {
    if (was_root_ && seteuid(65534) != 0) throw std::runtime_error("cannot become another user");
  }
  AsOrdinaryUser(const AsOrdinaryUser&) = delete;
  AsOrdinaryUser& operator=(const AsOrdinaryUser&) = delete;
  ~AsOrdinaryUser() {
    if (was_root_ && seteuid(0) != 0) abort();
  }

 private:
  bool was_root_;
};

TEST(AtomicFile, TheTargetChangesAtTheCommitAndNotBefore) {
  const TemporaryFolder folder;
  const std::string path = folder / "x";
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write(bytes_of("new and "));
    file.write(bytes_of("longer"));
    EXPECT_EQ(read_file(path), "old");
    file.commit();
  }
  EXPECT_EQ(read_file(path), "new and longer");
  EXPECT_EQ(folder.names(), Names{"x"});
}

TEST(AtomicFile, WithoutACommitNothingIsLeft) {
  const TemporaryFolder folder;
  write_file(folder / "x", "old");
  for (const char* name : {"x", "y"}) {
    AtomicFile file(folder / name);
    file.write(bytes_of("new"));
    EXPECT_EQ(folder.names().size(), 2u);
  }
  EXPECT_EQ(folder.names(), Names{"x"});
  EXPECT_EQ(read_file(folder / "x"), "old");
}

TEST(AtomicFile, InstallsNoSignalHandler) {
  const TemporaryFolder folder;
  const AtomicFile file(folder / "x");
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction action {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, SIG_DFL);
  }
}

TEST(HeldTemporary, SignalsWaitWhileFilesChangePlaces) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    heed::io::detail::remove_temporaries_at_signals();
    std::vector<std::unique_ptr<AtomicFile>> many;  // more than the list holds
    for (int i = 0; i < 100; ++i) many.push_back(std::make_unique<AtomicFile>(folder / std::to_string(i)));
    many.clear();
    const AtomicFile held(folder / "never");
    {
      const heed::io::detail::SignalsWait wait;
      raise(SIGTERM);
      write_file(folder / "after", "the signal waits");
    }
    _exit(1);  // not reached
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  EXPECT_EQ(folder.names(), Names{"after"});
}

TEST(AtomicFile, ANewFileHasThePermissionsOfTheUmaskAndAnOldOneKeepsItsOwn) {
  const TemporaryFolder folder;
  const mode_t before = umask(027);
  write_whole(folder / "new", "x");
  write_file(folder / "old", "x");
  ASSERT_EQ(chmod((folder / "old").c_str(), 0606), 0);
  write_whole(folder / "old", "y");
  umask(before);
  EXPECT_EQ(mode_of(folder / "new"), 0640u);
  EXPECT_EQ(mode_of(folder / "old"), 0606u);
  EXPECT_EQ(read_file(folder / "old"), "y");
}

TEST(AtomicFile, ASymbolicLinkIsFollowed) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "sub");
  write_file(folder / "sub/real", "old");
  fs::create_symlink("sub/real", folder / "relative");
  fs::create_symlink(folder / "relative", folder / "absolute");
  fs::create_symlink("sub/later", folder / "dangling");
  write_whole(folder / "absolute", "new");
  write_whole(folder / "dangling", "made");
  EXPECT_EQ(read_file(folder / "sub/real"), "new");
  EXPECT_EQ(read_file(folder / "sub/later"), "made");
  for (const char* link : {"relative", "absolute", "dangling"}) EXPECT_TRUE(fs::is_symlink(folder / link));

  fs::create_symlink("loop", folder / "loop");
  EXPECT_EQ(message_of([&] { write_whole(folder / "loop", "x"); }),
            "cannot write '" + (folder / "loop") + "': Too many levels of symbolic links");
}

TEST(AtomicFile, RelativePathsAndLongNames) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder / ".");
  const std::string longest(255, 'n');
  write_whole("x", "1");
  write_whole("./../" + fs::current_path().filename().string() + "/y", "2");
  write_whole(longest, "3");
  fs::current_path(before);
  EXPECT_EQ(read_file(folder / "x"), "1");
  EXPECT_EQ(read_file(folder / "y"), "2");
  EXPECT_EQ(read_file(folder / longest), "3");
}

TEST(AtomicFile, AFolderThatChangesItsNameKeepsWhatIsWrittenInIt) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "a");
  AtomicFile file(folder / "a/x");
  fs::rename(folder / "a", folder / "b");
  file.write(bytes_of("new"));
  file.commit();
  EXPECT_EQ(read_file(folder / "b/x"), "new");
}

TEST(AtomicFile, WhereNothingCanBeWrittenIsNamedWithTheReason) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  const auto fault = [](const std::string& path) { return message_of([&] { write_whole(path, "x"); }); };
  EXPECT_EQ(fault(""), "cannot write '': No such file or directory");
  EXPECT_EQ(fault(folder / "none/x"),
            "cannot write '" + (folder / "none/x") + "': No such file or directory");
  EXPECT_EQ(fault(folder / "file/x"), "cannot write '" + (folder / "file/x") + "': Not a directory");
  EXPECT_EQ(fault(folder / ""), "cannot write '" + (folder / "") + "': Is a directory");
  EXPECT_EQ(fault(folder / "."), "cannot write '" + (folder / ".") + "': Is a directory");
  fs::create_directory(folder / "sub");
  EXPECT_EQ(fault(folder / "sub"), "cannot write '" + (folder / "sub") + "': Is a directory");
  const std::string too_long = folder / std::string(256, 'n');
  EXPECT_EQ(fault(too_long), "cannot write '" + too_long + "': File name too long");
  EXPECT_EQ(folder.names(), (Names{"file", "sub"}));
}

TEST(AtomicFile, WhatIsProtectedIsNotReplaced) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "open");
  fs::create_directory(folder / "closed");
  write_file(folder / "open/x", "old");
  ASSERT_EQ(chmod((folder / "open/x").c_str(), 0444), 0);
  ASSERT_EQ(chmod((folder / "open").c_str(), 0777), 0);
  ASSERT_EQ(chmod((folder / "closed").c_str(), 0555), 0);
  ASSERT_EQ(chmod((folder / ".").c_str(), 0755), 0);
  {
    const AsOrdinaryUser somebody;
    for (const char* name : {"open/x", "closed/x"})
      EXPECT_EQ(message_of([&] { write_whole(folder / name, "new"); }),
                "cannot write '" + (folder / name) + "': Permission denied");
  }
  EXPECT_EQ(read_file(folder / "open/x"), "old");
  ASSERT_EQ(chmod((folder / "closed").c_str(), 0755), 0);
}

TEST(AtomicFile, ADeviceOrAPipeIsWrittenStraightAndStaysWhatItIs) {
  write_whole("/dev/null", "x");
  EXPECT_EQ(fs::status("/dev/null").type(), fs::file_type::character);
  EXPECT_EQ(message_of([] { write_whole("/dev/full", "x"); }),
            "cannot write '/dev/full': No space left on device");
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::string came;
  std::thread reader([&] { came = read_file(folder / "pipe"); });
  write_whole(folder / "pipe", "through");
  reader.join();
  EXPECT_EQ(came, "through");
  EXPECT_EQ(folder.names(), Names{"pipe"});
}

TEST(AtomicFile, APipeWithoutANameIsReachedThroughItsLink) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  // A shell with a pipe has such a path behind /dev/stdout.
  write_whole("/proc/self/fd/" + std::to_string(ends[1]), "through");
  std::string came(7, '\0');
  EXPECT_EQ(read(ends[0], came.data(), came.size()), 7);
  EXPECT_EQ(came, "through");
  close(ends[0]);
  close(ends[1]);
}

TEST(AtomicFile, ARenameThatFailsLeavesNoTemporary) {
  const TemporaryFolder folder;
  EXPECT_EQ(message_of([&] {
              AtomicFile file(folder / "x");
              file.write(bytes_of("new"));
              fs::create_directory(folder / "x");
              file.commit();
            }),
            "cannot write '" + (folder / "x") + "': Is a directory");
  EXPECT_EQ(folder.names(), Names{"x"});
}

TEST(AtomicFile, AFullDiskKeepsTheLastGoodFile) {
  const TemporaryFolder folder;
  const Tensor small = Tensor::from<float>({1, 2, 3}, {3});
  const Tensor large({1 << 16});
  write_npy(folder / "x.npy", small);
  write_safetensors(folder / "x.safetensors", {{"small", small}});
  const std::string npy = read_file(folder / "x.npy");
  const std::string safetensors = read_file(folder / "x.safetensors");
  std::string npy_message;
  std::string safetensors_message;
  {
    const FullDisk full(100000);
    npy_message = message_of([&] { write_npy(folder / "x.npy", large); });
    safetensors_message = message_of([&] {
      write_safetensors(folder / "x.safetensors", {{"small", small}, {"large", large}});
    });
  }
  EXPECT_EQ(npy_message, "cannot write '" + (folder / "x.npy") + "': File too large");
  EXPECT_EQ(safetensors_message, "cannot write '" + (folder / "x.safetensors") + "': File too large");
  EXPECT_EQ(read_file(folder / "x.npy"), npy);
  EXPECT_EQ(read_file(folder / "x.safetensors"), safetensors);
  EXPECT_EQ(folder.names(), (Names{"x.npy", "x.safetensors"}));
}

TEST(AtomicFile, AWriterThatIsKilledLeavesTheOldFileOrTheNewOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  const std::int64_t count = 1 << 18;
  write_npy(path, Tensor({count}));
  // The child writes files of equal numbers, counting up, until it is killed. The time of that differs each
  // round.
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        Tensor tensor({count});
        for (float number = 1;; ++number) {
          std::ranges::fill(tensor.values<float>(), number);
          write_npy(path, tensor);
        }
      } catch (...) {  // must not reach the tests that follow
        _exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + 1700 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const Tensor back = read_npy(path);
    const auto values = back.values<float>();
    EXPECT_EQ(std::ranges::count(values, values[0]), count) << "round " << round;
  }
}

}  // namespace
