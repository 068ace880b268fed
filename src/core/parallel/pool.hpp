// heed's own thread pool.
#pragma once

#include "heed/parallel.hpp"

namespace heed::detail {

void run_on_pool(std::int64_t count, int threads, const ParallelBody& body);

}  // namespace heed::detail
