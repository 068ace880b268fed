// How far the values of each head move the residual stream.
#include <algorithm>
#include <cmath>

#include "core/message.hpp"
#include "heed/parallel.hpp"
#include "model/layers/linear.hpp"
#include "model/look_support.hpp"
#include "model/parts.hpp"

namespace heed {
namespace {

using detail::LinearWeights;

constexpr std::int64_t kValuesAtOnce = 1024;

void write_lengths(const Tensor& rows, float* to, int threads) {
  const std::int64_t width = rows.size(1);
  const float* from = rows.values<float>().data();
  parallel_for(rows.size(0), threads, [&](std::int64_t i, int) {
    double sum = 0;
    for (std::int64_t n = 0; n < width; ++n) {
      const auto x = static_cast<double>(from[i * width + n]);
      sum += x * x;
    }
    to[i] = static_cast<float>(std::sqrt(sum));
  });
}

}  // namespace

Tensor Model::moved_norms(std::int64_t layer, const TensorView& value, int threads) const {
  const ModelInfo& info = parts_->info;
  detail::check_layer(layer, info);
  if (value.rank() != 3 || value.dtype() != DType::f32 || value.size(0) != info.kv_heads ||
      value.size(2) != info.head_dim)
    detail::refuse("value is ", value.dtype(), " ", value.shape(), "; f32 [", info.kv_heads, ", L, ",
                   info.head_dim, "] is expected");
  if (threads == 0) threads = default_threads();
  const Tensor matrix = inputs_by_outputs(parts_->family->output_projection(layer), threads);
  const std::int64_t length = value.size(1), outputs = matrix.size(1);
  Tensor norms({info.heads, length}, DType::f32);
  for (std::int64_t head = 0; head < info.heads; ++head) {
    LinearWeights slice;
    slice.weight = {matrix.values<float>().data() + head * info.head_dim * outputs, &detail::kStoredF32,
                    info.head_dim, outputs};
    slice.transposed = true;
    const TensorView of_head = value.select(0, head / (info.heads / info.kv_heads));
    for (std::int64_t begin = 0; begin < length; begin += kValuesAtOnce) {
      const std::int64_t count = std::min(kValuesAtOnce, length - begin);
      const Tensor rows = Tensor::copy_of(of_head.narrow(0, begin, count));
      write_lengths(linear(rows, slice, threads), norms.values<float>().data() + head * length + begin,
                    threads);
    }
  }
  return norms;
}

}  // namespace heed
