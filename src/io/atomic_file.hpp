// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/file_descriptor.hpp"

namespace heed::io::detail {

/// Writes to a temporary name in the folder of the target and renames on commit(). Until then, and after any
/// failure, the target is what it was; without a commit the temporary is removed.
///
/// A symbolic link is followed: what it points at is replaced, the link stays. A file that is replaced keeps
/// its permission bits; a new one gets 0666 less the umask. A device or a pipe has nothing to lose and must
/// not be replaced (think of /dev/null): it is written straight.
class AtomicFile {
 public:
  /// Throws Error (io) where the folder cannot be written to, or the target is a folder.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Flushes to the disk, renames, and flushes the folder, so that what was reported as written survives a
  /// loss of power.
  void commit();

 private:
  void create_temporary(unsigned mode);
  [[noreturn]] void fail_write(int error_number) const;

  std::string subject_;
  std::string name_;       // of the target, in folder_
  std::string temporary_;  // likewise; empty: none, the target is written straight
  FileDescriptor folder_;
  FileDescriptor file_;
};

}  // namespace heed::io::detail
