#include "heed/model/paths.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/cause/circuit_reads.hpp"
#include "model/cause/circuit_state.hpp"
#include "model/look_support.hpp"

namespace heed {
namespace {

using detail::CircuitState;
using detail::Direction;

// The vectors that the head wrote at all positions. Later layers read them unchanged.
std::vector<Direction> written_by(const CircuitState& state, const ModelHead& head) {
  const ModelInfo& info = state.info();
  const detail::LinearWeights& output = state.family().output_projection(head.layer);
  Tensor all({state.length(), info.heads * info.head_dim}, DType::f32);
  Tensor alone({state.length(), info.heads * info.head_dim}, DType::f32);
  const auto own = [&](const auto& rows) { return rows.narrow(1, head.head * info.head_dim, info.head_dim); };
  for (std::int64_t place = 0; place < state.length(); ++place)
    copy(state.trace(place).heads.view().select(0, head.layer), all.mutable_view().select(0, place));
  copy(own(all.view()), own(alone.mutable_view()));
  const Tensor added = detail::linear(all, output, state.threads());
  const Tensor of_head = detail::linear(alone, {output.weight, {}, output.transposed}, state.threads());
  const auto row_of = [](const Tensor& rows, std::int64_t row) {
    return rows.values<float>().subspan(static_cast<std::size_t>(row * rows.size(1)),
                                        static_cast<std::size_t>(rows.size(1)));
  };
  std::vector<Direction> written;
  for (std::int64_t place = 0; place < state.length(); ++place) {
    const auto row = row_of(of_head, place);
    written.emplace_back(row.begin(), row.end());
    if (const auto norm = state.family().norm_behind_attention(head.layer, row_of(added, place)))
      apply_held(*norm, written.back());
  }
  return written;
}

}  // namespace

HeadPaths paths_of_head(const Model& model, const TensorView& tokens, const ModelHead& head,
                        const PathOptions& options) {
  const detail::TargetChoice choice{options.row, options.token, options.than};
  detail::check_target(model, choice);
  detail::check_head(head, model.info());
  CircuitState state(model, tokens, options.threads);
  const detail::CircuitTarget target = detail::find_target(state, choice);
  HeadPaths made{target.row, target.token, target.logit};
  made.keys = detail::shares_of_keys(state, {head, target.row}, target.direction.stream);
  made.share = std::accumulate(made.keys.begin(), made.keys.end(), 0.0,
                               [](double sum, const HeadKeyShare& one) { return sum + one.share; });
  const std::vector<Direction> written = written_by(state, head);
  for (std::int64_t layer = head.layer + 1; layer < model.info().layers; ++layer)
    for (std::int64_t reader = 0; reader < model.info().heads; ++reader) {
      const ModelHead one{layer, reader};
      const auto shares =
          detail::shares_of_writer(state, {one, target.row}, target.direction.stream, written);
      made.later.push_back({one, EdgeInto::value, shares.value});
      made.later.push_back({one, EdgeInto::key, shares.key});
      made.later.push_back({one, EdgeInto::query, shares.query});
    }
  std::ranges::stable_sort(made.later, [](const PathOfTwo& a, const PathOfTwo& b) {
    return std::abs(a.share) > std::abs(b.share);
  });
  return made;
}

}  // namespace heed
