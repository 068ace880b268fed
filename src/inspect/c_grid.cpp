// The C functions of tokens on a grid, and of what a weight moves.
#include "attention/api/c_delivery.hpp"
#include "heed/inspect/grid.hpp"
#include "heed/inspect/moved.hpp"

namespace heed::detail::c_api {
namespace {

TokenGrid grid_of(const std::int64_t* sizes, std::size_t count, std::int64_t first) {
  const auto axes = numbers_of("sizes", sizes, count);
  return {{axes.begin(), axes.end()}, first};
}

// Copies the tensor that `compute` returns to the caller's memory.
template <class Compute>
heed_status on_grid(const heed_tensor* query, const heed_tensor* key, const char* name, const heed_tensor* to,
                    Compute compute) {
  return guarded([&] {
    const TensorView q = view_of("query", query), k = view_of("key", key);
    const MutableTensorView view = view_of(name, to);
    const Tensor result = compute(q, k);
    deliver({{name, result, view}});
  });
}

}  // namespace
}  // namespace heed::detail::c_api

using heed::Tensor;
using heed::TensorView;
using heed::detail::c_api::deliver;
using heed::detail::c_api::grid_of;
using heed::detail::c_api::guarded;
using heed::detail::c_api::numbers_of;
using heed::detail::c_api::on_grid;
using heed::detail::c_api::options_or_defaults;
using heed::detail::c_api::view_of;

heed_status heed_grid_distance(const heed_tensor* query, const heed_tensor* key, const std::int64_t* sizes,
                               std::size_t count, std::int64_t first, const heed_attention_options* options,
                               const heed_tensor* distance) {
  return on_grid(query, key, "distance", distance, [&](const TensorView& q, const TensorView& k) {
    return heed::grid_distance(q, k, grid_of(sizes, count, first), options_or_defaults(options));
  });
}

heed_status heed_grid_map(const heed_tensor* query, const heed_tensor* key, const std::int64_t* sizes,
                          std::size_t count, std::int64_t first, const std::int64_t* cells,
                          const heed_attention_options* options, const heed_tensor* map) {
  return on_grid(query, key, "map", map, [&](const TensorView& q, const TensorView& k) {
    return heed::grid_map(q, k, grid_of(sizes, count, first), numbers_of("cells", cells, count),
                          options_or_defaults(options));
  });
}

heed_status heed_moved_norms(const heed_tensor* value, const heed_tensor* projection, const heed_tensor* gate,
                             std::int32_t threads, const heed_tensor* norms) {
  return guarded([&] {
    const TensorView v = view_of("value", value), matrix = view_of("projection", projection);
    std::optional<TensorView> by;
    if (gate != nullptr) by = view_of("gate", gate);
    const heed::MutableTensorView to = view_of("norms", norms);
    const Tensor result = heed::moved_norms(v, matrix, by, threads);
    deliver({{"norms", result, to}});
  });
}
