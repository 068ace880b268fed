// A file mapped into memory, for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "heed/export.hpp"

namespace heed::io::detail {

/// The system loads pages on access and drops them when memory is short. If the file is truncated while
/// mapped, access kills the process (SIGBUS), so only data too large to copy is mapped.
class HEED_API MappedFile {
 public:
  /// Throws Error (io) if the file cannot be mapped or no longer has `size` bytes.
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
