// The thread pool, which a host program can replace by its own.
#pragma once

#include <cstdint>
#include <functional>

#include "heed/export.hpp"

namespace heed {

/// Runs piece `index` of the work. `worker` is in [0, threads); a worker runs one piece at a time.
using ParallelBody = std::function<void(std::int64_t index, int worker)>;

/// Runs body for every index in [0, count), on at most `threads` threads including the caller, and returns
/// when all are done. The assignment of pieces to threads is free, because results do not depend on it. If
/// pieces throw, one of the exceptions is rethrown after the others have ended.
using ParallelFor = std::function<void(std::int64_t count, int threads, const ParallelBody& body)>;

/// Makes heed use `parallel_for` from now on; an empty function restores heed's own pool. Must not run while
/// calls are in progress.
HEED_API void set_parallel_for(ParallelFor parallel_for);

/// Runs heed's own pool, or the one set. While the pool is busy for another caller, or within one of its own
/// pieces, work runs on the calling thread alone to avoid oversubscription. Works after fork().
HEED_API void parallel_for(std::int64_t count, int threads, const ParallelBody& body);

/// The default number of threads of a call: the processors available to this process.
[[nodiscard]] HEED_API int default_threads();

}  // namespace heed
