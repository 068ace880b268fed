// Records which paths the fused kernels take in a test, and which rows they leave to the reference.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <vector>

#include "attention/execute/path_record.hpp"
#include "compare_results.hpp"
#include "processor.hpp"
#include "support.hpp"

namespace heed::test {

using detail::cpu::kPaths;
using detail::cpu::Path;

/// In the order of Path.
inline constexpr std::array<const char*, kPaths> kPathNames{"decode",
                                                            "decode, pairs of bf16",
                                                            "decode, int4 as bytes",
                                                            "decode, tile registers",
                                                            "decode, keys by matrix tiles",
                                                            "packed panels",
                                                            "packed KV blocks",
                                                            "packed KV blocks, pairs of bf16",
                                                            "keys packed again",
                                                            "tail",
                                                            "masked tiles",
                                                            "outgrown tiles",
                                                            "shifts that move late",
                                                            "rows over several spans",
                                                            "spans shared by threads",
                                                            "rescaled rows",
                                                            "dropout",
                                                            "top-k, tightened",
                                                            "top-k, insertion",
                                                            "top-k, completed",
                                                            "map, wide columns",
                                                            "map, narrow columns",
                                                            "packed sequence in one task",
                                                            "packed sequence in several tasks",
                                                            "packed sequence in one step",
                                                            "packed sequence in several steps",
                                                            "received from kept weights",
                                                            "weights pass",
                                                            "weights pass, unseen KV block",
                                                            "weights pass, scores",
                                                            "fallback, rows",
                                                            "backward, plain",
                                                            "backward, recomputed lse",
                                                            "backward, plain packed sequence",
                                                            "backward, recomputed lse, packed sequence",
                                                            "backward, split keys",
                                                            "backward, packed sequence, split keys",
                                                            "backward, packed sequence undivided",
                                                            "backward, shared bias",
                                                            "backward, own bias",
                                                            "backward, tiles",
                                                            "backward, flushed tiles",
                                                            "backward, masked tiles",
                                                            "backward, matrix tiles",
                                                            "backward, flushed matrix tiles",
                                                            "backward, matrix tiles that a position cuts",
                                                            "backward, modified matrix tiles",
                                                            "backward, fallback, rows",
                                                            "keys forbidden by masks",
                                                            "keys allowed by masks",
                                                            "keys cut by masks",
                                                            "spans of a shared prefix"};
static_assert(kPathNames.back() != nullptr);

inline bool holds(const std::vector<detail::FallbackRows>& fallbacks, std::int64_t b, std::int64_t h,
                  std::int64_t i) {
  for (const detail::FallbackRows& rows : fallbacks)
    if (rows.batch == b && rows.head == h && rows.begin <= i && i < rows.end) return true;
  return false;
}

/// Records paths while it exists. If there are several, the one that started a call last records.
class PathWatch {
 public:
  PathWatch() { detail::path_record = &record_; }
  ~PathWatch() { detail::path_record = nullptr; }
  PathWatch(const PathWatch&) = delete;
  PathWatch& operator=(const PathWatch&) = delete;

  void start_call() {
    detail::path_record = &record_;
    record_.taken.fill(0);
    record_.forward_fallbacks.clear();
    record_.backward_fallbacks.clear();
  }
  /// Whether the reference recomputed a row of this call.
  [[nodiscard]] bool fell_back(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return holds(record_.forward_fallbacks, b, h, i);
  }
  [[nodiscard]] bool gradients_fell_back(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return holds(record_.backward_fallbacks, b, h, i);
  }
  [[nodiscard]] const std::vector<detail::FallbackRows>& fallbacks() const {
    return record_.forward_fallbacks;
  }
  [[nodiscard]] bool fell_back_at_all() const {
    return !record_.forward_fallbacks.empty() || !record_.backward_fallbacks.empty();
  }
  /// If a call fell back, its other paths may have computed results that were discarded, so only its
  /// fallbacks count.
  void end_call() {
    for (std::size_t p = 0; p < taken_.size(); ++p)
      if (!fell_back_at_all() || is_fallback(static_cast<Path>(p))) taken_[p] += record_.taken[p];
  }

  /// How often this call took a path.
  [[nodiscard]] std::int64_t taken_now(Path path) const {
    return record_.taken[static_cast<std::size_t>(path)];
  }
  /// How often all calls took a path.
  [[nodiscard]] std::int64_t taken(Path path) const { return taken_[static_cast<std::size_t>(path)]; }

  /// Prints how often each path from `first` to `last` was taken. Fails if a path of instruction set `isa`
  /// was taken less than `times` times (for all random calls: see share_of).
  void expect_each_taken(Path first, Path last, std::string_view isa, std::uint64_t times = 100) const {
    const auto least = static_cast<std::int64_t>(share_of(times));
    std::cout << "paths taken on " << isa << ":\n";
    for (auto p = static_cast<std::size_t>(first); p <= static_cast<std::size_t>(last); ++p) {
      const auto path = static_cast<Path>(p);
      if (path == Path::decode_digits || (path == Path::decode_pairs && isa != "avx512bf16") ||
          (path == Path::decode_tiles && !isa.starts_with("amx")) ||
          (path == Path::matrix_keys && !isa.starts_with("amx") && isa != "neonbf16") ||
          (path == Path::packed_pairs && !multiplies_bf16(isa)) ||
          (path >= Path::backward_matrix_tiles && path <= Path::backward_matrix_modified &&
           !multiplies_bf16(isa))) {
        EXPECT_EQ(taken(path), 0) << kPathNames[p];
        continue;
      }
      std::cout << "  " << kPathNames[p] << ": " << taken(path) << "\n";
      // Only 13 to 32 rows of bf16 take it, or fewer that tile registers do not.
      const std::int64_t rare = path == Path::matrix_keys ? 2 : 1;
      EXPECT_GE(taken(path), least / rare) << kPathNames[p];
    }
  }

 private:
  static bool is_fallback(Path path) { return path == Path::fallback || path == Path::backward_fallback; }
  detail::PathRecord record_;
  std::array<std::int64_t, kPaths> taken_{};
};

}  // namespace heed::test
