// Atomic writing of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/export.hpp"
#include "io/file_descriptor.hpp"
#include "io/held_temporary.hpp"

namespace heed::io::detail {

/// Writes to a temporary file in the target's folder and renames it on commit(). Until then, and after any
/// failure, the target is unchanged. Without a commit the temporary file is removed.
///
/// Follows symbolic links: the file behind the link is replaced, the link stays. A replaced file keeps its
/// permission bits; a new one gets 0666 less the umask. A device or a pipe is written directly, because
/// replacing it would be wrong (think of /dev/null).
class HEED_API AtomicFile {
 public:
  /// Throws Error (io) if the folder is not writable or the target is a folder.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Appends this many zeros for other processes to overwrite.
  void extend(std::uint64_t bytes);
  /// Absolute path of the temporary file; empty for a device or a pipe.
  [[nodiscard]] std::string temporary_path() const;
  /// Flushes the file, renames it, and flushes the folder, so that a completed write survives a power loss.
  void commit();

  /// The steps of commit(), for files that must appear together: flush() all, then publish() all, then
  /// confirm() all. After publish(), withdraw() restores the old state. It works if there was no file before,
  /// or if the file system can exchange two names: Linux's own can, network file systems cannot.
  void flush();
  void publish();
  void withdraw() noexcept;
  void confirm();

 private:
  void create_temporary(unsigned mode);
  void flush_folder();
  [[noreturn]] void fail_write(int error_number) const;

  std::string subject_;
  std::string name_;       // target's name in folder_
  std::string temporary_;  // temporary name in folder_, or empty; after an exchange it names the old content
  enum class Published { no, as_new, exchanged, for_good };
  Published published_ = Published::no;
  std::filesystem::path folder_path_;
  FileDescriptor folder_;
  std::optional<HeldTemporary> held_;  // lists temporary_
  FileDescriptor file_;
};

/// Commits all files or none. After a failure the targets are restored where withdraw() can restore them.
void commit_together(const std::vector<std::unique_ptr<AtomicFile>>& files);

}  // namespace heed::io::detail
