// Tensors in files: .npy (NumPy format versions 1 to 3) and safetensors.
//
// Files are hostile until checked: a broken one throws Error (io) that names the file and the fault. Writing
// is atomic: a temporary name, fsync, then rename; a failure leaves what was there before.
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

/// Reads a .npy file: f64, f32, f16, i64, i32, u8, bool, of either byte order, C or Fortran order (the result
/// is row-major). At most kMaxRank axes; no axes at all give a tensor of shape []. "-" is standard input.
[[nodiscard]] HEED_API Tensor read_npy(const std::string& path);
/// The same from memory; messages call it `name`.
[[nodiscard]] HEED_API Tensor read_npy_bytes(std::span<const std::byte> bytes, const std::string& name);
/// Writes version 1.0, little endian, C order, so that numpy.load reads it. bf16 has no .npy name and is
/// written as f32.
HEED_API void write_npy(const std::string& path, const TensorView& tensor);
/// Several such files, all or none: a failure at any of them leaves all that was there before. (Where the
/// file system cannot exchange two names, as those of networks, a failure of the renaming itself may leave
/// some.) `progress` is told after each piece how much of all numbers is written, from above 0 to 1.
HEED_API void write_npy_files(const std::vector<std::pair<std::string, TensorView>>& files,
                              const std::function<void(double share)>& progress = {});

/// Writes text, as it is, to a file: whole or not at all.
HEED_API void write_text(const std::string& path, std::string_view text);

/// Tensors by name, in the order that they are written in, with free text beside them.
struct HEED_API TensorFile {
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::map<std::string, std::string> metadata;
};

/// A safetensors file: opening reads the header only; a tensor is read when it is asked for, by any number of
/// threads at once. A file may hold types and ranks that heed has no tensors for (I16, F8_E4M3, …): it opens,
/// and asking for such a tensor throws Error (io).
class HEED_API SafetensorsReader {
 public:
  /// Throws Error (io) where the file cannot be read or is not well-formed.
  explicit SafetensorsReader(const std::string& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;

  [[nodiscard]] std::vector<std::string> names() const;  ///< in the order of their data
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const;
  [[nodiscard]] bool contains(const std::string& name) const;
  [[nodiscard]] DType dtype(const std::string& name) const;
  [[nodiscard]] Dims shape(const std::string& name) const;
  /// A copy of the tensor. Throws Error (io) that lists what the file has where the name is not in it.
  [[nodiscard]] Tensor read(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The whole file, its tensors in the order of their data.
[[nodiscard]] HEED_API TensorFile read_safetensors(const std::string& path);
/// Widest elements first, otherwise in the order given, so that each tensor is aligned to its element size;
/// the data begin at a multiple of 64 bytes. Throws invalid_argument for a name that stands twice, is
/// "__metadata__" or is not UTF-8.
HEED_API void write_safetensors(const std::string& path,
                                const std::vector<std::pair<std::string, TensorView>>& tensors,
                                const std::map<std::string, std::string>& metadata = {});

}  // namespace heed::io
