// lightning_indexer(): scores of blocks of queries by matrix tiles, then the best keys of each row.
#include "heed/attention/lightning_indexer.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "attention/isa/dispatch.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/operands.hpp"
#include "core/index.hpp"
#include "core/message.hpp"
#include "heed/parallel.hpp"

namespace heed {
namespace {

using detail::index;
using detail::refuse;

constexpr std::int64_t kMaxOffset = std::int64_t{1} << 60;
// Queries of a piece of work: they share each packed panel of keys while it is in the first-level cache.
constexpr std::int64_t kQueries = 4;

detail::CallTensor floats_of(const char* name, const TensorView& view, int rank, const char* expected) {
  if (view.dtype() != DType::f32 && view.dtype() != DType::f16 && view.dtype() != DType::bf16)
    refuse(name, " has dtype ", view.dtype(), "; f32, f16 or bf16 is expected");
  if (view.rank() != rank) refuse(name, " has shape ", view.shape(), "; ", expected, " is expected");
  detail::check_memory(name, view);
  return detail::tensor_of(name, view);
}

class Indexer {
 public:
  Indexer(const TensorView& query, const TensorView& key, const TensorView& weights,
          const IndexerOptions& options)
      : query_(floats_of("query", query, 4, "[B, H, Lq, D]")),
        key_(floats_of("key", key, 4, "[B, 1, Lk, D]")),
        weights_(floats_of("weights", weights, 3, "[B, H, Lq]")),
        options_(options),
        products_(detail::cpu::kernels().all().products) {
    const Dims& q = query_.shape;
    if (q[0] != key_.shape[0] || key_.shape[1] != 1 || q[3] != key_.shape[3])
      refuse("key has shape ", key_.shape, "; [", q[0], ", 1, Lk, ", q[3],
             "] is expected for query of shape ", q);
    if (weights_.shape != Dims{q[0], q[1], q[2]})
      refuse("weights has shape ", weights_.shape, "; ", Dims{q[0], q[1], q[2]}, " is expected");
    if (key_.shape[2] > INT32_MAX) refuse("key has ", key_.shape[2], " rows; fewer than 2^31 are expected");
    if (options.top_k < 1) refuse("top_k is ", options.top_k, "; 1 or more is expected");
    if (options.query_offset < -kMaxOffset || options.query_offset > kMaxOffset)
      refuse("query_offset is ", options.query_offset, "; -2^60 to 2^60 is expected");
    if (options.threads < 0)
      refuse("threads is ", options.threads, "; 0 (all of the machine) or more is expected");
    threads_ = options.threads > 0 ? options.threads : default_threads();
    panels_ = (keys() + products_.tile_outputs - 1) / products_.tile_outputs;
  }

  [[nodiscard]] Dims shape() const {
    return {query_.shape[0], 1, queries(), std::min(options_.top_k, keys())};
  }

  void write(const MutableTensorView& indices) {
    to_ = detail::target_of("indices", indices, shape(), DType::i32, 0);
    if (queries() == 0 || keys() == 0) return;  // such a batch needs no memory, and may be of any size
    for (batch_ = 0; batch_ < query_.shape[0]; ++batch_) {
      pack_keys();
      parallel_for((queries() + kQueries - 1) / kQueries, threads_,
                   [&](std::int64_t piece, int) { choose(piece * kQueries); });
    }
  }

 private:
  [[nodiscard]] std::int64_t heads() const { return query_.shape[1]; }
  [[nodiscard]] std::int64_t queries() const { return query_.shape[2]; }
  [[nodiscard]] std::int64_t keys() const { return key_.shape[2]; }
  [[nodiscard]] std::int64_t dim() const { return query_.shape[3]; }

  // Panels of tile_outputs keys, each transposed.
  void pack_keys() {
    const std::int64_t width = products_.tile_outputs;
    packed_.resize(index(panels_ * width * dim()));
    parallel_for(panels_, threads_, [&](std::int64_t panel, int) {
      const std::int64_t count = std::min(width, keys() - panel * width);
      std::vector<float> rows(index(count * dim()));
      for (std::int64_t k = 0; k < count; ++k)
        detail::read_numbers(key_.rows, batch_, 0, panel * width + k,
                             std::span(rows).subspan(index(k * dim()), index(dim())));
      products_.pack_transposed(rows.data(), dim(), static_cast<int>(count), dim(), static_cast<int>(width),
                                packed_.data() + panel * width * dim());
    });
  }

  [[nodiscard]] std::int64_t keys_seen(std::int64_t i) const {
    return options_.causal ? std::clamp<std::int64_t>(i + options_.query_offset + 1, 0, keys()) : keys();
  }

  void choose(std::int64_t first) const {
    const std::int64_t count = std::min(kQueries, queries() - first), width = products_.tile_outputs;
    std::vector<float> scores(index(count * panels_ * width));
    score(first, count, scores);
    std::vector<std::int32_t> order;
    for (std::int64_t n = 0; n < count; ++n)
      choose_row(first + n,
                 std::span(scores).subspan(index(n * panels_ * width), index(keys_seen(first + n))), order);
  }

  // The scores of rows [first, first + count), at the stride of all panels.
  void score(std::int64_t first, std::int64_t count, std::vector<float>& scores) const {
    const std::int64_t height = products_.tile_rows, width = products_.tile_outputs;
    const std::int64_t tiles = (heads() + height - 1) / height;
    std::vector<float> rows(index(heads() * dim())), packed(index(count * tiles * height * dim())),
        factors(index(count * heads())), tile(index(height * width));
    for (std::int64_t n = 0; n < count; ++n) {
      for (std::int64_t h = 0; h < heads(); ++h) {
        detail::read_numbers(query_.rows, batch_, h, first + n,
                             std::span(rows).subspan(index(h * dim()), index(dim())));
        // tensor_of() reads a tensor of three axes as [1, B, H, Lq].
        factors[index(n * heads() + h)] =
            static_cast<float>(detail::read(weights_.rows, 0, batch_, h, first + n));
      }
      for (std::int64_t t = 0; t < tiles; ++t)
        products_.pack_transposed(rows.data() + t * height * dim(), dim(),
                                  static_cast<int>(std::min(height, heads() - t * height)), dim(),
                                  static_cast<int>(height), packed.data() + (n * tiles + t) * height * dim());
    }
    const std::int64_t seen = keys_seen(first + count - 1);
    for (std::int64_t panel = 0; panel * width < seen; ++panel)
      for (std::int64_t n = 0; n < count; ++n) {
        float* to = scores.data() + (n * panels_ + panel) * width;
        for (std::int64_t h = 0; h < heads(); ++h) {
          if (h % height == 0) {
            std::ranges::fill(tile, 0.0f);
            products_.add_tile(packed.data() + (n * tiles + h / height) * height * dim(),
                               packed_.data() + panel * width * dim(), dim(), tile.data(), width);
          }
          const float factor = factors[index(n * heads() + h)];
          const float* product = tile.data() + h % height * width;
          for (std::int64_t k = 0; k < width; ++k) to[k] += factor * (product[k] < 0 ? 0 : product[k]);
        }
      }
  }

  void choose_row(std::int64_t i, std::span<float> scores, std::vector<std::int32_t>& order) const {
    for (float& score : scores)
      if (std::isnan(score)) score = -INFINITY;
    order.resize(scores.size());
    std::iota(order.begin(), order.end(), 0);
    const std::size_t chosen = std::min(scores.size(), index(shape()[3]));
    if (chosen < order.size()) {
      std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(chosen), order.end(),
                       [&](std::int32_t a, std::int32_t b) {
                         const float x = scores[index(a)], y = scores[index(b)];
                         return x > y || (x == y && a < b);
                       });
      std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    for (std::int64_t n = 0; n < shape()[3]; ++n)
      static_cast<std::int32_t*>(to_.data)[detail::offset_in(to_, batch_, 0, i, n)] =
          index(n) < chosen ? order[index(n)] : -1;
  }

  detail::CallTensor query_, key_, weights_;
  IndexerOptions options_;
  const detail::cpu::Products& products_;
  detail::Output to_;
  int threads_ = 1;
  std::int64_t panels_ = 0, batch_ = 0;
  std::vector<float> packed_;
};

}  // namespace

Tensor lightning_indexer(const TensorView& query, const TensorView& key, const TensorView& weights,
                         const IndexerOptions& options) {
  return detail::with_memory_errors([&] {
    Indexer indexer(query, key, weights, options);
    Tensor indices(indexer.shape(), DType::i32);
    indexer.write(indices.mutable_view());
    return indices;
  });
}

void lightning_indexer_into(const TensorView& query, const TensorView& key, const TensorView& weights,
                            const IndexerOptions& options, const MutableTensorView& indices) {
  detail::with_memory_errors([&] {
    Indexer(query, key, weights, options).write(indices);
    return 0;
  });
}

}  // namespace heed
