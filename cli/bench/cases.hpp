// What `heed bench` measures: shapes, and what is asked of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/attention.hpp"
#include "heed/kv_cache.hpp"

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

/// "12,128,128,64" (H,Lq,Lk,D) where B is 1 and the key heads are as many as the heads, else
/// "B,H,Hkv,Lq,Lk,D". Throws UsageError for what is neither.
[[nodiscard]] BenchShape parse_bench_shape(const std::string& text);
[[nodiscard]] std::string to_string(const BenchShape& shape);

/// What a call returns besides its output: names as on the command line, such as "lse" and "top8".
using BenchNeeds = std::vector<std::string>;
/// Throws UsageError for a name that is none.
[[nodiscard]] BenchNeeds parse_bench_needs(const std::string& text);
[[nodiscard]] std::string to_string(const BenchNeeds& needs);  ///< "lse,top8"; "" for none
void ask_for(const BenchNeeds& needs, AttentionOptions& options);

/// A cache of keys and values that a call reads.
struct BenchCache {
  CacheFormat format = CacheFormat::f32;
  CacheLayout layout = CacheLayout::contiguous;
  friend bool operator==(const BenchCache&, const BenchCache&) = default;
};

/// Formats and layouts, as the command line names them.
struct BenchCaches {
  std::vector<CacheFormat> formats;
  std::vector<CacheLayout> layouts;
};
/// "int8,paged": those named; of formats or of layouts that are not named, the usual ones. Throws UsageError
/// for what is neither.
[[nodiscard]] BenchCaches parse_bench_caches(const std::string& text);
[[nodiscard]] std::string to_string(const std::optional<BenchCache>& cache);  ///< "pages of 16"; "" for none

struct BenchCase {
  BenchShape shape;
  DType dtype = DType::f32;  ///< of query and output; without a cache, of keys and values too
  bool causal = false;
  BenchNeeds needs;
  int threads = 1;
  std::optional<BenchCache> cache{};
  friend bool operator==(const BenchCase&, const BenchCase&) = default;
};

/// What the command line says; what it leaves open is as in the usual table.
struct BenchChoice {
  std::vector<BenchShape> shapes;
  std::optional<DType> dtype;
  std::optional<BenchCaches> caches;
  bool causal = false;
  std::optional<BenchNeeds> needs;
  std::vector<int> threads;  ///< empty: one, and all that the machine has
};

[[nodiscard]] std::vector<BenchCase> bench_cases(const BenchChoice& choice);

/// The keys of each batch entry: Lk, or in a cache of several sequences, which is ragged, Lk (b + 1) / B.
[[nodiscard]] std::vector<std::int64_t> key_lengths(const BenchCase& what);

}  // namespace heed::cli
