#include "bench/cases.hpp"

#include <algorithm>
#include <string_view>

#include "command.hpp"
#include "heed/parallel.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMapBins = 64;

constexpr std::string_view kTop = "top";
constexpr std::string_view kMap = "map";
constexpr std::string_view kValuesInKeys = "values-in-keys";

std::optional<Need> need_of(std::string_view name) {
  for (const auto& [entry, member] : kResults<int>)
    if (entry.need != Need::none && with_dashes(entry.name()) == name) return entry.need;
  return std::nullopt;
}

std::optional<std::int64_t> top_k_of(std::string_view name) {
  if (!name.starts_with(kTop)) return std::nullopt;
  const std::optional<std::int64_t> k = whole_number(name.substr(kTop.size()));
  return k && *k >= 1 ? k : std::nullopt;
}

[[noreturn]] void refuse_shape(const std::string& text, const std::string& expected) {
  refuse_usage("--shape is '", text, "'; ", expected, " is expected");
}

// The cases of docs/performance.md.
std::vector<BenchCase> usual_cases() {
  const BenchShape sentence{1, 12, 12, 128, 128, 64};
  const BenchShape page{1, 12, 12, 512, 512, 64};
  const BenchShape article{1, 16, 16, 2048, 2048, 64};
  const BenchShape chapter{1, 8, 8, 4096, 4096, 128};
  const BenchShape book{1, 2, 2, 16384, 16384, 128};
  const BenchShape decoding{1, 32, 8, 1, 8192, 128};
  return {{sentence, DType::f32, false, {}, 0},
          {page, DType::f32, false, {}, 0},
          {article, DType::f32, false, {}, 0},
          {article, DType::f32, true, {}, 0},
          {article, DType::f32, false, {"lse", "entropy", "top8"}, 0},
          {article, DType::f32, false, {"map"}, 0},
          {article, DType::f32, false, {"received"}, 0},
          {article, DType::f32, false, {"weights"}, 0},
          {article, DType::bf16, false, {}, 0},
          {chapter, DType::f32, false, {}, 0},
          {chapter, DType::f32, true, {}, 0},
          {chapter, DType::bf16, false, {}, 0},
          {book, DType::f32, true, {}, 0},
          {decoding, DType::f32, false, {}, 0},
          {decoding, DType::bf16, false, {}, 0}};
}

// One long sequence, and sixteen shorter ones, with and without the results that eviction policies need.
std::vector<BenchCase> decode_cases() {
  std::vector<BenchCase> cases;
  for (const BenchShape& shape : {BenchShape{1, 32, 8, 1, 32768, 128}, BenchShape{16, 32, 8, 1, 4096, 128}})
    for (const BenchNeeds& needs : {BenchNeeds{}, BenchNeeds{"lse", "entropy", "top8", "received"}})
      cases.push_back({shape, DType::f32, false, needs, 0});
  return cases;
}

DType query_dtype(CacheFormat format) {
  return format == CacheFormat::bf16 ? DType::bf16 : format == CacheFormat::f16 ? DType::f16 : DType::f32;
}

std::vector<BenchCase> over_caches(const std::vector<BenchCase>& rows, const BenchCaches& caches) {
  std::vector<BenchCase> cases;
  for (BenchCase row : rows)
    for (const CacheLayout layout : caches.layouts)
      for (const CacheFormat format : caches.formats) {
        row.cache = {format, layout, caches.values_in_keys};
        row.dtype = query_dtype(format);
        cases.push_back(row);
      }
  return cases;
}

}  // namespace

BenchShape parse_bench_shape(const std::string& text) {
  const std::string expected = "B,H,Hkv,Lq,Lk,D or H,Lq,Lk,D (whole numbers of at least 1)";
  std::vector<std::int64_t> sizes = whole_numbers(text, ',');
  if (sizes.empty() || std::ranges::min(sizes) < 1) refuse_shape(text, expected);
  if (sizes.size() == 4) sizes = {1, sizes[0], sizes[0], sizes[1], sizes[2], sizes[3]};
  if (sizes.size() != 6) refuse_shape(text, expected);
  if (sizes[1] % sizes[2] != 0) refuse_shape(text, "a number of heads H that is a multiple of Hkv");
  const std::vector<double> of(sizes.begin(), sizes.end());
  require_memory("--shape " + text,
                 4 * of[0] * (of[1] * of[3] + of[2] * of[4]) * of[5]);  // at least, in bf16
  return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]};
}

std::string to_string(const BenchShape& s) {
  const auto join = [](const std::vector<std::int64_t>& sizes) {
    std::string text;
    for (const std::int64_t size : sizes) text += (text.empty() ? "" : ",") + std::to_string(size);
    return text;
  };
  if (s.batch == 1 && s.kv_heads == s.heads) return join({s.heads, s.query_length, s.key_length, s.head_dim});
  return join({s.batch, s.heads, s.kv_heads, s.query_length, s.key_length, s.head_dim});
}

std::string bench_need_names() {
  std::string names;
  for (const auto& [entry, member] : kResults<int>)
    if (entry.need != Need::none) names += with_dashes(entry.name()) + ", ";
  return names + "topK (such as top8) or map";
}

BenchNeeds parse_bench_needs(const std::string& text) {
  BenchNeeds needs;
  for (const std::string& name : split(text, ',')) {
    if (!need_of(name) && !top_k_of(name) && name != kMap)
      refuse_usage("--need is '", text, "'; ", bench_need_names(), ", separated by commas, is expected");
    if (std::ranges::find(needs, name) == needs.end()) needs.push_back(name);
  }
  if (std::ranges::count_if(needs, [](const auto& name) { return top_k_of(name).has_value(); }) > 1)
    refuse_usage("--need is '", text, "'; one topK is expected");
  return needs;
}

std::string to_string(const BenchNeeds& needs) { return detail::joined_texts(needs, ","); }

void ask_for(const BenchNeeds& needs, AttentionOptions& options) {
  for (const std::string& name : needs) {
    if (const std::optional<Need> need = need_of(name)) options.need |= *need;
    if (const std::optional<std::int64_t> k = top_k_of(name)) options.top_k = *k;
    if (name == kMap) options.map = {kMapBins, kMapBins};
  }
}

BenchCaches parse_bench_caches(const std::string& text) {
  BenchCaches caches;
  for (const std::string& name : text.empty() ? std::vector<std::string>{} : split(text, ',')) {
    const auto format = cache_format_named(name);
    const auto layout = cache_layout_named(name);
    const bool in_keys = name == kValuesInKeys;
    if (in_keys) caches.values_in_keys = true;
    if (format) caches.formats.push_back(*format);
    if (layout) caches.layouts.push_back(*layout);
    if (!format && !layout && !in_keys)
      refuse_usage("--cache is '", text,
                   "'; f32, bf16, f16, int8, int4, fp8, contiguous, paged, ring or values-in-keys, "
                   "separated by commas, is expected");
  }
  if (caches.formats.empty())
    caches.formats = {CacheFormat::f32, CacheFormat::bf16, CacheFormat::int8, CacheFormat::int4};
  if (caches.layouts.empty())
    caches.layouts = {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring};
  return caches;
}

std::string to_string(const std::optional<BenchCache>& cache) {
  if (!cache) return "";
  const std::string layout = cache->layout == CacheLayout::paged
                                 ? "pages of " + std::to_string(KvCacheOptions{}.page_size)
                                 : std::string(name_of(cache->layout));
  return layout + (cache->values_in_keys ? ", values in keys" : "");
}

std::vector<std::int64_t> key_lengths(const BenchCase& what) {
  const BenchShape& s = what.shape;
  std::vector<std::int64_t> lengths;
  for (std::int64_t b = 0; b < s.batch; ++b)
    lengths.push_back(what.cache ? std::max<std::int64_t>(1, s.key_length * (b + 1) / s.batch)
                                 : s.key_length);
  return lengths;
}

std::vector<BenchCase> bench_cases(const BenchChoice& choice) {
  std::vector<BenchCase> rows;
  for (const BenchShape& shape : choice.shapes) rows.push_back({shape, DType::f32, choice.causal, {}, 0});
  if (choice.shapes.empty()) rows = choice.caches ? decode_cases() : usual_cases();
  if (choice.caches) rows = over_caches(rows, *choice.caches);
  std::vector<int> threads = choice.threads;
  if (threads.empty()) threads = {1, default_threads()};
  std::vector<BenchCase> cases;
  for (BenchCase row : rows) {
    row.causal = row.causal || choice.causal;
    row.dtype = choice.dtype.value_or(row.dtype);
    row.needs = choice.needs.value_or(row.needs);
    for (const int count : threads) {
      row.threads = count;
      if (std::ranges::find(cases, row) == cases.end()) cases.push_back(row);
    }
  }
  return cases;
}

}  // namespace heed::cli
