#include "heed/model/paths.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/cause/circuit_reads.hpp"
#include "model/cause/circuit_target.hpp"
#include "model/look_support.hpp"

namespace heed {
namespace {

using detail::CircuitState;
using detail::Direction;

// The vectors that the head wrote at all positions. Later layers read them unchanged.
std::vector<Direction> written_by(CircuitState& state, const ModelHead& head) {
  std::vector<Direction> all;
  for (std::int64_t place = 0; place < state.length(); ++place) {
    const detail::StreamParts& stream = state.parts_at(place, head.layer + 1);
    const auto at = std::find_if(stream.parts.begin(), stream.parts.end(), [&](const StreamPart& part) {
      return part.kind == StreamPart::Kind::head && ModelHead{part.layer, part.head} == head;
    });
    all.push_back(stream.added[static_cast<std::size_t>(at - stream.parts.begin())]);
  }
  return all;
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
  std::stable_sort(made.later.begin(), made.later.end(), [](const PathOfTwo& a, const PathOfTwo& b) {
    return std::abs(a.share) > std::abs(b.share);
  });
  return made;
}

}  // namespace heed
