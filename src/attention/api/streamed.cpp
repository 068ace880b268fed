// StreamedAttention: options -> checks -> plan, then ranges of keys -> results.
#include "heed/attention/streamed.hpp"

#include <algorithm>

#include "attention/check/checks.hpp"
#include "attention/check/overlap.hpp"
#include "attention/check/results.hpp"
#include "attention/execute/key_stream.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"

namespace heed {
namespace {

using detail::Problem;
using detail::refuse;

// Keys or values that have not arrived yet.
detail::CallTensor later(const char* name, const TensorView& query, const KeyShape& keys,
                         std::int64_t width) {
  Dims shape = query.shape();
  const int rank = query.rank();
  if (rank > 2) shape[rank - 3] = keys.kv_heads;
  shape[rank - 2] = keys.length;
  shape[rank - 1] = width;
  return detail::tensor_of(name, shape, query.dtype());
}

void check_shape(const TensorView& query, const KeyShape& keys) {
  (void)detail::tensor_of("query", query);
  const auto check = [](const char* name, std::int64_t size) {
    if (size < 0) refuse("keys.", name, " is ", size, "; 0 or more is expected");
  };
  check("kv_heads", keys.kv_heads);
  check("length", keys.length);
  check("value_dim", keys.value_dim);
  if (query.rank() < 3 && keys.kv_heads != 1)
    refuse("keys.kv_heads is ", keys.kv_heads, "; 1 is expected with a query of 2 axes");
}

std::string results_of_one_pass() {
  std::string names;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (takes_one_pass(result_entry(i)))
      names.append(names.empty() ? "" : ", ").append(result_entry(i).name());
  return names;
}

Problem check_streamed(const TensorView& query, const KeyShape& keys, const AttentionOptions& options,
                       const CallPart& part, const AttentionOutputs& outputs) {
  check_shape(query, keys);
  Problem p = detail::check_call(detail::tensor_of("query", query), later("key", query, keys, query.size(-1)),
                                 later("value", query, keys, keys.value_dim), options, &part);
  detail::bind_outputs(outputs, options, query.rank(), p);
  detail::check_overlaps(p);
  for (const auto& [entry, member] : kResults<detail::Output>)
    if (!takes_one_pass(entry) && p.*member)
      refuse(entry.path, " is given; ", results_of_one_pass(),
             " are expected when keys arrive range by range");
  return p;
}

// The span borders of all sequences, ascending, from 0 to the last key.
std::vector<std::int64_t> cuts_of(const AttentionOptions& options, std::int64_t length) {
  std::vector<std::int64_t> ends{0, length};
  if (options.key_segments) ends = detail::integers_of("key_segments", *options.key_segments);
  std::vector<std::int64_t> cuts{0};
  for (std::size_t s = 1; s < ends.size(); ++s) {
    for (std::int64_t at = ends[s - 1] + detail::cpu::kSpan; at < ends[s]; at += detail::cpu::kSpan)
      cuts.push_back(at);
    if (ends[s] > cuts.back()) cuts.push_back(ends[s]);
  }
  return cuts;
}

}  // namespace

struct StreamedAttention::Impl {
  AttentionOptions options;  // has the masks and functions that the problem points to
  Problem problem;
  detail::ExecutionPlan plan;
  int rank;
  std::vector<std::int64_t> cuts;
  std::unique_ptr<detail::KeyStream> stream;
  std::int64_t done = 0;  // keys before it have arrived, or are not needed
  bool finished = false;
  std::vector<PartRow> left_out{};

  Impl(const TensorView& query, const KeyShape& keys, const AttentionOptions& given, const CallPart& part,
       const AttentionOutputs& outputs)
      : options(given),
        problem(check_streamed(query, keys, options, part, outputs)),
        plan(problem, options.kernel),
        rank(query.rank()),
        cuts(cuts_of(options, problem.key_length)),
        stream(plan.kernel == Kernel::fused ? detail::fused_stream(problem, plan)
                                            : detail::reference_stream(problem)) {}

  void check_range(const PositionRange& range) const {
    const auto is_cut = [&](std::int64_t at) { return std::ranges::binary_search(cuts, at); };
    if (range.begin >= range.end || !is_cut(range.begin) || !is_cut(range.end))
      refuse("range is ", range.begin, " to ", range.end, "; a multiple of ", detail::cpu::kSpan,
             " keys from the begin of a sequence, or a sequence's begin or end, is expected for both");
  }

  void check_open() const {
    if (finished) refuse("finish() was called; a new StreamedAttention is expected");
  }

  // Advances to the range. The keys before it must be keys that no row needs.
  void go_to(std::int64_t begin) const {
    if (begin < done)
      refuse("range begins at ", begin, "; ", done, ", the end of the last range, or more is expected");
    if (begin > done && detail::may_see(problem, {done, begin}))
      refuse("keys ", done, " to ", begin, " have not arrived, but rows may see them");
  }

  void next(const PositionRange& range) {
    check_open();
    check_range(range);
    go_to(range.begin);
  }

  // Returns the range's rows of a tensor as [B, Hkv, n, width], without gaps inside rows. Kernels take rows
  // that are contiguous, or whose gaps are an even number of elements. Other tensors are copied to `copy`.
  TensorView rows_of(const char* name, const TensorView& view, const PositionRange& range, std::int64_t width,
                     Tensor& copy) const {
    const Dims expected = detail::shape_of(problem, rank, {range.end - range.begin, width});
    Dims shape = expected;
    if (rank > 2) shape[rank - 3] = problem.kv_heads;
    if (view.shape() != shape) refuse(name, " has shape ", view.shape(), "; ", shape, " is expected");
    if (view.dtype() != problem.dtype)
      refuse(name, " has dtype ", view.dtype(), "; ", problem.dtype, " as in query is expected");
    detail::check_memory(name, view);
    // Axes of size 1 may have any stride.
    Dims strides = view.strides();
    if (shape[rank - 1] == 1) strides[rank - 1] = 1;
    if (shape[rank - 2] == 1) strides[rank - 2] = width;
    TensorView rows(view.data(), view.dtype(), shape, strides);
    if (strides[rank - 1] != 1 || (strides[rank - 2] - width) % 2 != 0)
      rows = (copy = Tensor::copy_of(view)).view();
    while (rows.rank() < 4) rows = rows.unsqueeze(0);
    return rows;
  }
};

StreamedAttention::StreamedAttention(const TensorView& query, const KeyShape& keys,
                                     const AttentionOptions& options, const CallPart& part,
                                     const AttentionOutputs& outputs)
    : impl_(detail::with_memory_errors(
          [&] { return std::make_unique<Impl>(query, keys, options, part, outputs); })) {}
StreamedAttention::StreamedAttention(StreamedAttention&&) noexcept = default;
StreamedAttention& StreamedAttention::operator=(StreamedAttention&&) noexcept = default;
StreamedAttention::~StreamedAttention() = default;

std::vector<PositionRange> StreamedAttention::ranges(std::int64_t keys) const {
  if (keys < 1) refuse("keys is ", keys, "; 1 or more is expected");
  const std::vector<std::int64_t>& cuts = impl_->cuts;
  std::vector<PositionRange> ranges;
  for (std::size_t at = 0; at + 1 < cuts.size();) {
    std::size_t end = at + 1;
    while (end + 1 < cuts.size() && cuts[end + 1] - cuts[at] <= keys) ++end;
    ranges.push_back({cuts[at], cuts[end]});
    at = end;
  }
  return ranges;
}

bool StreamedAttention::needs(const PositionRange& range) const {
  return detail::may_see(impl_->problem, {range.begin, range.end});
}

void StreamedAttention::attend(const PositionRange& range, const TensorView& key, const TensorView& value) {
  detail::with_memory_errors([&] {
    impl_->next(range);
    Tensor key_copy, value_copy;
    const TensorView k = impl_->rows_of("key", key, range, impl_->problem.head_dim, key_copy);
    const TensorView v = impl_->rows_of("value", value, range, impl_->problem.value_dim, value_copy);
    impl_->done = range.end;
    impl_->stream->attend({{range.begin, range.end}, k, v});
  });
}

void StreamedAttention::states(const PositionRange& range, const TensorView& key, const TensorView& value,
                               std::span<std::byte> bytes) {
  detail::with_memory_errors([&] {
    impl_->check_range(range);
    Tensor key_copy, value_copy;
    const TensorView k = impl_->rows_of("key", key, range, impl_->problem.head_dim, key_copy);
    const TensorView v = impl_->rows_of("value", value, range, impl_->problem.value_dim, value_copy);
    if (bytes.size() != state_bytes(range))
      refuse("bytes has size ", bytes.size(), "; ", state_bytes(range),
             ", as state_bytes() returns, is expected");
    impl_->stream->states({{range.begin, range.end}, k, v}, bytes.data());
  });
}

void StreamedAttention::merge(const PositionRange& range, std::span<const std::byte> bytes) {
  detail::with_memory_errors([&] {
    impl_->next(range);
    if (bytes.size() != state_bytes(range))
      refuse("bytes has size ", bytes.size(), "; ", state_bytes(range),
             ", as state_bytes() returns, is expected");
    impl_->done = range.end;
    impl_->stream->merge({range.begin, range.end}, bytes.data());
  });
}

std::size_t StreamedAttention::state_bytes(const PositionRange& range) const {
  impl_->check_range(range);
  return impl_->stream->state_bytes({range.begin, range.end});
}

AttentionRun StreamedAttention::finish() {
  return detail::with_memory_errors([&] {
    const Problem& p = impl_->problem;
    impl_->check_open();
    impl_->go_to(p.key_length);
    impl_->finished = true;
    std::vector<detail::cpu::RowStatus> status;
    const detail::KernelRun run = impl_->stream->finish(status);
    for (std::size_t at = 0; at < status.size(); ++at) {
      if (status[at] == detail::cpu::RowStatus::done) continue;
      const auto row = static_cast<std::int64_t>(at);
      const std::int64_t head = row / p.query_length;
      impl_->left_out.push_back({head / p.heads, head % p.heads, row % p.query_length});
    }
    return AttentionRun{impl_->plan.kernel, impl_->plan.isa, run.threads, 0};
  });
}

std::span<const PartRow> StreamedAttention::left_out() const { return impl_->left_out; }

std::size_t StreamedAttention::bytes() const { return impl_->stream->bytes(); }

}  // namespace heed
