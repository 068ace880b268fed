// The C functions for tokens on a grid and for norms of values.
#include "attention/api/c_delivery.hpp"
#include "attention/problem/operands.hpp"
#include "heed/inspect/grid.hpp"
#include "heed/inspect/moved.hpp"

namespace heed::detail::c_api {
namespace {

TokenGrid grid_of(const std::int64_t* sizes, std::size_t count, std::int64_t first) {
  const auto axes = list_of("sizes", sizes, count);
  return {{axes.begin(), axes.end()}, first};
}

// The product, or 0 for one that the call refuses.
std::int64_t product_of(std::span<const std::int64_t> sizes) {
  std::int64_t product = sizes.empty() ? 0 : 1;
  for (const std::int64_t size : sizes)
    if (size < 1 || __builtin_mul_overflow(product, size, &product)) return 0;
  return product;
}

// Copies the tensor that `compute` returns to the caller's memory. Before it computes, `compute` calls its
// last argument with the tensor's last two sizes, which checks that memory.
template <class Compute>
heed_status on_grid(const heed_tensor* query, const heed_tensor* key, const char* name, const heed_tensor* to,
                    Compute compute) {
  return guarded([&] {
    const TensorView q = view_of("query", query), k = view_of("key", key);
    const MutableTensorView view = view_of(name, to);
    const Tensor result = compute(q, k, [&](std::int64_t rows, std::int64_t columns) {
      if (q.rank() < 2 || q.rank() > 4 || rows == 0) return;  // the call refuses them
      const DType dtype = q.dtype() == DType::f64 ? DType::f64 : DType::f32;
      (void)target_of(name, view,
                      {q.rank() > 3 ? q.size(-4) : 1, q.rank() > 2 ? q.size(-3) : 1, rows, columns}, dtype,
                      0);
    });
    deliver(result, view);
  });
}

}  // namespace
}  // namespace heed::detail::c_api

using heed::Tensor;
using heed::TensorView;
using namespace heed::detail::c_api;

heed_status heed_grid_distance(const heed_tensor* query, const heed_tensor* key, const std::int64_t* sizes,
                               std::size_t count, std::int64_t first, const heed_attention_options* options,
                               const heed_tensor* distance) {
  return on_grid(query, key, "distance", distance, [&](const TensorView& q, const TensorView& k, auto check) {
    check(product_of(list_of("sizes", sizes, count)), static_cast<std::int64_t>(count));
    return heed::grid_distance(q, k, grid_of(sizes, count, first), options_or_defaults(options));
  });
}

heed_status heed_grid_map(const heed_tensor* query, const heed_tensor* key, const std::int64_t* sizes,
                          std::size_t count, std::int64_t first, const std::int64_t* cells,
                          const heed_attention_options* options, const heed_tensor* map) {
  return on_grid(query, key, "map", map, [&](const TensorView& q, const TensorView& k, auto check) {
    const auto numbers = list_of("cells", cells, count);
    check(product_of(numbers), product_of(numbers));
    return heed::grid_map(q, k, grid_of(sizes, count, first), numbers, options_or_defaults(options));
  });
}

heed_status heed_moved_norms(const heed_tensor* value, const heed_tensor* projection, const heed_tensor* gate,
                             std::int32_t threads, const heed_tensor* norms) {
  return guarded([&] {
    const TensorView v = view_of("value", value), matrix = view_of("projection", projection);
    const auto by = optional_view("gate", gate);
    const heed::MutableTensorView to = view_of("norms", norms);
    if (v.rank() == 4 && matrix.rank() == 3)  // else moved_norms() refuses them
      (void)heed::detail::target_of(
          "norms", to, {v.size(0), matrix.size(0), by && by->rank() == 4 ? by->size(2) : 1, v.size(2)},
          heed::DType::f32, 0);
    deliver(heed::moved_norms(v, matrix, by, threads), to);
  });
}
