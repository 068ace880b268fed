#include "attention/plan/gathered_gradients.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "attention/problem/elements.hpp"
#include "core/index.hpp"

namespace heed::detail {
namespace {

// The sums of listed keys lie far apart. So the row this many places further on is fetched early.
constexpr std::ptrdiff_t kKeysAhead = 4;

// Rows become batch entries, and `together` heads become the rows of one.
template <class Place>
Place turned(Place place, std::int64_t together) {
  const std::int64_t head = place.stride[1];
  place.stride[0] = place.stride[2];
  place.stride[1] = together * head;
  place.stride[2] = head;
  return place;
}

// Memory only grows, because fresh pages cost more than the copies themselves.
template <class Number>
Number* place_in(std::vector<Number>& memory, std::size_t count) {
  if (memory.size() < count) memory.resize(count);
  return memory.data();
}

}  // namespace

GatheredSums::GatheredSums(const BackwardProblem& problem) {
  const Problem& p = problem.forward;
  const auto start = [&](const Output& gradient, std::int64_t width, Output& sums, Tensor& memory) {
    if (!gradient) return;
    sums = gradient;
    if (gradient.dtype == DType::f32 && gradient.stride[3] == 1) {
      for_each_key_range(p, [&](const KeyRange& range) {
        for (std::int64_t b = 0; b < p.batch; ++b) clear_rows(gradient, b, p.kv_heads, range, width);
      });
      return;
    }
    memory = Tensor({p.batch, p.kv_heads, p.key_length, width});
    const std::int64_t rows = p.key_length * width;
    sums = {memory.mutable_view().data(), DType::f32, {p.kv_heads * rows, rows, width, 1}};
  };
  start(problem.grad_key, p.head_dim, key, key_memory_);
  start(problem.grad_value, p.value_dim, value, value_memory_);
  if (problem.grad_sinks) sinks.assign(index(p.heads), 0.0);
}

void GatheredSums::write(const BackwardProblem& problem) const {
  const Problem& p = problem.forward;
  const auto write_rows = [&](const Output& from, std::int64_t width, const Output& to) {
    if (from.data == to.data) return;
    for_each_key_range(p, [&](const KeyRange& range) {
      for (std::int64_t b = 0; b < p.batch; ++b)
        for (std::int64_t h = 0; h < p.kv_heads; ++h)
          for (std::int64_t j = range.begin; j < range.end; ++j)
            for (std::int64_t c = 0; c < width; ++c) detail::write(to, f32_row(from, b, h, j)[c], b, h, j, c);
    });
  };
  write_rows(key, p.head_dim, problem.grad_key);
  write_rows(value, p.value_dim, problem.grad_value);
  if (!problem.grad_sinks) return;
  const bool one_for_all = problem.grad_sinks.stride[1] == 0;
  for (std::size_t h = 0; h < sinks.size(); h += one_for_all ? sinks.size() : 1)
    detail::write(problem.grad_sinks,
                  one_for_all ? std::accumulate(sinks.begin(), sinks.end(), 0.0) : sinks[h], 0,
                  static_cast<std::int64_t>(h), 0);
}

GatheredGradients::GatheredGradients(const BackwardProblem& whole, const GatherPlan& plan,
                                     const GatheredRows& rows, GatheredMemory& memory, bool copies_keys)
    : rows_(rows), kv_head_(rows.head / (plan.call.heads / plan.call.kv_heads)), piece_(plan, rows, 1) {
  const Problem& from = piece_.problem();
  Problem& p = problem_.forward;
  static_cast<ProblemShape&>(p) = from;
  static_cast<ScoreRules&>(p) = from;
  // Heads that share a list become rows of one head, which read its keys once. Sinks and slopes belong to
  // heads.
  const std::int64_t together = from.sinks || from.alibi_slopes ? 1 : from.heads;
  p.batch = from.query_length;
  p.heads = from.heads / together;
  p.query_length = together;
  p.key_length = 0;
  p.sinks.stride[0] = p.alibi_slopes.stride[0] = 0;
  // Kernels are chosen by the rows of the whole call, so no bits depend on the pieces.
  const WholeCall& call = plan.call.whole;
  p.whole = {p.batch, p.heads, 1, together, call.batch * call.query_length, together};
  for (Segment s : from.segments) {
    p.key_length = std::max(p.key_length, s.key_end - s.key_begin);
    p.segments.push_back({s.query_begin, 0, together, 0, s.key_end - s.key_begin, s.offset, 0, s.positions});
  }
  p.key = place_of(from.key, p.head_dim, memory.key);
  p.value = place_of(from.value, p.value_dim, memory.value);
  if (copies_keys) {
    copy_keys(from.key, p.head_dim, memory.key);
    copy_keys(from.value, p.value_dim, memory.value);
  }
  const auto place = [&](auto of_whole) {
    return turned(moved(of_whole, rows.segment->batch, rows.head, rows.row_begin), together);
  };
  p.query = turned(from.query, together);
  problem_.output = place(whole.output);
  problem_.lse = place(whole.lse);
  problem_.grad_output = place(whole.grad_output);
  problem_.grad_lse = place(whole.grad_lse);
  problem_.grad_query = place(whole.grad_query);
  // Matrix tiles serve no sums in f32. So that they serve no dQ without them either, bf16 and f16 always have
  // these sums.
  const auto terms_of = [&](const Output& gradient, std::int64_t width, std::vector<float>& to) {
    if (!gradient && p.query.dtype == DType::f32) return Output{};
    float* terms = place_in(to, index(p.batch * p.key_length * width));
    return Output{terms, DType::f32, {p.key_length * width, 0, width, 1}};
  };
  problem_.grad_key = terms_of(whole.grad_key, p.head_dim, memory.grad_key);
  problem_.grad_value = terms_of(whole.grad_value, p.value_dim, memory.grad_value);
  if (!whole.grad_sinks) return;
  grad_sinks_.assign(index(p.heads), 0.0);
  problem_.grad_sinks = {grad_sinks_.data(), DType::f64, {0, 1, 0, 0}};
}

Operand GatheredGradients::place_of(const Operand& rows, std::int64_t width,
                                    std::vector<std::byte>& memory) const {
  const Problem& p = problem_.forward;
  return {place_in(memory, index(p.batch * p.key_length * width) * size_of(rows.dtype)),
          rows.dtype,
          {p.key_length * width, 0, width, 1}};
}

void GatheredGradients::copy_keys(const Operand& rows, std::int64_t width,
                                  std::vector<std::byte>& memory) const {
  const Problem& p = problem_.forward;
  const std::size_t bytes = index(width) * size_of(rows.dtype);
  for (const Segment& s : p.segments) {
    std::byte* at = memory.data() + index(s.batch * p.key_length) * bytes;
    const std::int32_t* numbers = piece_.problem().cache->sequences[index(s.batch)].rows;
    for (std::int64_t n = 0; n < s.key_end; ++n, at += bytes)
      std::memcpy(at, moved(rows, 0, 0, numbers[n]).data, bytes);
  }
}

void GatheredGradients::add_keys(const KeyRange& range, const GatheredSums& sums) const {
  const Problem& p = problem_.forward;
  for (const Segment& s : p.segments) {
    const std::int64_t first = piece_.problem().segments[index(s.batch)].key_begin;
    const auto keys = piece_.keys().subspan(index(first), index(s.key_end));
    const auto begin = std::ranges::lower_bound(keys, range.begin);
    const auto end = std::lower_bound(begin, keys.end(), range.end);
    const auto add = [&](const Output& from, std::int64_t width, const Output& to) {
      const auto sums_of = [&](std::int64_t key) { return f32_row(to, rows_.segment->batch, kv_head_, key); };
      for (auto at = begin; to && at < end; ++at) {
        for (std::int64_t c = 0; end - at > kKeysAhead && c < width; c += 16)
          __builtin_prefetch(sums_of(at[kKeysAhead]) + c, 1);
        const float* __restrict terms = f32_row(from, s.batch, 0, at - keys.begin());
        float* __restrict sum = sums_of(*at);
        for (std::int64_t c = 0; c < width; ++c) sum[c] += terms[c];
      }
    };
    add(problem_.grad_key, p.head_dim, sums.key);
    add(problem_.grad_value, p.value_dim, sums.value);
  }
}

void GatheredGradients::add_sinks(GatheredSums& sums) const {
  for (std::size_t h = 0; h < grad_sinks_.size(); ++h) sums.sinks[index(rows_.head) + h] += grad_sinks_[h];
}

}  // namespace heed::detail
