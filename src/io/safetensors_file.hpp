// An open safetensors file: its header, and where its tensors lie.
#pragma once

#include <string>

#include "io/random_access_file.hpp"
#include "io/safetensors_header.hpp"

namespace heed::io::detail {

struct SafetensorsFile {
  /// Throws Error (io) where the file cannot be read or is not well-formed.
  explicit SafetensorsFile(const std::string& path);

  /// nullptr where it has none of that name.
  [[nodiscard]] const StoredTensor* find(const std::string& name) const;
  /// The tensor of that name. Throws Error (io) where there is none, or none of a dtype and rank that heed
  /// has.
  [[nodiscard]] const StoredTensor& readable(const std::string& name) const;
  void require_readable(const StoredTensor& tensor) const;

  RandomAccessFile file;
  SafetensorsHeader header;

 private:
  [[nodiscard]] std::string what_it_has() const;
};

}  // namespace heed::io::detail
