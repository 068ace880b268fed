// The cases of `heed bench`: shapes and options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/kv_cache.hpp"

namespace heed::cli {

struct BenchShape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t query_length = 1;
  std::int64_t key_length = 1;
  std::int64_t head_dim = 1;
  friend bool operator==(const BenchShape&, const BenchShape&) = default;
};

/// Accepts "12,128,128,64" (H,Lq,Lk,D with B = 1 and as many key heads as query heads) or "B,H,Hkv,Lq,Lk,D".
/// Throws UsageError otherwise. to_string() writes the same forms.
[[nodiscard]] BenchShape parse_bench_shape(const std::string& text);
[[nodiscard]] std::string to_string(const BenchShape& shape);

/// Results that a call returns besides its output, named as on the command line: "lse", "top8", ….
using BenchNeeds = std::vector<std::string>;
/// All their names, for a sentence.
[[nodiscard]] std::string bench_need_names();
/// Throws UsageError for an unknown name.
[[nodiscard]] BenchNeeds parse_bench_needs(const std::string& text);
[[nodiscard]] std::string to_string(const BenchNeeds& needs);  ///< "lse,top8"; "" for none
void ask_for(const BenchNeeds& needs, AttentionOptions& options);

/// A KV cache that a call reads.
struct BenchCache {
  CacheFormat format = CacheFormat::f32;
  CacheLayout layout = CacheLayout::contiguous;
  bool values_in_keys = false;
  friend bool operator==(const BenchCache&, const BenchCache&) = default;
};

/// Formats and layouts named on the command line.
struct BenchCaches {
  std::vector<CacheFormat> formats;
  std::vector<CacheLayout> layouts;
  bool values_in_keys = false;
};
/// Parses a list such as "int8,paged". If it names no format or no layout, the usual ones are filled in.
/// Throws UsageError for an unknown name.
[[nodiscard]] BenchCaches parse_bench_caches(const std::string& text);
[[nodiscard]] std::string to_string(const std::optional<BenchCache>& cache);  ///< "pages of 16"; "" for none

struct BenchCase {
  BenchShape shape;
  DType dtype = DType::f32;  ///< of query and output; without a cache, also of keys and values
  bool causal = false;
  BenchNeeds needs;
  int threads = 1;
  std::optional<BenchCache> cache{};
  friend bool operator==(const BenchCase&, const BenchCase&) = default;
};

/// Choices from the command line. An empty choice takes the usual table's values.
struct BenchChoice {
  std::vector<BenchShape> shapes;
  std::optional<DType> dtype;
  std::optional<BenchCaches> caches;
  bool causal = false;
  std::optional<BenchNeeds> needs;
  std::vector<int> threads;  ///< empty: one thread, and all that the machine has
};

[[nodiscard]] std::vector<BenchCase> bench_cases(const BenchChoice& choice);

/// Keys per batch entry: Lk (b + 1) / B for a ragged cache of several sequences, otherwise Lk.
[[nodiscard]] std::vector<std::int64_t> key_lengths(const BenchCase& what);

}  // namespace heed::cli
