// Shared by the fuzz targets: a check, an in-memory file for readers that need a path, and repeatable runs.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "heed/parallel.hpp"

// The order of threads differs from run to run, and so does the coverage that libFuzzer sees. For repeatable
// inputs, HEED_FUZZ_ONE_THREAD makes one thread do all the work.
extern "C" [[gnu::visibility("default")]] int LLVMFuzzerInitialize(int*, char***) {
  if (std::getenv("HEED_FUZZ_ONE_THREAD") != nullptr)
    heed::set_parallel_for([](std::int64_t count, int, const heed::ParallelBody& body) {
      for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    });
  return 0;
}

namespace heed::fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

/// A file in memory, reused for each input.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) { require(descriptor_ >= 0); }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void put(const std::uint8_t* data, std::size_t size) const {
    require(ftruncate(descriptor_, 0) == 0);
    for (std::size_t done = 0; done < size;) {
      const ssize_t written = pwrite(descriptor_, data + done, size - done, static_cast<off_t>(done));
      require(written > 0);
      done += static_cast<std::size_t>(written);
    }
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace heed::fuzz
