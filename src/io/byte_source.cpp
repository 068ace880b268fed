#include "io/byte_source.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/fault.hpp"

namespace heed::io::detail {

ByteSource ByteSource::open(const std::string& path) {
  ByteSource source;
  source.subject_ = subject_of(path);
  if (path == "-") {
    source.fd_ = STDIN_FILENO;
  } else {
    source.owned_ = FileDescriptor(::open(system_path(path), O_RDONLY | O_CLOEXEC));
    source.fd_ = source.owned_.get();
    if (!source.owned_) fail_system("open", source.subject_, errno);
  }
  struct stat status {};
  if (::fstat(source.fd_, &status) != 0) fail_system("read", source.subject_, errno);
  if (S_ISDIR(status.st_mode)) fail_system("read", source.subject_, EISDIR);
  // Files under /proc report a regular file of 0 bytes, so their size is unknown too. Standard input may
  // start in the middle of its file.
  if (S_ISREG(status.st_mode) && status.st_size > 0) {
    const off_t at = source.owned_ ? 0 : ::lseek(source.fd_, 0, SEEK_CUR);
    if (at >= 0) source.remaining_ = static_cast<std::uint64_t>(std::max<off_t>(status.st_size - at, 0));
  }
  return source;
}

ByteSource::ByteSource(std::span<const std::byte> bytes, const std::string& name)
    : subject_(subject_of(name)), memory_(bytes), remaining_(bytes.size()) {}

std::size_t ByteSource::read_some(std::span<std::byte> to) {
  if (fd_ < 0) {
    const std::size_t count = std::min(to.size(), memory_.size());
    if (count > 0) std::memcpy(to.data(), memory_.data(), count);
    memory_ = memory_.subspan(count);
    return count;
  }
  for (;;) {
    const ssize_t count = ::read(fd_, to.data(), to.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) fail_system("read", subject_, errno);
  }
}

std::size_t ByteSource::read(std::span<std::byte> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const std::size_t count = read_some(to.subspan(done));
    if (count == 0) break;
    done += count;
  }
  if (remaining_) *remaining_ -= std::min<std::uint64_t>(done, *remaining_);
  return done;
}

}  // namespace heed::io::detail
