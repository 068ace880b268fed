// Tensors in files that several processes share: each reads its shard by offset, and writes its shard of one
// result. No process holds the whole.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/export.hpp"
#include "heed/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed::io {

/// A tensor in a file: opening reads the header only. The file is regular, for it is read at any place.
class HEED_API TensorOnDisk {
 public:
  /// Of FILE.npy, or of a safetensors file the tensor `name`. Throws Error (io) as read_npy() and
  /// SafetensorsReader do.
  explicit TensorOnDisk(const std::string& path, const std::string& name = "");
  ~TensorOnDisk();
  TensorOnDisk(TensorOnDisk&&) noexcept;
  TensorOnDisk& operator=(TensorOnDisk&&) noexcept;

  [[nodiscard]] DType dtype() const noexcept;
  [[nodiscard]] const Dims& shape() const noexcept;
  /// Positions of an axis (a negative one counts from the end), one range after the other: row-major, with
  /// the bits that the whole has there. Throws Error (invalid_argument) for an axis or a position that is out
  /// of range, Error (io) where the bytes cannot be read.
  [[nodiscard]] Tensor read(int axis, std::span<const PositionRange> positions) const;
  /// All of it where it lies: pages are read when they are touched, and dropped when memory is short. As long
  /// as this object lives. Nothing where the bytes cannot be used as they lie (of the other byte order, not
  /// aligned). Throws Error (io) where they cannot be mapped. A file that is cut short meanwhile ends the
  /// process (SIGBUS): only what is too large to copy is to be mapped.
  [[nodiscard]] std::optional<TensorView> mapped();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// .npy files of one process, which others write to by their temporary names: all appear, or none. What is
/// not committed is removed.
class HEED_API SharedNpyFiles {
 public:
  SharedNpyFiles();
  ~SharedNpyFiles();
  SharedNpyFiles(SharedNpyFiles&&) noexcept;
  SharedNpyFiles& operator=(SharedNpyFiles&&) noexcept;

  /// A file of zeros beside `path`, and its path from the root. bf16 is stored as f32. Throws Error (io)
  /// where it cannot be made, or `path` is a device or a pipe.
  std::string add(const std::string& path, DType dtype, const Dims& shape);
  /// As write_npy_files() ends: flushes, and renames all or none.
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes positions of an axis of a .npy file that is there already, row-major and of this machine's byte
/// order, and flushes them to the disk. `shard` has them one range after the other; bf16 is written as f32.
/// Throws Error (invalid_argument) where it does not fit the file, Error (io) where it cannot be written.
HEED_API void write_npy_shard(const std::string& path, int axis, std::span<const PositionRange> positions,
                              const TensorView& shard);
/// The same of all positions: the whole tensor.
HEED_API void write_npy_shard(const std::string& path, const TensorView& whole);

}  // namespace heed::io
