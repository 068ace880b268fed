#include "attention/plan/lower.hpp"

#include <algorithm>

#include "attention/isa/dispatch.hpp"
#include "attention/isa/features.hpp"
#include "attention/problem/dropout.hpp"

namespace heed::detail {
namespace {

constexpr double kLog2e = 1.44269504088896340736;

}  // namespace

cpu::Input input_of(const Operand& from) {
  return {from.data,
          static_cast<cpu::Type>(from.dtype),
          {from.stride[0], from.stride[1], from.stride[2], from.stride[3]}};
}
cpu::Output output_of(const Target& to) {
  return {
      to.data, static_cast<cpu::Type>(to.dtype), {to.stride[0], to.stride[1], to.stride[2], to.stride[3]}};
}
cpu::Output output_of_rows(const Problem& p, float* data) {
  return {data, cpu::Type::f32, {p.heads * p.query_length, p.query_length, 1, 0}};
}

cpu::Arguments lower(const Problem& p) {
  cpu::Arguments call{};
  call.heads = p.heads;
  call.group = p.kv_heads > 0 ? p.heads / p.kv_heads : 1;
  call.query_length = p.query_length;
  call.key_length = p.key_length;
  call.most_rows = p.whole.most_rows;
  for (const Segment& s : p.segments) call.most_rows = std::max(call.most_rows, s.rows_of_whole());
  call.head_dim = p.head_dim;
  call.value_dim = p.value_dim;
  call.query = input_of(p.query);
  call.key = input_of(p.key);
  call.value = input_of(p.value);
  call.cache = p.cache;
  if (p.cache != nullptr && p.cache->codes.format == RowFormat::int4)
    call.key.type = call.value.type = cpu::Type::u4;
  call.mask = input_of(p.mask);
  call.score_mod = p.score_mod;
  call.sparse_masks = p.sparse_masks.data();
  call.sparse_mask_count = static_cast<std::int64_t>(p.sparse_masks.size());
  call.bias = input_of(p.bias);
  call.alibi_slopes = input_of(p.alibi_slopes);
  call.sinks = input_of(p.sinks);
  call.scale = static_cast<float>(p.scale * kLog2e);
  call.softcap = static_cast<float>(p.softcap * kLog2e);
  call.causal = p.causal;
  // A window wider than any position is no limit; adding it to a position must not overflow.
  const auto window = [](std::int64_t width) -> std::int64_t {
    return width < 0 || width > INT64_MAX / 4 ? -1 : width;
  };
  call.window_left = window(p.window_left);
  call.window_right = window(p.window_right);
  if (p.dropout.probability > 0)
    call.dropout = {HeadDropout::threshold(p.dropout.probability),
                    static_cast<float>(1 / (1 - p.dropout.probability)), p.dropout.seed, p.dropout.offset,
                    p.dropout.place};
  for (std::size_t i = 0; i < kResultCount; ++i)
    result<cpu::Output>(call, i) = output_of(result<Target>(p, i));
  call.top_k = p.top_k_index || p.top_k_weight ? p.top_k : 0;
  call.map_rows = p.map ? p.map_size.rows : 0;
  call.map_columns = p.map ? p.map_size.columns : 0;
  call.received_last_rows = p.received_last_rows;
  call.scores_stage = static_cast<int>(p.scores_stage);
  call.ahead = cpu::read_ahead(cpu::processor_vendor());
  return call;
}

int threads_for(const Problem& p, double small_work) {
  const double work = static_cast<double>(p.batch * p.heads) * static_cast<double>(p.query_length) *
                      static_cast<double>(p.key_length) * static_cast<double>(p.head_dim + p.value_dim);
  return work < small_work ? 1 : p.threads;
}

}  // namespace heed::detail
