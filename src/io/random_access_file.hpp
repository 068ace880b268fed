// A regular file that is read at any place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "heed/export.hpp"

#include "io/file_descriptor.hpp"

namespace heed::io::detail {

/// Reads with pread(2), not through a memory mapping: the bytes go straight to where they are wanted (a
/// mapping would be copied from just the same), several threads may read at once, and a file that somebody
/// truncates meanwhile is an Error, where touching a mapping of it would kill the process (SIGBUS).
class HEED_API RandomAccessFile {
 public:
  /// Throws Error (io) where it cannot be opened or is not a regular file.
  explicit RandomAccessFile(const std::string& path);

  /// How messages name it.
  [[nodiscard]] const std::string& subject() const noexcept { return subject_; }
  /// Bytes that it held when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Fills `to` with the bytes from `offset` on. Throws Error (io) where there are fewer.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  std::string subject_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace heed::io::detail
