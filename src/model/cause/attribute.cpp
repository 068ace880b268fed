// Direct logit attribution. With the scales of norms held fixed, a logit is linear in all contributions to
// the stream x. For a token's row u of the unembedding, and the last norm's gain:
//
// logit = <g, x_last> + constant, g = gain u (minus its mean, if the norm subtracts the mean) <g, W_O out +
// b_O> = sum over heads of <W_O^T g, out>_h + <g, b_O>
//
// If a norm follows W_O, its product sees g through that norm.
#include <span>

#include "heed/parallel.hpp"
#include "model/cause/directions.hpp"
#include "model/cause/row_trace.hpp"
#include "model/parts.hpp"
#include "model/predictions.hpp"

namespace heed {
namespace {

using namespace detail;

std::span<const float> row_of(const Tensor& matrix, std::int64_t row) {
  const auto size = static_cast<std::size_t>(matrix.size(1));
  return matrix.values<float>().subspan(static_cast<std::size_t>(row) * size, size);
}

// Fills in one layer's shares; `direction` is a direction of the stream.
void attribute_layer(const Family& family, const detail::RowTrace& trace, const Direction& direction,
                     std::int64_t layer, Attribution& made) {
  const LinearWeights& output = family.output_projection(layer);
  const TensorView heads = trace.heads.view().narrow(0, layer, 1);
  const Tensor added = linear(heads, output, 1);
  const auto norm = family.norm_behind_attention(layer, added.values<float>());
  const Direction seen = norm ? through(*norm, direction) : direction;
  double bias = norm ? share_of_bias(*norm, direction) : 0;
  for (std::size_t i = 0; i < seen.size(); ++i)
    bias += seen[i] * bias_at(output, static_cast<std::int64_t>(i));
  const Direction by_output = through(output, seen);
  const auto outputs = row_of(trace.heads, layer);
  const std::int64_t count = made.heads.size(1);
  const std::size_t size = by_output.size() / static_cast<std::size_t>(count);
  double all = 0;
  for (std::int64_t head = 0; head < count; ++head) {
    const std::size_t at = static_cast<std::size_t>(head) * size;
    const double share = dot<float>(std::span(by_output).subspan(at, size), outputs.subspan(at, size));
    made.heads.at<double>(layer, head) = share;
    all += share;
  }
  const double whole = dot<float>(direction, row_of(trace.streams, layer + 1)) -
                       dot<float>(direction, row_of(trace.streams, layer));
  made.biases[static_cast<std::size_t>(layer)] = bias;
  made.mlps[static_cast<std::size_t>(layer)] = whole - bias - all;
}

}  // namespace

Attribution attribute(const Model& model, const TensorView& tokens, const CauseOptions& options) {
  const ModelInfo& info = model.info();
  const Family& family = *model.parts().family;
  detail::check_has_shares(model);
  detail::check_tokens(options, info);
  Attribution made;
  made.row = detail::checked_row(options, tokens);
  const int threads = options.threads == 0 ? default_threads() : options.threads;
  const detail::RowTrace trace = detail::trace_row(model, tokens, made.row, threads);
  made.token = options.token ? *options.token : detail::likeliest_token(model, trace.hidden, threads);
  const detail::LogitDirection target =
      detail::logit_direction(model, row_of(trace.streams, info.layers), made.token);
  const Direction& direction = target.stream;
  made.logit = dot<float>(target.hidden, row_of(trace.hidden, 0)) + target.bias;
  made.constant = target.constant;
  made.embedding = dot<float>(direction, row_of(trace.streams, 0));
  made.heads = Tensor({info.layers, info.heads}, DType::f64);
  made.biases.resize(static_cast<std::size_t>(info.layers));
  made.mlps.resize(static_cast<std::size_t>(info.layers));
  parallel_for(info.layers, threads, [&](std::int64_t layer, int /*worker*/) {
    attribute_layer(family, trace, direction, layer, made);
  });
  return made;
}

}  // namespace heed
