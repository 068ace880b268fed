// A record of the fused kernels' work for tests: the paths taken, and the rows that the reference computed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "attention/kernels/shared/paths.hpp"

namespace heed::detail {

/// Query rows [begin, end) of a head.
struct FallbackRows {
  std::int64_t batch, head, begin, end;
};

struct PathRecord {
  std::array<std::int64_t, cpu::kPaths> taken{};
  std::mutex mutex;  ///< guards the members below
  std::vector<FallbackRows> forward_fallbacks, backward_fallbacks;
};

/// The record that calls write to; nullptr outside of tests.
inline std::atomic<PathRecord*> path_record{nullptr};

inline std::int64_t* path_counts() {
  PathRecord* record = path_record.load(std::memory_order_acquire);
  return record == nullptr ? nullptr : record->taken.data();
}

inline void record_fallback(cpu::Path path, const FallbackRows& rows) {
  PathRecord* record = path_record.load(std::memory_order_acquire);
  if (record == nullptr) return;
  cpu::count_path(record->taken.data(), path, rows.end - rows.begin);
  const std::lock_guard guard(record->mutex);
  auto& fallbacks = path == cpu::Path::fallback ? record->forward_fallbacks : record->backward_fallbacks;
  fallbacks.push_back(rows);
}

}  // namespace heed::detail
