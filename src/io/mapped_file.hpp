// A file mapped into memory, for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "heed/export.hpp"

namespace heed::io::detail {

/// Pages are read when they are touched, and dropped when memory is short. A file that is cut short meanwhile
/// ends the process (SIGBUS): only what is too large to copy is mapped.
class HEED_API MappedFile {
 public:
  /// Throws Error (io) where the file cannot be mapped or is no longer of `size` bytes.
  MappedFile(const std::string& path, std::uint64_t size);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::byte* data() const noexcept { return data_; }

 private:
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace heed::io::detail
