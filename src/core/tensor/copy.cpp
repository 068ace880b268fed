#include <cstring>

#include "core/message.hpp"
#include "core/tensor/element.hpp"
#include "heed/tensor.hpp"

namespace heed {
namespace {

// A loop nest of rank 5; lower ranks get leading axes of size 1.
struct Nest {
  std::array<std::int64_t, kMaxRank> shape{1, 1, 1, 1, 1};
  std::array<std::int64_t, kMaxRank> from{};
  std::array<std::int64_t, kMaxRank> to{};
};

Nest nest_of(const TensorView& from, const MutableTensorView& to) {
  Nest nest;
  const int pad = kMaxRank - from.rank();
  for (int axis = 0; axis < from.rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis + pad);
    nest.shape[at] = from.shape()[axis];
    nest.from[at] = from.strides()[axis];
    nest.to[at] = to.strides()[axis];
  }
  return nest;
}

// Calls row(from_offset, to_offset) for each innermost row.
template <class Row>
void for_each_row(const Nest& n, Row row) {
  for (std::int64_t a = 0; a < n.shape[0]; ++a)
    for (std::int64_t b = 0; b < n.shape[1]; ++b)
      for (std::int64_t c = 0; c < n.shape[2]; ++c)
        for (std::int64_t d = 0; d < n.shape[3]; ++d)
          row(a * n.from[0] + b * n.from[1] + c * n.from[2] + d * n.from[3],
              a * n.to[0] + b * n.to[1] + c * n.to[2] + d * n.to[3]);
}

}  // namespace

void copy(const TensorView& from, const MutableTensorView& to) {
  if (from.shape() != to.shape())
    detail::refuse("copy from shape ", from.shape(), " to shape ", to.shape(), ": equal shapes are expected");
  if (from.count() == 0) return;
  const Nest nest = nest_of(from, to);
  // bool to bool uses the slow path, which makes every byte 0 or 1.
  if (from.dtype() == to.dtype() && from.dtype() != DType::boolean && from.is_contiguous() &&
      to.is_contiguous()) {
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(from.count()) * size_of(from.dtype()));
    return;
  }
  detail::with_element_type(from.dtype(), [&](auto source) {
    detail::with_element_type(to.dtype(), [&](auto target) {
      using Source = decltype(source);
      using Destination = decltype(target);
      for_each_row(nest, [&](std::int64_t from_row, std::int64_t to_row) {
        for (std::int64_t i = 0; i < nest.shape[4]; ++i) {
          const std::int64_t from_at = from_row + i * nest.from[4];
          const std::int64_t to_at = to_row + i * nest.to[4];
          // Same type: copy the bits, including a NaN's payload.
          if constexpr (std::is_same_v<Source, Destination> && !std::is_same_v<Source, bool>)
            static_cast<Destination*>(to.data())[to_at] = static_cast<const Source*>(from.data())[from_at];
          else
            detail::store<Destination>(to.data(), to_at, detail::load<Source>(from.data(), from_at));
        }
      });
    });
  });
}

}  // namespace heed
