// One mask of a conjunction, in its own form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/problem/mask_source.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// The sizes of a mask; batch or heads is 1 if all entries or heads share a mask.
struct MaskShape {
  std::int64_t batch = 1, heads = 1, query_length = 0, key_length = 0;
  [[nodiscard]] std::int64_t planes() const { return batch * heads; }
};

/// A mask part as plain data.
struct SavedPart {
  std::string form;  ///< "rows", "columns", "key_lists", "blocks", "expression" or "grid"; or none
  std::string text;  ///< the expression; used by the form "expression" only
  std::vector<std::pair<std::string, Tensor>> tensors;
};

class MaskPart {
 public:
  explicit MaskPart(const MaskShape& shape) : shape_(shape) {}
  virtual ~MaskPart() = default;
  MaskPart(const MaskPart&) = delete;
  MaskPart& operator=(const MaskPart&) = delete;

  [[nodiscard]] const MaskShape& shape() const { return shape_; }
  [[nodiscard]] virtual Coverage coverage(const MaskTile& tile) const = 0;
  /// See MaskSource::restrict_row.
  virtual void restrict_row(const MaskTile& row, std::uint8_t* visible) const = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  /// Returns plain data for restored_part(), or no form if the part is a user's function.
  [[nodiscard]] virtual SavedPart saved() const { return {}; }

 private:
  MaskShape shape_;
};

}  // namespace heed::detail
