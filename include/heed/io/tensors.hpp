// Tensor files: .npy (NumPy format versions 1 to 3) and safetensors.
//
// All files are checked as untrusted input; a broken one throws Error (io) that names the file and the fault.
// Writing is atomic: temporary file, fsync, rename. A failed write keeps the existing file.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed::io {

/// Reads a .npy file of f64, f32, f16, i64, i32, u8 or bool, in either byte order, in C or Fortran order; the
/// result is row-major. At most kMaxRank axes; a file without axes gives shape []. "-" is standard input.
[[nodiscard]] HEED_API Tensor read_npy(const std::string& path);
/// The same for bytes in memory; messages call them `name`.
[[nodiscard]] HEED_API Tensor read_npy_bytes(std::span<const std::byte> bytes, const std::string& name);
/// Writes a .npy file of version 1.0, little endian, in C order. bf16 has no .npy type and is written as f32.
HEED_API void write_npy(const std::string& path, const TensorView& tensor);
/// Writes several .npy files, all or none: a failure keeps all existing files. Two paths of one file are
/// refused. On file systems that cannot exchange two names, such as network file systems, a failed rename may
/// leave some new files. `progress` receives the share of all numbers written, above 0 to 1, after each
/// piece.
HEED_API void write_npy_files(const std::vector<std::pair<std::string, TensorView>>& files,
                              const std::function<void(double share)>& progress = {});

/// Writes text unchanged to a file, atomically.
HEED_API void write_text(const std::string& path, std::string_view text);

/// Named tensors in writing order, with free-text metadata.
struct HEED_API TensorFile {
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads a safetensors file. Opening reads only the header; read() reads one tensor. Any number of threads
/// may read at once. A file with types or ranks that heed lacks (I16, F8_E4M3, …) opens, but asking for such
/// a tensor throws Error (io).
class HEED_API SafetensorsReader {
 public:
  /// Throws Error (io) if the file cannot be read or is malformed.
  explicit SafetensorsReader(const std::string& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;

  [[nodiscard]] std::vector<std::string> names() const;  ///< in the order of their data
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const;
  [[nodiscard]] bool contains(const std::string& name) const;
  [[nodiscard]] DType dtype(const std::string& name) const;
  [[nodiscard]] Dims shape(const std::string& name) const;
  /// A copy of the tensor. For an unknown name, throws Error (io) that lists the names in the file.
  [[nodiscard]] Tensor read(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads the whole file; the tensors are in the order of their data.
[[nodiscard]] HEED_API TensorFile read_safetensors(const std::string& path);
/// Writes a safetensors file. The tensors with the widest elements come first, otherwise in the given order,
/// so that each is aligned to its element size. The data start at a multiple of 64 bytes. Throws
/// invalid_argument for a duplicate name, the name "__metadata__", or a name that is not UTF-8.
HEED_API void write_safetensors(const std::string& path,
                                const std::vector<std::pair<std::string, TensorView>>& tensors,
                                const std::map<std::string, std::string>& metadata = {});

}  // namespace heed::io
