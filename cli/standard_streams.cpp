#include "standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <string>
#include <system_error>

#include "heed/error.hpp"

namespace heed::cli {
namespace {

[[noreturn]] void fail(int error_number) {
  const std::string reason = error_number == 0 ? "" : ": " + std::generic_category().message(error_number);
  throw Error(ErrorCode::io, "standard output could not be written" + reason);
}

}  // namespace

void hold_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // /dev/null opened in the wrong mode fails with EBADF, as a closed descriptor does.
    const int placeholder = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (placeholder != descriptor) std::_Exit(EXIT_FAILURE);
  }
}

void require_standard_output() {
  const int flags = fcntl(STDOUT_FILENO, F_GETFL);
  if (flags == -1 || (flags & O_ACCMODE) == O_RDONLY) fail(EBADF);
}

void flush_standard_output() {
  errno = 0;
  if (!std::cout.flush()) fail(errno);
}

}  // namespace heed::cli
