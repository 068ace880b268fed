#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "io/fault.hpp"
#include "io/file_descriptor.hpp"

namespace heed::io::detail {

MappedFile::MappedFile(const std::string& path, std::uint64_t size) : size_(size) {
  const std::string subject = subject_of(path);
  const FileDescriptor file(::open(system_path(path), O_RDONLY | O_CLOEXEC));
  if (!file) fail_system("open", subject, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_system("read", subject, errno);
  if (static_cast<std::uint64_t>(status.st_size) != size) fail(subject, "changed while it was opened");
  if (size == 0) return;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) fail_system("map", subject, errno);
  data_ = static_cast<const std::byte*>(memory);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace heed::io::detail
