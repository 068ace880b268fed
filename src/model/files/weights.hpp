// The weights of a model's folder, read in place from their files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heed/tensor.hpp"
#include "model/files/weight_format.hpp"

namespace heed::detail {

/// A matrix [rows, columns], row-major, aligned as its format requires. `columns` is a multiple of the
/// format's block.
struct WeightMatrix {
  const void* data = nullptr;
  const WeightFormat* format = &kStoredF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool fast = false;  ///< as in ModelOptions
  /// The numbers if they are f32; nullptr for other formats.
  [[nodiscard]] const float* plain() const {
    return format == &kStoredF32 ? static_cast<const float*>(data) : nullptr;
  }
};

/// Rows [begin, begin + count) of a matrix.
[[nodiscard]] WeightMatrix rows_between(const WeightMatrix& matrix, std::int64_t begin, std::int64_t count);

/// Converts row `row` to f32, `columns` numbers.
void read_weight_row(const WeightMatrix& matrix, std::int64_t row, float* to);
/// Converts `count` numbers of the row from `begin` on; both are multiples of the format's block.
void read_weights(const WeightMatrix& matrix, std::int64_t row, std::int64_t begin, std::int64_t count,
                  float* to);

/// A tensor of a file.
struct StoredWeight {
  const void* data = nullptr;
  const WeightFormat* format = nullptr;  ///< nullptr: a type that no matrix or vector may have
  Dims shape;
  std::string file;    ///< the file's name in messages
  bool bytes = false;  ///< the type is u8
};

/// All tensors of a folder by name. It keeps the files mapped, and the results of matrix() point into them.
/// Errors (io) name the file, the tensor and the shape that the configuration requires.
class Weights {
 public:
  /// Returns the file's name for a weight's tensor.
  using NameInFile = std::function<std::string(const std::string& weight)>;

  /// Starts empty. The arguments are used in messages: the source of the weights, the file that lists the
  /// expected weights, and the name of a weight in the file (empty: its own name).
  Weights(std::string subject, std::string configuration, NameInFile name_in_file = {})
      : subject_(std::move(subject)),
        configuration_(std::move(configuration)),
        name_in_file_(std::move(name_in_file)) {}
  /// model.safetensors, or the files of model.safetensors.index.json.
  [[nodiscard]] static std::shared_ptr<Weights> open(const std::string& folder);

  /// Throws Error (io) if the name exists already.
  void add(const std::string& name, StoredWeight weight);
  /// Keeps `memory`, which holds weights, alive.
  void keep(std::shared_ptr<const void> memory) { memory_.push_back(std::move(memory)); }

  [[nodiscard]] bool contains(const std::string& name) const { return tensors_.contains(name); }
  [[nodiscard]] WeightMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns);
  /// Matrices [rows, columns] of one tensor [count, rows, columns].
  [[nodiscard]] std::vector<WeightMatrix> matrices(const std::string& name, std::int64_t count,
                                                   std::int64_t rows, std::int64_t columns);
  /// The bytes of a tensor of u8.
  [[nodiscard]] const std::uint8_t* bytes(const std::string& name, const Dims& shape);
  /// Returns an f32 copy of the tensor, [size].
  [[nodiscard]] Tensor vector(const std::string& name, std::int64_t size);
  /// Marks an optional tensor, which heed does not need.
  void leave(const std::string& name);
  /// Throws Error (io) that names the first tensor that was neither requested nor marked optional.
  void require_all_taken() const;
  /// The number of elements in all requested weights, each weight counted once.
  [[nodiscard]] std::int64_t numbers() const noexcept { return numbers_; }
  /// ModelOptions::fast of the matrices requested from now on.
  void set_fast(bool fast) noexcept { fast_ = fast; }
  [[nodiscard]] bool fast() const noexcept { return fast_; }
  void do_not_count(std::int64_t numbers) { numbers_ -= numbers; }

 private:
  const StoredWeight& take(const std::string& name, const Dims& shape, bool bytes = false);
  [[nodiscard]] std::string shown(const std::string& name) const {
    return name_in_file_ ? name_in_file_(name) : name;
  }

  std::string subject_, configuration_;
  NameInFile name_in_file_;
  std::map<std::string, StoredWeight> tensors_;
  std::set<std::string> taken_;
  std::vector<std::shared_ptr<const void>> memory_;  // mappings, and copies of unaligned tensors
  std::int64_t numbers_ = 0;
  bool fast_ = false;
};

}  // namespace heed::detail
