// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heed/export.hpp"
#include "io/file_descriptor.hpp"

namespace heed::io::detail {

/// Writes to a temporary name in the folder of the target and renames on commit(). Until then, and after any
/// failure, the target is what it was; without a commit the temporary is removed.
///
/// A symbolic link is followed: what it points at is replaced, the link stays. A file that is replaced keeps
/// its permission bits; a new one gets 0666 less the umask. A device or a pipe has nothing to lose and must
/// not be replaced (think of /dev/null): it is written straight.
class HEED_API AtomicFile {
 public:
  /// Throws Error (io) where the folder cannot be written to, or the target is a folder.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// So many zeros behind what was written, for others to write to.
  void extend(std::uint64_t bytes);
  /// The temporary's path from the root; empty where a device or a pipe is written straight.
  [[nodiscard]] std::string temporary_path() const;
  /// Flushes to the disk, renames, and flushes the folder, so that what was reported as written survives a
  /// loss of power.
  void commit();

  /// What commit() does, in steps, for files that must appear together: flush() all, then publish() all, then
  /// confirm() all. Between the last two, withdraw() brings back what was there, where the file system can
  /// exchange two names (of Linux' own all can, network file systems cannot) or nothing was there.
  void flush();
  void publish();
  void withdraw() noexcept;
  void confirm();

 private:
  void create_temporary(unsigned mode);
  void flush_folder();
  [[noreturn]] void fail_write(int error_number) const;

  std::string subject_;
  std::string name_;       // of the target, in folder_
  std::string temporary_;  // likewise; empty: none. Once exchanged, it is the name of the old content
  enum class Published { no, as_new, exchanged, for_good };
  Published published_ = Published::no;
  std::filesystem::path folder_path_;
  FileDescriptor folder_;
  FileDescriptor file_;
};

/// Commits all files or none: whatever fails, the targets are what they were.
void commit_together(const std::vector<std::unique_ptr<AtomicFile>>& files);

}  // namespace heed::io::detail
