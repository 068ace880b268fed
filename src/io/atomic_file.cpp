#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>

#include "io/fault.hpp"

namespace heed::io::detail {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // Linux's own limit
constexpr unsigned kPermissionBits = 0777;
constexpr unsigned kNewFileMode = 0666;

// The target of `path` through symbolic links; it need not exist yet.
fs::path follow_links(const fs::path& path, const std::string& subject) {
  fs::path target = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code error;
    const fs::path next = fs::read_symlink(target, error);
    if (error) return target;  // not a link, or nothing there
    target = target.parent_path() / next;
  }
  fail_system("write", subject, ELOOP);
}

// Short, so that it fits wherever the target's name fits.
std::string temporary_name() {
  std::random_device random;
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), ".heed-%08x%08x.tmp", random(), random());
  return name.data();
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : subject_("'" + path + "'") {
  // Open by the given name: /dev/stdout may link to a pipe without a name.
  struct stat reached {};
  if (::stat(system_path(path), &reached) == 0 && !S_ISREG(reached.st_mode) && !S_ISDIR(reached.st_mode)) {
    file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file_) fail_write(errno);
    return;
  }

  const fs::path target = follow_links(path, subject_);
  name_ = target.filename().string();
  if (name_.empty() || name_ == "." || name_ == "..") fail_write(path.empty() ? ENOENT : EISDIR);

  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  folder_path_ = folder;
  folder_ = FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) fail_write(errno);

  struct stat existing {};
  if (::fstatat(folder_.get(), name_.c_str(), &existing, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) fail_write(errno);
    create_temporary(kNewFileMode);
    return;
  }
  if (!S_ISREG(existing.st_mode)) fail_write(S_ISDIR(existing.st_mode) ? EISDIR : EEXIST);
  // A rename needs only the folder's permission; refuse to replace a write-protected file.
  if (::faccessat(folder_.get(), name_.c_str(), W_OK, AT_EACCESS) != 0) fail_write(errno);
  const unsigned mode = existing.st_mode & kPermissionBits;
  create_temporary(mode);
  // The umask removed bits from the mode given to open(); restore the bits of the old file.
  if (::fchmod(file_.get(), mode) != 0) {
    const int error_number = errno;
    (void)::unlinkat(folder_.get(), temporary_.c_str(), 0);
    fail_write(error_number);
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) (void)::unlinkat(folder_.get(), temporary_.c_str(), 0);
}

void AtomicFile::create_temporary(unsigned mode) {
  do {
    temporary_ = temporary_name();
    held_.emplace(folder_.get(), temporary_);
    file_ = FileDescriptor(
        ::openat(folder_.get(), temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  } while (!file_ && errno == EEXIST);
  if (!file_) fail_write(errno);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    else if (errno != EINTR)
      fail_write(errno);
  }
}

void AtomicFile::extend(std::uint64_t bytes) {
  const off_t end = ::lseek(file_.get(), 0, SEEK_CUR);
  off_t size = 0;
  if (end < 0 || __builtin_add_overflow(end, bytes, &size)) fail_write(end < 0 ? errno : EFBIG);
  if (::ftruncate(file_.get(), size) != 0) fail_write(errno);
}

std::string AtomicFile::temporary_path() const {
  return temporary_.empty() ? "" : (fs::absolute(folder_path_) / temporary_).string();
}

void AtomicFile::flush() {
  if (!temporary_.empty() && ::fsync(file_.get()) != 0) fail_write(errno);
  // Network file systems report a full disk here.
  if (file_.close() != 0) fail_write(errno);
}

void AtomicFile::commit() {
  flush();
  if (temporary_.empty()) return;
  if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0) fail_write(errno);
  temporary_.clear();
  flush_folder();
}

void AtomicFile::publish() {
  if (temporary_.empty()) return;
  const auto exchange = [this] {
    return ::renameat2(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str(), RENAME_EXCHANGE);
  };
  const bool existed = ::faccessat(folder_.get(), name_.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  if (existed && exchange() == 0) {
    published_ = Published::exchanged;
    return;
  }
  if (existed && errno != EINVAL && errno != ENOSYS) fail_write(errno);
  if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0) fail_write(errno);
  temporary_.clear();
  published_ = existed ? Published::for_good : Published::as_new;
}

void AtomicFile::withdraw() noexcept {
  if (published_ == Published::as_new) (void)::unlinkat(folder_.get(), name_.c_str(), 0);
  if (published_ == Published::exchanged)
    (void)::renameat2(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str(), RENAME_EXCHANGE);
  published_ = Published::no;
}

void AtomicFile::confirm() {
  if (published_ != Published::no) flush_folder();
}

void AtomicFile::flush_folder() {
  // EINVAL: the file system cannot flush a folder.
  if (::fsync(folder_.get()) != 0 && errno != EINVAL) fail_write(errno);
}

void AtomicFile::fail_write(int error_number) const { fail_system("write", subject_, error_number); }

void commit_together(const std::vector<std::unique_ptr<AtomicFile>>& files) {
  for (const auto& file : files) file->flush();
  const SignalsWait wait;  // until all files are in place
  try {
    for (const auto& file : files) file->publish();
    for (const auto& file : files) file->confirm();
  } catch (...) {
    // In reverse: if two files share a target, the first one holds the original content.
    for (auto file = files.rbegin(); file != files.rend(); ++file) (*file)->withdraw();
    throw;
  }
}

}  // namespace heed::io::detail
