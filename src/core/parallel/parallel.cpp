#include "heed/parallel.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/parallel/pool.hpp"

namespace heed {
namespace {

ParallelFor& chosen() {
  static ParallelFor function;
  return function;
}

int count_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

void set_parallel_for(ParallelFor parallel_for) { chosen() = std::move(parallel_for); }

void parallel_for(std::int64_t count, int threads, const ParallelBody& body) {
  if (count <= 0) return;
  if (chosen())
    chosen()(count, threads, body);
  else
    detail::run_on_pool(count, threads, body);
}

int default_threads() {
  static const int threads = count_processors();
  return threads;
}

}  // namespace heed
