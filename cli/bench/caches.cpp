#include "bench/caches.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace heed::cli {
namespace {

constexpr std::int64_t kChunk = 512;  // rows appended to a sequence at once
constexpr std::int64_t kSinks = 4;    // of a ring buffer (Xiao et al. 2023)

KvCacheOptions options_of(const BenchCase& what, const std::vector<std::int64_t>& lengths) {
  const BenchShape& s = what.shape;
  KvCacheOptions options;
  options.sequences = s.batch;
  options.kv_heads = s.kv_heads;
  options.head_dim = s.head_dim;
  options.format = what.cache->format;
  options.layout = what.cache->layout;
  if (options.layout == CacheLayout::ring) {
    options.sinks = std::min(kSinks, s.key_length - 1);
    options.window = s.key_length - options.sinks;
    return options;
  }
  options.capacity = s.key_length;
  if (options.layout == CacheLayout::paged)
    options.capacity = std::accumulate(lengths.begin(), lengths.end(), s.batch * options.page_size);
  return options;
}

}  // namespace

KvCache random_cache(const BenchCase& what, Generator& generator) {
  const BenchShape& s = what.shape;
  std::vector<std::int64_t> left = key_lengths(what);
  KvCache cache(options_of(what, left));
  if (what.cache->layout == CacheLayout::ring)
    for (std::int64_t& rows : left)
      if (rows == s.key_length) rows += s.key_length / 2;
  const Tensor chunk = randn(generator, {1, s.kv_heads, kChunk * s.batch, s.head_dim});
  while (std::any_of(left.begin(), left.end(), [](std::int64_t rows) { return rows > 0; })) {
    std::vector<std::int64_t> offsets{0};
    for (std::int64_t& rows : left) {
      const std::int64_t here = std::min(kChunk, rows);
      offsets.push_back(offsets.back() + here);
      rows -= here;
    }
    const TensorView rows = chunk.view().narrow(2, 0, offsets.back());
    cache.append(rows, rows, TensorView(offsets.data(), {s.batch + 1}));
  }
  return cache;
}

}  // namespace heed::cli
