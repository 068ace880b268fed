// A regular file with reads at any offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "heed/export.hpp"

#include "io/file_descriptor.hpp"

namespace heed::io::detail {

/// Reads with pread(2) instead of a memory mapping. The bytes go straight to their destination (from a
/// mapping they would be copied too). Several threads may read at once. If the file is truncated meanwhile, a
/// read throws Error, while access to a mapping would kill the process (SIGBUS).
class HEED_API RandomAccessFile {
 public:
  /// Throws Error (io) if it cannot be opened or is not a regular file.
  explicit RandomAccessFile(const std::string& path);

  /// Its name in messages.
  [[nodiscard]] const std::string& subject() const noexcept { return subject_; }
  /// Size in bytes when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Fills `to` with the bytes from `offset` on. Throws Error (io) if there are fewer.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  std::string subject_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace heed::io::detail
