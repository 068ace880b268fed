// attention() over a cache. The call becomes one over tensors whose rows the cache holds.
#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/api/seen_results.hpp"
#include "attention/check/checks.hpp"
#include "attention/check/overlap.hpp"
#include "attention/check/results.hpp"
#include "attention/execute/run.hpp"
#include "attention/kv_cache/cache_state.hpp"
#include "attention/masks/draft_mask.hpp"
#include "attention/masks/sources.hpp"
#include "attention/plan/words.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"
#include "heed/attention/plan.hpp"

namespace heed {
namespace {

using namespace detail;

// The data that a Problem over a cache points to.
struct CacheCall {
  std::vector<std::int64_t> sequences;  // of each batch entry or segment
  std::vector<CachedSequence> plain;
  CacheRows cached{};
  Tensor query;  // set if it differs from the caller's query
  std::unique_ptr<DraftMask> drafts;
  Problem problem;

  CacheCall(const TensorView& query, const CacheState& cache, const AttentionOptions& options,
            const CacheQuery& which);

 private:
  TensorView prepared_query(const TensorView& given, const CacheState& cache);
  void choose_sequences(const CacheState& cache, std::int64_t count, const CacheQuery& which);
  void bind_cache(const CacheState& cache, const AttentionOptions& options);
  void read_tree(const CacheQuery& which);
  std::vector<std::uint8_t> tree_of(const CacheQuery& which, std::int64_t rows) const;
};

void check_options(const CacheState& cache, const TensorView& query, const AttentionOptions& options) {
  if (query.dtype() == DType::f64 || !is_floating(query.dtype()))
    refuse("query has dtype ", query.dtype(), "; f32, f16 or bf16 is expected over a cache");
  if (query.rank() != 4)
    refuse("query has shape ", query.shape(), "; [B, H, Lq, D] is expected over a cache");
  check_memory("query", query);
  if (query.shape()[3] != cache.options.head_dim)
    refuse("query has head dimension ", query.shape()[3], " (shape ", query.shape(), "); ",
           cache.options.head_dim, " as in the cache is expected");
  if (query.shape()[1] % cache.options.kv_heads != 0)
    refuse("query has head count ", query.shape()[1], " (shape ", query.shape(),
           "); a multiple of the cache's ", cache.options.kv_heads, " is expected");
  if (options.kv_lengths) refuse("kv_lengths is given; a cache knows its own lengths");
  if (options.key_segments) refuse("key_segments is given; a cache knows its own lengths");
}

std::int64_t count_segments(const TensorView& segments, const TensorView& query) {
  const std::size_t offsets = integers_of("query_segments", segments).size();
  if (offsets == 0) refuse("query_segments is empty; offsets from 0 to ", query.shape()[2], " are expected");
  return static_cast<std::int64_t>(offsets) - 1;
}

void CacheCall::choose_sequences(const CacheState& cache, std::int64_t count, const CacheQuery& which) {
  const auto all = std::ssize(cache.sequences);
  if (!which.sequences.empty() && std::ssize(which.sequences) != count)
    refuse("sequences has ", counted(which.sequences.size(), "number"), "; ", count,
           ", one per batch entry, is expected");
  if (which.sequences.empty() && count != all)
    refuse("query has ", counted(count, "sequence"), "; ", all, " as in the cache", expected(all));
  for (std::int64_t b = 0; b < count; ++b)
    sequences.push_back(which.sequences.empty() ? b : which.sequences[index(b)]);
  for (const std::int64_t number : sequences) plain.push_back(cache.plain(cache.sequence_in_use(number)));
}

// Converts rotated queries, and queries of another dtype than the rows, to f32.
TensorView CacheCall::prepared_query(const TensorView& given, const CacheState& cache) {
  if (cache.options.rotate) return query = hadamard(given);
  if (cache.has_codes() || given.dtype() != cache.key.view.dtype) {
    if (given.dtype() == DType::f32) return given;
    return query = Tensor::copy_of(given, DType::f32);
  }
  return given;
}

CacheCall::CacheCall(const TensorView& given, const CacheState& cache, const AttentionOptions& options,
                     const CacheQuery& which) {
  check_options(cache, given, options);
  const bool packed = options.query_segments.has_value();
  const std::int64_t count = packed ? count_segments(*options.query_segments, given) : given.shape()[0];
  choose_sequences(cache, count, which);

  // The lengths of the sequences, as in a call on tensors that hold the rows.
  std::vector<std::int64_t> lengths{0};
  std::int64_t most = 0;
  for (const std::int64_t number : sequences) {
    const std::int64_t rows = cache.sequence(number).rows();
    lengths.push_back(packed ? lengths.back() + rows : rows);
    most = std::max(most, rows);
  }
  if (packed) most = lengths.back();
  AttentionOptions complete = options;
  const Tensor key_lengths = Tensor::from(std::span<const std::int64_t>(lengths).subspan(packed ? 0 : 1),
                                          {std::ssize(lengths) - (packed ? 0 : 1)});
  (packed ? complete.key_segments : complete.kv_lengths) = key_lengths.view();
  const TensorView prepared = prepared_query(given, cache);
  const auto rows_of = [&](const char* name, std::int64_t width, const Operand& rows) {
    CallTensor tensor =
        tensor_of(name, {given.shape()[0], cache.options.kv_heads, most, width}, prepared.dtype());
    tensor.rows = rows;
    return tensor;
  };
  if (options.output_dtype && *options.output_dtype != given.dtype() && *options.output_dtype != DType::f32)
    refuse("output_dtype is ", *options.output_dtype, "; ", given.dtype(), " as in query or f32 is expected");
  complete.output_dtype.reset();
  problem = check_call(tensor_of("query", prepared), rows_of("key", cache.options.head_dim, cache.key.view),
                       rows_of("value", cache.options.value_dim, cache.value.view), complete);
  problem.output_dtype = options.output_dtype.value_or(given.dtype());
  bind_cache(cache, options);
  read_tree(which);
}

void check_decay(const Problem& p, const Segment& segment, std::int64_t length) {
  if (!p.decay) return;
  if (p.decay_length > 0 && p.decay_length < length)
    refuse("decay has ", counted(p.decay_length, "position"), "; at least the ", length, " of sequence ",
           segment.sequence, expected(length), " over a cache");
  if (p.decay_length == 0 && segment.positions != nullptr)
    refuse("decay is given with query_segments over a cache that has evicted rows; a batch is expected");
}

void CacheCall::bind_cache(const CacheState& cache, const AttentionOptions& options) {
  cached = {plain.data(), cache.options.kv_heads, cache.codes()};
  problem.cache = &cached;
  for (std::size_t s = 0; s < problem.segments.size(); ++s) {
    Segment& segment = problem.segments[s];
    segment.sequence = static_cast<std::int64_t>(s);
    segment.positions = plain[s].positions;
    check_decay(problem, segment, cache.sequence(sequences[s]).length);
    if (options.query_offset) continue;
    segment.offset = cache.sequence(sequences[s]).length - (segment.query_end - segment.query_begin);
  }
}

std::vector<std::uint8_t> CacheCall::tree_of(const CacheQuery& which, std::int64_t rows) const {
  const auto count = std::ssize(problem.segments);
  if (which.tree_mask) {
    const TensorView& mask = *which.tree_mask;
    const bool one = mask.shape() == Dims{rows, rows};
    if (mask.dtype() != DType::boolean || (!one && mask.shape() != Dims{count, rows, rows}))
      refuse("tree_mask has dtype ", mask.dtype(), " and shape ", mask.shape(), "; bool ", Dims{rows, rows},
             " or ", Dims{count, rows, rows}, " is expected");
    check_memory("tree_mask", mask);
    const Tensor bytes = Tensor::copy_of(mask, DType::u8);
    return {bytes.values<std::uint8_t>().begin(), bytes.values<std::uint8_t>().end()};
  }
  const TensorView& parents = *which.tree_parents;
  const bool one = parents.shape() == Dims{rows};
  if ((parents.dtype() != DType::i64 && parents.dtype() != DType::i32) ||
      (!one && parents.shape() != Dims{count, rows}))
    refuse("tree_parents has dtype ", parents.dtype(), " and shape ", parents.shape(), "; i64 or i32 ",
           Dims{rows}, " or ", Dims{count, rows}, " is expected");
  check_memory("tree_parents", parents);
  const Tensor numbers = Tensor::copy_of(parents, DType::i64);
  std::vector<std::uint8_t> sees;
  for (std::int64_t at = 0; at < numbers.count(); at += rows) {
    const auto of_one = numbers.values<std::int64_t>().subspan(index(at), index(rows));
    const std::vector<std::uint8_t> tree = ancestors_of({of_one.begin(), of_one.end()});
    sees.insert(sees.end(), tree.begin(), tree.end());
  }
  return sees;
}

void CacheCall::read_tree(const CacheQuery& which) {
  if (!which.tree_parents && !which.tree_mask) return;
  if (which.tree_parents && which.tree_mask)
    refuse("tree_mask is given together with tree_parents; one is expected");
  std::vector<DraftTree> trees;
  std::int64_t rows =
      problem.segments.empty() ? 0 : problem.segments[0].query_end - problem.segments[0].query_begin;
  for (const Segment& s : problem.segments) {
    if (s.query_end - s.query_begin != rows)
      refuse("sequence ", sequences[index(s.sequence)], " has ",
             counted(s.query_end - s.query_begin, "query", "queries"), "; ", rows,
             ", as in the first sequence,", expected(rows), " with a tree");
    if (s.key_end - s.key_begin < rows)
      refuse("sequence ", sequences[index(s.sequence)], " holds ", counted(s.key_end - s.key_begin, "row"),
             "; at least the ", counted(rows, "row"), " of the tree", expected(rows));
    trees.push_back({s.batch, s.query_begin, s.query_end, s.key_end});
  }
  if (rows == 0) return;
  drafts = std::make_unique<DraftMask>(MaskShape{problem.batch, 1, problem.query_length, problem.key_length},
                                       std::move(trees), tree_of(which, rows));
  problem.sparse_masks.push_back(source_of(*drafts, problem.heads));
}

// Converts key indices to positions.
void place_top_keys(const Problem& p) {
  if (!p.top_k_index) return;
  for (const Segment& s : p.segments)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = s.query_begin; i < s.query_end; ++i)
        for (std::int64_t k = 0; k < p.top_k; ++k) {
          auto& key =
              static_cast<std::int64_t*>(p.top_k_index.data)[offset_in(p.top_k_index, s.batch, h, i, k)];
          if (key >= 0) key = s.keys().of(key - s.key_begin);
        }
}

// Sets the scores of keys beyond a sequence's rows to -inf.
void forbid_beyond(const Problem& p) {
  if (!p.scores) return;
  for (const Segment& s : p.segments)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = s.query_begin; i < s.query_end; ++i)
        for (std::int64_t j = 0; j < p.key_length; ++j)
          if (j < s.key_begin || j >= s.key_end) write(p.scores, -INFINITY, s.batch, h, i, j);
}

// Outputs must not overlap any memory of a cache: rows that this call does not read belong to others, or come
// later.
void refuse_overlaps(const Problem& problem, const CacheState& cache) {
  Problem others = problem;
  others.key = others.value = {};
  if (!cache.borrowed) return check_overlaps(others);
  check_overlaps(others, cache.pools());
}

AttentionRun compute(CacheCall& call, Kernel kernel) {
  Problem& problem = call.problem;
  const AttentionRun run = detail::run(problem, kernel);
  place_top_keys(problem);
  forbid_beyond(problem);
  recycle(problem);
  return run;
}

}  // namespace

AttentionResult attention(const TensorView& query, const KvCache& cache, const AttentionOptions& options,
                          const CacheQuery& which) {
  return attention(query, cache, options, which, [](const AttentionResult&) {});
}

AttentionResult detail::attention(const TensorView& query, const KvCache& cache,
                                  const AttentionOptions& options, const CacheQuery& which,
                                  const SeeResults& see) {
  return with_memory_errors([&] {
    CacheCall call(query, cache.state(), options, which);
    AttentionResult result = allocate_results(call.problem, options, 4);
    bind_outputs(views_of(result), options, 4, call.problem);
    see(result);
    tell(compute(call, options.kernel), result);
    return result;
  });
}

AttentionRun attention_into(const TensorView& query, const KvCache& cache, const AttentionOptions& options,
                            const AttentionOutputs& outputs, const CacheQuery& which) {
  return with_memory_errors([&] {
    CacheCall call(query, cache.state(), options, which);
    bind_outputs(outputs, options, 4, call.problem);
    refuse_overlaps(call.problem, cache.state());
    return compute(call, options.kernel);
  });
}

AttentionPlan plan_attention(const TensorView& query, const KvCache& cache, const AttentionOptions& options,
                             const CacheQuery& which) {
  return with_memory_errors([&] {
    CacheCall call(query, cache.state(), options, which);
    const std::size_t bytes = expect_results(call.problem, options);
    AttentionPlan plan = in_words(call.problem, options.kernel);
    plan.result_bytes = bytes;
    recycle(call.problem);
    return plan;
  });
}

}  // namespace heed
