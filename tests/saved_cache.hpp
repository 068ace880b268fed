// Rebuilds a cache from its tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heed/attention/kv_cache.hpp"

namespace heed::test {

inline KvCache restored(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  return KvCache::from_tensors(
      std::vector<std::pair<std::string, TensorView>>(tensors.begin(), tensors.end()));
}
inline KvCache restored(const KvCache& cache) { return restored(cache.tensors()); }

}  // namespace heed::test
