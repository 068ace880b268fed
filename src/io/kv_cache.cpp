#include "heed/io/kv_cache.hpp"

#include <utility>
#include <vector>

#include "heed/io/tensors.hpp"
#include "io/fault.hpp"

namespace heed::io {

void write_kv_cache(const std::string& path, const KvCache& cache) {
  const std::vector<std::pair<std::string, Tensor>> tensors = cache.tensors();
  write_safetensors(path, {tensors.begin(), tensors.end()});
}

KvCache read_kv_cache(const std::string& path) {
  const TensorFile file = read_safetensors(path);
  try {
    return KvCache::from_tensors(
        std::vector<std::pair<std::string, TensorView>>(file.tensors.begin(), file.tensors.end()));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    detail::fail(detail::subject_of(path), "holds no cache: ", error.what());
  }
}

}  // namespace heed::io
