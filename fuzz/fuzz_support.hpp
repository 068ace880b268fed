// What fuzz targets share: a check, and a file for readers that want a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace heed::fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

/// A file in memory, for one input after another.
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
