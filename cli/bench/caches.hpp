// Caches for `heed bench` to read.
#pragma once

#include "bench/cases.hpp"
#include "heed/kv_cache.hpp"
#include "heed/random.hpp"

namespace heed::cli {

/// A cache of random rows, key_lengths(what) of them. They came in chunks, so that pages of several sequences
/// lie among one another; a ring that is full has given some rows away.
[[nodiscard]] KvCache random_cache(const BenchCase& what, Generator& generator);

}  // namespace heed::cli
