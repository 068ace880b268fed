#include <span>

#include "heed/io/tensors.hpp"
#include "io/atomic_file.hpp"

namespace heed::io {

void write_text(const std::string& path, std::string_view text) {
  detail::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace heed::io
