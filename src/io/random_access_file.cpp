#include "io/random_access_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/fault.hpp"

namespace heed::io::detail {

// O_NONBLOCK: opening a pipe must not block on a writer before it is refused. Regular files ignore the flag.
RandomAccessFile::RandomAccessFile(const std::string& path)
    : subject_("'" + path + "'"), file_(::open(system_path(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!file_) fail_system("open", subject_, errno);
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail_system("read", subject_, errno);
  if (S_ISDIR(status.st_mode)) fail_system("read", subject_, EISDIR);
  if (!S_ISREG(status.st_mode)) fail(subject_, "is not a regular file, which random access needs");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void RandomAccessFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = ::pread(file_.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system("read", subject_, errno);
    if (count == 0)
      fail(subject_, "ends at byte ", offset, "; it was ", heed::detail::counted(size_, "byte"),
           " long when it was opened");
    offset += static_cast<std::uint64_t>(count);
    to = to.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace heed::io::detail
