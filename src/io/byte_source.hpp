// A forward-only source of bytes from a file, a pipe or memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/file_descriptor.hpp"

namespace heed::io::detail {

class ByteSource {
 public:
  /// Opens the file at `path`, or standard input for "-". Throws Error (io) if it cannot be opened.
  [[nodiscard]] static ByteSource open(const std::string& path);
  /// Reads from memory, which must outlive the source; messages call it `name`.
  ByteSource(std::span<const std::byte> bytes, const std::string& name);

  /// Its name in messages.
  [[nodiscard]] const std::string& subject() const noexcept { return subject_; }
  /// Bytes not yet read, if known: for a regular file and for memory, not for a pipe.
  [[nodiscard]] std::optional<std::uint64_t> remaining() const noexcept { return remaining_; }
  /// Fills `to` and returns the number of bytes read, which is smaller only at the end. Throws Error (io).
  [[nodiscard]] std::size_t read(std::span<std::byte> to);

 private:
  ByteSource() = default;
  [[nodiscard]] std::size_t read_some(std::span<std::byte> to);

  std::string subject_;
  FileDescriptor owned_;
  int fd_ = -1;  // -1: memory
  std::span<const std::byte> memory_;
  std::optional<std::uint64_t> remaining_;
};

}  // namespace heed::io::detail
