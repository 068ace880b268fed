#include "heed/parallel.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace heed::detail {
namespace {

// How long a thread looks for work before it sleeps, and how long the caller waits for the last piece before
// it yields. About the cost of waking a thread.
constexpr std::chrono::microseconds kSpin{50};

// One call's work. Threads take the next index until none is left.
struct Work {
  std::int64_t count = 0;
  const ParallelBody* body = nullptr;
  std::atomic<std::int64_t> next{0};
  std::mutex failure_lock;
  std::exception_ptr failure;

  void run(int worker) {
    for (std::int64_t index = next.fetch_add(1); index < count; index = next.fetch_add(1)) {
      try {
        (*body)(index, worker);
      } catch (...) {
        const std::lock_guard lock(failure_lock);
        if (!failure) failure = std::current_exception();
        next.store(count);
      }
    }
  }
};

// Clears a flag at the end of a scope.
struct Release {
  std::atomic_flag& flag;
  ~Release() { flag.clear(std::memory_order_release); }
};

// heed's own threads. They wait for the next call.
class Pool {
 public:
  ~Pool() {
    {
      const std::lock_guard lock(lock_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Returns false if the pool is busy for another caller.
  bool try_run(Work& work, int threads) {
    if (busy_.test_and_set(std::memory_order_acquire)) return false;
    const Release release{busy_};
    grow(threads - 1);
    {
      const std::lock_guard lock(lock_);
      work_ = &work;
      wanted_ = std::min(threads - 1, static_cast<int>(threads_.size()));
      running_.store(wanted_);
      generation_.fetch_add(1);
    }
    wake_.notify_all();
    work.run(0);
    const auto start = std::chrono::steady_clock::now();
    while (running_.load(std::memory_order_acquire) > 0)
      if (std::chrono::steady_clock::now() - start > kSpin) std::this_thread::yield();
    return true;
  }

 private:
  // Failure to create more threads is not an error: the existing ones do the work.
  void grow(int threads) {
    try {
      while (static_cast<int>(threads_.size()) < threads) {
        const int worker = static_cast<int>(threads_.size()) + 1;
        threads_.emplace_back([this, worker, seen = generation_.load()] { serve(worker, seen); });
      }
    } catch (const std::system_error&) {
    }
  }

  void serve(int worker, std::uint64_t seen) {
    for (;;) {
      const auto start = std::chrono::steady_clock::now();
      while (generation_.load(std::memory_order_acquire) == seen &&
             std::chrono::steady_clock::now() - start < kSpin) {
      }
      Work* work = nullptr;
      {
        std::unique_lock lock(lock_);
        wake_.wait(lock, [&] { return stopping_ || generation_.load() != seen; });
        if (stopping_) return;
        seen = generation_.load();
        if (worker <= wanted_) work = work_;
      }
      if (work == nullptr) continue;
      work->run(worker);
      running_.fetch_sub(1, std::memory_order_release);
    }
  }

  // Set while the pool works for a caller. Not a mutex: a body may call parallel_for itself, and a thread
  // must not lock a mutex that it already holds.
  std::atomic_flag busy_;
  std::vector<std::thread> threads_;
  std::mutex lock_;  // guards work_, wanted_ and stopping_
  std::condition_variable wake_;
  Work* work_ = nullptr;
  int wanted_ = 0;
  bool stopping_ = false;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<int> running_{0};
};

struct Current {
  std::mutex lock;
  std::unique_ptr<Pool> pool;
  Pool* left_behind = nullptr;  // abandoned after a fork; kept reachable for leak checkers
};

Current& current() {
  static Current only;
  return only;
}

// After fork() the child has the pool's memory but none of its threads, and its locks may stay locked. The
// child therefore abandons that pool, also at exit, and creates a new one when needed. No pool is created
// during a fork.
void survive_forks() {
  (void)pthread_atfork([] { current().lock.lock(); }, [] { current().lock.unlock(); },
                       [] {
                         current().left_behind = current().pool.release();
                         current().lock.unlock();
                       });
}

Pool& pool() {
  Current& here = current();
  const std::lock_guard guard(here.lock);
  if (here.pool == nullptr) {
    static std::once_flag once;
    std::call_once(once, survive_forks);
    here.pool = std::make_unique<Pool>();
  }
  return *here.pool;
}

void run_on_pool(std::int64_t count, int threads, const ParallelBody& body) {
  Work work;
  work.count = count;
  work.body = &body;
  const auto most = static_cast<int>(std::min<std::int64_t>(threads, count));
  if (most <= 1 || !pool().try_run(work, most)) work.run(0);
  if (work.failure) std::rethrow_exception(work.failure);
}

}  // namespace
}  // namespace heed::detail

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
