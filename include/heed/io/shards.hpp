// Tensor files shared by several processes. Each process reads its shard by offset and writes its shard of a
// common result. No process holds the whole tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/attention/sharding.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed::io {

/// A tensor in a file. Opening reads only the header. The file must be a regular file, because reads are at
/// arbitrary offsets.
class HEED_API TensorOnDisk {
 public:
  /// Opens FILE.npy, or tensor `name` of a safetensors file. Throws Error (io) as read_npy() and
  /// SafetensorsReader do.
  explicit TensorOnDisk(const std::string& path, const std::string& name = "");
  ~TensorOnDisk();
  TensorOnDisk(TensorOnDisk&&) noexcept;
  TensorOnDisk& operator=(TensorOnDisk&&) noexcept;

  [[nodiscard]] DType dtype() const noexcept;
  [[nodiscard]] const Dims& shape() const noexcept;
  /// Reads positions of an axis (negative: from the end), one range after the other, row-major. Throws Error
  /// (invalid_argument) for an axis or position out of range, Error (io) if the bytes cannot be read.
  [[nodiscard]] Tensor read(int axis, std::span<const PositionRange> positions) const;
  /// Maps the whole tensor. The system loads its pages on access and drops them when memory is short. The
  /// view is valid as long as this object lives. Returns nullopt if the bytes cannot be used in place (other
  /// byte order, misaligned). Throws Error (io) if mapping fails. If the file is truncated while mapped,
  /// access kills the process (SIGBUS), so map only what is too large to copy.
  [[nodiscard]] std::optional<TensorView> mapped();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// .npy files that one process creates and others write to under temporary names. All appear under their
/// final names, or none. Files that are not committed are removed.
class HEED_API SharedNpyFiles {
 public:
  SharedNpyFiles();
  ~SharedNpyFiles();
  SharedNpyFiles(SharedNpyFiles&&) noexcept;
  SharedNpyFiles& operator=(SharedNpyFiles&&) noexcept;

  /// Creates a file of zeros beside `path` and returns its absolute path. bf16 is stored as f32. Throws Error
  /// (io) if it cannot be created, or if `path` is a device or a pipe.
  std::string add(const std::string& path, DType dtype, const Dims& shape);
  /// Flushes all files and renames them, all or none, like write_npy_files().
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes positions of an axis into an existing .npy file and flushes them to disk. The file must be
/// row-major in this machine's byte order. `shard` has the positions one range after the other; bf16 is
/// written as f32. Throws Error (invalid_argument) if `shard` does not fit the file, Error (io) if writing
/// fails.
HEED_API void write_npy_shard(const std::string& path, int axis, std::span<const PositionRange> positions,
                              const TensorView& shard);
/// The same for the whole tensor.
HEED_API void write_npy_shard(const std::string& path, const TensorView& whole);

}  // namespace heed::io
