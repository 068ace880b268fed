// A mask given by a caller's function.
#include <utility>

#include "attention/masks/mask_part.hpp"
#include "core/message.hpp"
#include "heed/attention/mask_mod.hpp"

namespace heed::detail {
namespace {

class FunctionMask final : public MaskPart {
 public:
  FunctionMask(const MaskShape& shape, std::shared_ptr<const void> function, RestrictRow restrict)
      : MaskPart(shape), function_(std::move(function)), restrict_row_(restrict) {}

  [[nodiscard]] Coverage coverage(const MaskTile&) const override { return Coverage::cut; }
  void restrict_row(const MaskTile& row, std::uint8_t* visible) const override {
    restrict_row_(function_.get(), row.batch, row.head, row.row_begin, row.key_begin, row.key_end, visible);
  }
  [[nodiscard]] std::size_t bytes() const override { return sizeof *this; }

 private:
  std::shared_ptr<const void> function_;
  RestrictRow restrict_row_;
};

void check_size(std::string_view name, std::int64_t size, std::int64_t least) {
  if (size < least) refuse(name, " of a mask function is ", size, ", but must be at least ", least);
}

}  // namespace

}  // namespace heed::detail

namespace heed {

SparseMask function_mask(std::shared_ptr<const void> function, RestrictRow restrict_row, std::int64_t batch,
                         std::int64_t heads, std::int64_t query_length, std::int64_t key_length) {
  using namespace detail;
  if (restrict_row == nullptr) refuse("a mask function is null; a function is expected");
  check_size("batch", batch, 1);
  check_size("heads", heads, 1);
  check_size("query_length", query_length, 0);
  check_size("key_length", key_length, 0);
  return SparseMask(std::make_shared<const FunctionMask>(MaskShape{batch, heads, query_length, key_length},
                                                         std::move(function), restrict_row));
}

}  // namespace heed
