#include "attention/plan/lower.hpp"

#include <algorithm>
#include <numbers>

#include "attention/isa/dispatch.hpp"
#include "attention/isa/features.hpp"
#include "attention/problem/dropout.hpp"

namespace heed::detail {
Output output_of_rows(const Problem& p, float* data) {
  return {data, DType::f32, {p.heads * p.query_length, p.query_length, 1, 0}};
}

cpu::Arguments lower(const Problem& p) {
  cpu::Arguments call{};
  static_cast<ProblemShape&>(call) = p;
  static_cast<ScoreRules&>(call) = p;
  static_cast<ResultOutputs&>(call) = p;
  if (!p.top_k_index && !p.top_k_weight) call.top_k = 0;
  if (!p.map) call.map_size = {};
  call.query = p.query;
  call.key = p.key;
  call.value = p.value;
  call.group = p.kv_heads > 0 ? p.heads / p.kv_heads : 1;
  call.most_rows = p.whole.most_rows;
  for (const Segment& s : p.segments) call.most_rows = std::max(call.most_rows, s.rows_of_whole());
  call.log2_scale = static_cast<float>(p.scale * std::numbers::log2e);
  call.log2_softcap = static_cast<float>(p.softcap * std::numbers::log2e);
  call.sparse_masks = p.sparse_masks.data();
  call.sparse_mask_count = std::ssize(p.sparse_masks);
  call.cache = p.cache;
  if (p.dropout.probability > 0)
    call.dropout = {HeadDropout::threshold(p.dropout.probability),
                    static_cast<float>(1 / (1 - p.dropout.probability)), p.dropout.seed, p.dropout.offset,
                    p.dropout.place};
  call.ahead = cpu::read_ahead(cpu::processor_vendor());
  call.has_byte_dots = cpu::processor_has("avx512_vnni") && cpu::processor_has("avx512_vbmi");
  return call;
}

int threads_for(const Problem& p, double small_work) {
  const double work = static_cast<double>(p.batch * p.heads) * static_cast<double>(p.query_length) *
                      static_cast<double>(p.key_length) * static_cast<double>(p.head_dim + p.value_dim);
  return work < small_work ? 1 : p.threads;
}

}  // namespace heed::detail
