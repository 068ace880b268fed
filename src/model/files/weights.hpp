// The weights of a model's folder, where they lie in their files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heed/tensor.hpp"
#include "model/files/weight_format.hpp"

namespace heed::detail {

/// A matrix [rows, columns], row after row, aligned as its format needs. Columns are a multiple of the
/// format's block.
struct WeightMatrix {
  const void* data = nullptr;
  const WeightFormat* format = &kStoredF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  /// Where the numbers are f32; nullptr for others.
  [[nodiscard]] const float* plain() const {
    return format == &kStoredF32 ? static_cast<const float*>(data) : nullptr;
  }
};

/// Row `row` as f32, to `columns` numbers.
void read_weight_row(const WeightMatrix& matrix, std::int64_t row, float* to);
/// Of the row `count` numbers from `begin` on, both multiples of the format's block.
void read_weights(const WeightMatrix& matrix, std::int64_t row, std::int64_t begin, std::int64_t count,
                  float* to);

/// A tensor of a file.
struct StoredWeight {
  const void* data = nullptr;
  const WeightFormat* format = nullptr;  ///< nullptr: one that no weight has
  Dims shape;
  std::string file;  ///< as messages name it
};

/// All tensors of a folder by name. It keeps the files mapped; what matrix() gave points into them. Errors
/// (io) name the file, the tensor and the shape that the configuration gives it.
class Weights {
 public:
  /// What a file calls the tensor of a weight.
  using NameInFile = std::string (*)(const std::string& weight);

  /// None yet. As messages name them: where weights come from, what says which there are, and each of them
  /// (nullptr: by its own name).
  Weights(std::string subject, std::string configuration, NameInFile name_in_file = nullptr)
      : subject_(std::move(subject)), configuration_(std::move(configuration)), name_in_file_(name_in_file) {}
  /// model.safetensors, or the files of model.safetensors.index.json.
  [[nodiscard]] static std::shared_ptr<Weights> open(const std::string& folder);

  /// Throws Error (io) where there is one of that name.
  void add(const std::string& name, StoredWeight weight);
  /// What weights lie in stays as long as they.
  void keep(std::shared_ptr<const void> memory) { memory_.push_back(std::move(memory)); }

  [[nodiscard]] bool contains(const std::string& name) const { return tensors_.contains(name); }
  [[nodiscard]] WeightMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns);
  /// A copy in f32, [size].
  [[nodiscard]] Tensor vector(const std::string& name, std::int64_t size);
  /// A tensor that may be there and is not needed.
  void leave(const std::string& name);
  /// Throws Error (io) that names the first tensor that was neither asked for nor left.
  void require_all_taken() const;
  /// Counts the numbers of all weights that were asked for, each weight once.
  [[nodiscard]] std::int64_t numbers() const noexcept { return numbers_; }
  /// Takes so many of them out of the count.
  void do_not_count(std::int64_t numbers) { numbers_ -= numbers; }

 private:
  const StoredWeight& take(const std::string& name, const Dims& shape);
  [[nodiscard]] std::string shown(const std::string& name) const {
    return name_in_file_ == nullptr ? name : name_in_file_(name);
  }

  std::string subject_, configuration_;
  NameInFile name_in_file_;
  std::map<std::string, StoredWeight> tensors_;
  std::set<std::string> taken_;
  std::vector<std::shared_ptr<const void>> memory_;  // mappings, and copies of what is not aligned
  std::int64_t numbers_ = 0;
};

}  // namespace heed::detail
