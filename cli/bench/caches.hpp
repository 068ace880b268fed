// KV caches for `heed bench`.
#pragma once

#include "bench/cases.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/random.hpp"

namespace heed::cli {

/// A cache of random rows, with key_lengths(what) rows per sequence. Rows are appended in chunks, so pages of
/// different sequences interleave. A full ring buffer has already evicted rows.
[[nodiscard]] KvCache random_cache(const BenchCase& what, Generator& generator);

}  // namespace heed::cli
