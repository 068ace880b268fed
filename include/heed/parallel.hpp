// Where threads come from: one seam, which a host program can replace by its own pool.
#pragma once

#include <cstdint>
#include <functional>

#include "heed/export.hpp"

namespace heed {

/// Does piece `index` of the work; `worker` is in [0, threads), and no two pieces run on one worker at a
/// time.
using ParallelBody = std::function<void(std::int64_t index, int worker)>;

/// Runs body for every index in [0, count), on at most `threads` threads (the calling one included), and
/// returns when all are done. Which thread does which piece is free: results do not depend on it. If pieces
/// throw, one of the exceptions is thrown again once the others have ended.
using ParallelFor = std::function<void(std::int64_t count, int threads, const ParallelBody& body)>;

/// Lets heed run its work through `parallel_for` from now on; an empty function goes back to heed's own pool.
/// Not while calls are under way.
HEED_API void set_parallel_for(ParallelFor parallel_for);

/// heed's own pool, or the one that was set. A call made while the pool is at work for another caller, or
/// from one of its own pieces, runs on the calling thread alone, so that nothing oversubscribes. Usable after
/// fork().
HEED_API void parallel_for(std::int64_t count, int threads, const ParallelBody& body);

/// The number of threads a call takes when it does not say: the processors that this process may run on.
[[nodiscard]] HEED_API int default_threads();

}  // namespace heed
