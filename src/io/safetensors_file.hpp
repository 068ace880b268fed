// An open safetensors file: its header and the location of its tensors.
#pragma once

#include <string>

#include "io/random_access_file.hpp"
#include "io/safetensors_header.hpp"

namespace heed::io::detail {

struct SafetensorsFile {
  /// Throws Error (io) if the file cannot be read or is malformed.
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const StoredTensor* find(const std::string& name) const;
  /// The tensor of that name. Throws Error (io) if there is none, or if heed lacks its dtype or rank.
  [[nodiscard]] const StoredTensor& readable(const std::string& name) const;
  void require_readable(const StoredTensor& tensor) const;

  RandomAccessFile file;
  SafetensorsHeader header;

 private:
  [[nodiscard]] std::string what_it_has() const;
};

}  // namespace heed::io::detail
