#include "attention/check/checks.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/masks/sources.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

void check_axis(const char* axis, const char* begin_name, std::int64_t begin, std::int64_t count,
                std::int64_t whole) {
  if (begin < 0 || begin > whole - count)
    refuse("part.", begin_name, " is ", begin, "; 0 to ", whole - count, " is expected for query's ", count,
           " of ", whole, " ", axis);
}

std::int64_t check_rows(const CallPart& part) {
  std::int64_t rows = 0, end = 0;
  for (std::size_t n = 0; n < part.rows.size(); ++n) {
    const PositionRange& range = part.rows[n];
    if (range.begin < end || range.end < range.begin || range.end > part.query_length)
      refuse("part.rows[", n, "] is ", range.begin, " to ", range.end, "; ascending rows from ", end, " to ",
             part.query_length, " are expected");
    rows += range.end - range.begin;
    end = range.end;
  }
  return rows;
}

// A range of the part's rows: its row `first` is row `begin` of the whole.
struct Run {
  std::int64_t first, begin, end;
};

std::vector<Run> runs_of(const CallPart& part) {
  std::vector<Run> runs;
  std::int64_t first = 0;
  for (const PositionRange& range : part.rows) {
    if (range.begin == range.end) continue;
    if (!runs.empty() && runs.back().end == range.begin)
      runs.back().end = range.end;
    else
      runs.push_back({first, range.begin, range.end});
    first += range.end - range.begin;
  }
  return runs;
}

// Checks the part, and sets the Problem's members that describe the whole call.
void read_part(const CallPart& part, Problem& p) {
  if (part.query_length < 0) refuse("part.query_length is ", part.query_length, "; 0 or more is expected");
  const std::int64_t group = p.kv_heads > 0 ? p.heads / p.kv_heads : 1;
  if (part.heads < 0 || part.heads % group != 0 || part.head_begin % group != 0)
    refuse("part.heads is ", part.heads, " from ", part.head_begin, "; multiples of ", group,
           ", the query heads that share a key head, are expected");
  check_axis("heads", "head_begin", part.head_begin, p.heads, part.heads);
  check_axis("batch entries", "batch_begin", part.batch_begin, p.batch, part.batch);
  const std::int64_t rows = check_rows(part);
  if (rows != p.query_length)
    refuse("part.rows are ", rows, " rows; ", p.query_length, " as in query are expected");
  p.whole = {part.batch, part.heads, part.heads / group, part.query_length, part.batch, 0};
}

// Reduces the segments of the whole call to the part's rows. Tells masks, the ScoreMod and dropout where
// those rows stand in the whole.
void cut_to_part(const CallPart& part, Problem& p) {
  const std::vector<Run> runs = runs_of(part);
  PartPlace place{nullptr, 0, part.batch_begin, part.head_begin};
  if (runs.size() == 1) place.row_begin = runs[0].begin;
  if (runs.size() > 1) {
    for (const Run& run : runs)
      for (std::int64_t row = run.begin; row < run.end; ++row) p.rows_of_part.push_back(row);
    place.rows = p.rows_of_part.data();
  }
  for (MaskSource& mask : p.sparse_masks) mask.place = place;
  p.score_mod.place = place;
  p.dropout.place = place;

  if (runs.size() <= 1 && p.query_length == part.query_length) return;
  std::vector<Segment> cut;
  for (const Segment& s : p.segments)
    for (const Run& run : runs) {
      const std::int64_t begin = std::max(s.query_begin, run.begin), end = std::min(s.query_end, run.end);
      if (begin >= end) continue;
      Segment one = s;
      one.query_begin = run.first + begin - run.begin;
      one.query_end = one.query_begin + end - begin;
      one.offset = s.offset + begin - s.query_begin;
      one.whole_rows = s.query_end - s.query_begin;
      cut.push_back(one);
    }
  p.segments = std::move(cut);
}

// Lengths and positions stay so far below 2^63 that sums of a few of them cannot overflow.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 48;
constexpr std::int64_t kMaxOffset = std::int64_t{1} << 60;
constexpr std::int64_t kOpenEnough = std::int64_t{1} << 61;  // a wider window has no limit at any position

void check_dtypes(const CallTensor& query, const CallTensor& key, const CallTensor& value) {
  if (!is_floating(query.dtype))
    refuse("query has dtype ", query.dtype, "; f64, f32, f16 or bf16 is expected");
  if (key.dtype != query.dtype)
    refuse("key has dtype ", key.dtype, "; ", query.dtype, " as in query is expected");
  if (value.dtype != query.dtype)
    refuse("value has dtype ", value.dtype, "; ", query.dtype, " as in query is expected");
}

void check_ranks(const CallTensor& query, const CallTensor& key, const CallTensor& value) {
  if (key.shape.size() != query.shape.size())
    refuse("key has shape ", key.shape, "; ", query.shape.size(), " axes as in query are expected");
  if (value.shape.size() != query.shape.size())
    refuse("value has shape ", value.shape, "; ", query.shape.size(), " axes as in query are expected");
}

// An axis of a tensor, as messages name it.
struct Axis {
  const char* tensor;
  const char* name;
  int number;  // of [B, H, L, C]
};

// Checks that an axis is as long as the same axis of another tensor.
void check_axis(const Axis& axis, const CallTensor& tensor, const CallTensor& other, const char* other_name) {
  const std::int64_t size = tensor.size[axis.number], expected = other.size[axis.number];
  if (size != expected)
    refuse(axis.tensor, " has ", axis.name, " ", size, " (shape ", tensor.shape, "); ", expected, " as in ",
           other_name, " is expected");
}

void check_length(const char* name, const char* axis, std::int64_t length) {
  if (length > kMaxLength) refuse(name, " has ", axis, " ", length, "; at most 2^48 is supported");
}

void read_shapes(const CallTensor& q, const CallTensor& k, const CallTensor& v, Problem& problem) {
  check_ranks(q, k, v);
  check_dtypes(q, k, v);
  check_axis({"key", "batch size", 0}, k, q, "query");
  check_axis({"value", "batch size", 0}, v, q, "query");
  check_axis({"value", "head count", 1}, v, k, "key");
  check_axis({"value", "length", 2}, v, k, "key");
  check_axis({"key", "head dimension", 3}, k, q, "query");
  if (q.size[1] > 0 && (k.size[1] == 0 || q.size[1] % k.size[1] != 0))
    refuse("query has head count ", q.size[1], " (shape ", q.shape, "); a multiple of key's ", k.size[1],
           " is expected");
  if (q.size[3] == 0) refuse("query has head dimension 0 (shape ", q.shape, "); at least 1 is expected");
  check_length("query", "length", q.size[2]);
  check_length("key", "length", k.size[2]);
  check_length("query", "head dimension", q.size[3]);
  check_length("value", "head dimension", v.size[3]);

  static_cast<ProblemShape&>(problem) = {q.size[0], q.size[1], k.size[1], q.size[2],
                                         k.size[2], q.size[3], v.size[3], q.dtype};
  problem.query = q.rows;
  problem.key = k.rows;
  problem.value = v.rows;
}

void read_numbers(const AttentionOptions& options, Problem& problem) {
  problem.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(problem.head_dim)));
  if (!std::isfinite(problem.scale)) refuse("scale is ", problem.scale, "; a finite number is expected");
  problem.softcap = options.softcap;
  if (!std::isfinite(problem.softcap) || problem.softcap < 0)
    refuse("softcap is ", problem.softcap, "; a finite number of 0 (off) or more is expected");
  if (options.window.left < -1)
    refuse("window.left is ", options.window.left, "; -1 (open) or more is expected");
  if (options.window.right < -1)
    refuse("window.right is ", options.window.right, "; -1 (open) or more is expected");
  problem.causal = options.causal;
  problem.window_left = options.window.left > kOpenEnough ? -1 : options.window.left;
  problem.window_right = options.window.right > kOpenEnough ? -1 : options.window.right;
  const std::int64_t offset = options.query_offset.value_or(0);
  if (offset < -kMaxOffset || offset > kMaxOffset)
    refuse("query_offset is ", offset, "; -2^60 to 2^60 is expected");
  static_cast<Dropout&>(problem.dropout) = options.dropout;
  if (!(options.dropout.probability >= 0 && options.dropout.probability < 1))
    refuse("dropout.probability is ", options.dropout.probability,
           "; a number of 0 or more and below 1 is expected");
  if (options.threads < 0)
    refuse("threads is ", options.threads, "; 0 (all of the machine) or more is expected");
  problem.threads = options.threads > 0 ? options.threads : default_threads();
  check_listed("align", options.align, Align::bottom_right);
  check_listed("kernel", options.kernel, Kernel::fused);
}

Operand floating(const char* name, const TensorView& view, const Dims& shape) {
  if (!is_floating(view.dtype()))
    refuse(name, " has dtype ", view.dtype(), "; f64, f32, f16 or bf16 is expected");
  return broadcast(name, view, shape);
}

void read_sparse_mask(const SparseMask& mask, Problem& problem) {
  if (mask.is_empty()) return;
  const WholeCall& whole = problem.whole;
  const bool batch = mask.batch() == 1 || mask.batch() == whole.batch;
  const bool heads = whole.heads % mask.heads() == 0;
  if (!batch || !heads || mask.query_length() != whole.query_length ||
      mask.key_length() != problem.key_length)
    refuse("sparse_mask has size ", Dims{mask.batch(), mask.heads(), mask.query_length(), mask.key_length()},
           "; ", Dims{whole.batch, whole.heads, whole.query_length, problem.key_length},
           ", or 1 for the first two, or a divisor of the heads, is expected");
  problem.sparse_masks = sources_of(mask, whole.heads);
}

void read_operands(const AttentionOptions& options, Problem& problem) {
  const Dims scores{problem.batch, problem.heads, problem.query_length, problem.key_length};
  if (options.mask) {
    if (options.mask->dtype() != DType::boolean)
      refuse("mask has dtype ", options.mask->dtype(),
             "; bool (true where a key may be attended) is expected");
    problem.mask = broadcast("mask", *options.mask, scores);
  }
  read_sparse_mask(options.sparse_mask, problem);
  if (!options.score_mod.is_empty())
    options.score_mod.part()->check(problem.whole.batch, problem.whole.heads, problem.whole.query_length,
                                    problem.key_length);
  problem.score_mod = source_of(options.score_mod);
  if (options.bias) problem.bias = floating("bias", *options.bias, scores);
  if (options.alibi_slopes)
    problem.alibi_slopes = floating("alibi_slopes", *options.alibi_slopes, {problem.batch, problem.heads});
  if (options.sinks) {
    problem.sinks = floating("sinks", *options.sinks, {problem.heads});
    problem.sinks.stride[1] = problem.sinks.stride[0];  // [H] is read as [1, H]
    problem.sinks.stride[0] = 0;
  }
}

std::int64_t offset_of(const AttentionOptions& options, std::int64_t queries, std::int64_t keys) {
  if (options.query_offset) return *options.query_offset;
  return options.align == Align::bottom_right ? keys - queries : 0;
}

void read_batch(const AttentionOptions& options, Problem& problem) {
  std::vector<std::int64_t> lengths;
  if (options.kv_lengths) {
    const Dims& shape = options.kv_lengths->shape();
    if (shape != Dims{problem.batch})
      refuse("kv_lengths has shape ", shape, "; ", Dims{problem.batch}, ", one per batch entry, is expected");
    lengths = integers_of("kv_lengths", *options.kv_lengths);
  }
  const std::int64_t queries = problem.whole.query_length;
  // Without rows there is nothing to compute, and a batch that needs no memory may be of any size.
  if (lengths.empty() && (problem.heads == 0 || queries == 0)) return;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t keys = lengths.empty() ? problem.key_length : lengths[static_cast<std::size_t>(b)];
    if (keys < 0 || keys > problem.key_length)
      refuse("kv_lengths[", b, "] is ", keys, "; 0 to ", problem.key_length,
             ", the length of key, is expected");
    problem.segments.push_back({b, 0, queries, 0, keys, offset_of(options, queries, keys)});
  }
}

std::vector<std::int64_t> segment_offsets(const char* name, const TensorView& view, const char* of,
                                          std::int64_t length) {
  std::vector<std::int64_t> offsets = integers_of(name, view);
  if (offsets.empty()) refuse(name, " is empty; offsets from 0 to ", length, " are expected");
  for (std::size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i] < offsets[i - 1])
      refuse(name, " decreases from ", offsets[i - 1], " to ", offsets[i], " at index ", i,
             "; non-decreasing offsets are expected");
  if (offsets.front() != 0 || offsets.back() != length)
    refuse(name, " runs from ", offsets.front(), " to ", offsets.back(), "; 0 to ", length,
           ", the length of ", of, ", is expected");
  return offsets;
}

void read_packed(const AttentionOptions& options, Problem& problem) {
  if (!options.query_segments || !options.key_segments)
    refuse(options.query_segments ? "query_segments" : "key_segments", " is given without ",
           options.query_segments ? "key_segments" : "query_segments", "; both or neither are expected");
  if (options.kv_lengths)
    refuse(
        "kv_lengths is given together with query_segments, which already tells the length of each sequence");
  if (problem.whole.batch != 1)
    refuse("query has batch size ", problem.whole.batch, "; 1 is expected with query_segments");
  const auto queries =
      segment_offsets("query_segments", *options.query_segments, "query", problem.whole.query_length);
  const auto keys = segment_offsets("key_segments", *options.key_segments, "key", problem.key_length);
  if (keys.size() != queries.size())
    refuse("key_segments has ", keys.size(), " offsets; ", queries.size(),
           " as in query_segments are expected");
  for (std::size_t s = 0; s + 1 < queries.size(); ++s) {
    const std::int64_t offset = offset_of(options, queries[s + 1] - queries[s], keys[s + 1] - keys[s]);
    problem.segments.push_back({0, queries[s], queries[s + 1], keys[s], keys[s + 1], offset});
  }
  problem.whole.sequences = std::ssize(problem.segments);
}

void require_finite(const Operand& c, const Dims& shape) {
  const auto steps = [&](int axis) {
    return c.stride[axis] == 0 ? std::min<std::int64_t>(1, shape[axis]) : shape[axis];
  };
  for (std::int64_t b = 0; b < steps(0); ++b)
    for (std::int64_t h = 0; h < steps(1); ++h)
      for (std::int64_t p = 0; p < shape[2]; ++p)
        if (const double number = read(c, b, h, p); !std::isfinite(number))
          refuse("decay[", b, ", ", h, ", ", p, "] is ", number, "; finite numbers are expected");
}

// Needs the segments.
void read_decay(const AttentionOptions& options, Problem& problem) {
  if (!options.decay) return;
  const TensorView& view = *options.decay;
  const bool packed = options.query_segments.has_value();
  const std::int64_t positions = view.rank() > 0 ? view.size(-1) : 0;
  if (packed ? positions != problem.key_length : positions < problem.key_length)
    refuse("decay has shape ", view.shape(), "; [B, H, L] with ", packed ? "" : "at least ",
           problem.key_length, " positions, the length of key, is expected");
  const Dims shape{problem.batch, problem.heads, positions};
  problem.decay = floating("decay", view, shape);
  problem.decay_length = packed ? 0 : positions;
  require_finite(problem.decay, shape);
}

// The segments' memory of the last call on this thread.
std::vector<Segment>& kept_segments() {
  thread_local std::vector<Segment> kept;
  return kept;
}

void check_requests(const AttentionOptions& options, Problem& problem) {
  if (options.top_k < 0) refuse("top_k is ", options.top_k, "; 0 (off) or more is expected");
  if (options.received_last < 0)
    refuse("received_last is ", options.received_last, "; 0 (off) or more is expected");
  const auto [rows, columns] = options.map;
  if (rows < 0 || columns < 0 || (rows == 0) != (columns == 0))
    refuse("map is ", rows, " x ", columns, "; two positive sizes, or 0 x 0 (off), are expected");
  if (options.output_dtype && *options.output_dtype != problem.dtype && *options.output_dtype != DType::f32)
    refuse("output_dtype is ", *options.output_dtype, "; ", problem.dtype, " as in query",
           problem.dtype == DType::f32 ? "" : " or f32", " is expected");
  check_listed("scores_stage", options.scores_stage, ScoresStage::bias);
  Need known = Need::none;
  for (std::size_t i = 0; i < kResultCount; ++i) known |= result_entry(i).need;
  if ((options.need | known) != known)
    refuse("need is ", static_cast<std::uint32_t>(options.need), "; a sum of Need's values, at most ",
           static_cast<std::uint32_t>(known), ", is expected");
  problem.output_dtype = options.output_dtype.value_or(problem.dtype);
}

}  // namespace

Problem check_call(const TensorView& query, const TensorView& key, const TensorView& value,
                   const AttentionOptions& options, const CallPart* part) {
  const CallTensor q = tensor_of("query", query);  // checked in this order
  const CallTensor k = tensor_of("key", key);
  return check_call(q, k, tensor_of("value", value), options, part);
}

Problem check_call(const CallTensor& query, const CallTensor& key, const CallTensor& value,
                   const AttentionOptions& options, const CallPart* part) {
  Problem problem;
  read_shapes(query, key, value, problem);
  problem.whole = {problem.batch, problem.heads, problem.kv_heads, problem.query_length, problem.batch, 0};
  if (part != nullptr) read_part(*part, problem);
  read_numbers(options, problem);
  read_operands(options, problem);
  problem.segments.swap(kept_segments());
  problem.segments.clear();
  if (options.query_segments || options.key_segments)
    read_packed(options, problem);
  else
    read_batch(options, problem);
  read_decay(options, problem);
  for (const Segment& s : problem.segments)
    problem.whole.most_rows = std::max(problem.whole.most_rows, s.query_end - s.query_begin);
  if (part != nullptr) cut_to_part(*part, problem);
  check_requests(options, problem);
  return problem;
}

void recycle(Problem& problem) { problem.segments.swap(kept_segments()); }

}  // namespace heed::detail
