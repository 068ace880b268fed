#include "attention/kv_cache/gather.hpp"

#include <span>

#include "attention/kv_cache/read_row.hpp"

namespace heed::detail {

GatheredCall with_tensors(const Problem& p) {
  GatheredCall call{Tensor({p.batch, p.kv_heads, p.key_length, p.head_dim}),
                    Tensor({p.batch, p.kv_heads, p.key_length, p.value_dim}), p};
  const auto gather = [&](Tensor& to, const Operand& from, bool are_keys, std::int64_t width) {
    for (const Segment& s : p.segments)
      for (std::int64_t h = 0; h < p.kv_heads; ++h)
        for (std::int64_t j = s.key_begin; j < s.key_end; ++j) {
          const auto at = static_cast<std::size_t>(((s.batch * p.kv_heads + h) * p.key_length + j) * width);
          read_cached_row(*p.cache, from, s.sequence, are_keys, h, j - s.key_begin,
                          to.values<float>().subspan(at, static_cast<std::size_t>(width)));
        }
  };
  gather(call.key, p.key, true, p.head_dim);
  gather(call.value, p.value, false, p.value_dim);
  const auto operand = [&](const Tensor& tensor, std::int64_t width) {
    return Operand{tensor.view().data(),
                   DType::f32,
                   {p.kv_heads * p.key_length * width, p.key_length * width, width, 1}};
  };
  call.problem.key = operand(call.key, p.head_dim);
  call.problem.value = operand(call.value, p.value_dim);
  call.problem.cache = nullptr;
  return call;
}

}  // namespace heed::detail
