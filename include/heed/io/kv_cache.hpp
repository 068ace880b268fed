// A KvCache in a safetensors file. docs/kv_cache.md lists its tensors.
#pragma once

#include <string>

#include "heed/attention/kv_cache.hpp"
#include "heed/export.hpp"

namespace heed::io {

/// Writes the cache, atomically. Throws Error (io) if the file cannot be written.
HEED_API void write_kv_cache(const std::string& path, const KvCache& cache);
/// Reads it; the cache owns its memory and gives the same bits. Throws Error (io) if the file cannot be read
/// or does not hold a cache, out_of_memory if the cache does not fit.
[[nodiscard]] HEED_API KvCache read_kv_cache(const std::string& path);

}  // namespace heed::io
