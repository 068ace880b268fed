#include "model/cause/circuit_state.hpp"

#include <numeric>
#include <utility>

#include "core/message.hpp"
#include "heed/parallel.hpp"
#include "model/predictions.hpp"

namespace heed::detail {

CircuitState::CircuitState(const Model& model, const TensorView& tokens, int threads)
    : model_(model),
      tokens_(tokens),
      ids_(model.tokens_of(tokens).ids),
      threads_(threads == 0 ? default_threads() : threads) {
  constexpr std::int64_t kMostBytes = std::int64_t{2} << 30;
  const ModelInfo& info = model.info();
  const std::int64_t numbers = (info.layers + 1) * info.model_dim + info.layers * info.heads * info.head_dim;
  const std::int64_t most = kMostBytes / (4 * numbers);
  if (length() > most)
    refuse("tokens has length ", length(), "; at most ", most, ", whose streams take 2 GiB, is expected");
  std::vector<std::int64_t> rows(ids_.size());
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  traces_ = trace_rows(model_, tokens_, rows, {}, threads_);
}

Tensor CircuitState::stream_at(std::int64_t place, std::int64_t layer) const {
  return Tensor::copy_of(trace(place).streams.view().narrow(0, layer, 1));
}

const StreamParts& CircuitState::parts_at(std::int64_t place, std::int64_t layer) {
  const auto [at, is_new] = parts_.try_emplace({place, layer});
  if (is_new) at->second = parts_of_stream(model_, trace(place), ids_, place, layer, threads_);
  return at->second;
}

const LayerState& CircuitState::layer(std::int64_t layer) {
  const auto [at, is_new] = layers_.try_emplace(layer);
  if (!is_new) return at->second;
  Tensor stream = Tensor::uninitialized({length(), info().model_dim}, DType::f32);
  for (std::int64_t i = 0; i < length(); ++i)
    copy(trace(i).streams.view().select(0, layer), stream.mutable_view().select(0, i));
  at->second = {family().project(layer, stream, 0, threads_), std::move(stream)};
  at->second.made.options.threads = threads_;
  return at->second;
}

double CircuitTarget::logit_of(const Tensor& hidden) const {
  return dot<float>(direction.hidden, hidden.values<float>()) + direction.bias;
}

void check_target(const Model& model, const TargetChoice& choice) {
  check_has_shares(model);
  const std::int64_t vocabulary = model.info().vocabulary;
  for (const auto& [name, token] : {std::pair("token", choice.token), std::pair("than", choice.than)})
    if (token) check_range(name, *token, 0, vocabulary - 1);
}

CircuitTarget find_target(const CircuitState& state, const TargetChoice& choice) {
  CircuitTarget made;
  made.row = checked_row({choice.row, choice.token, 1, state.threads()}, state.tokens());
  const Tensor& hidden = state.trace(made.row).hidden;
  made.token = choice.token ? *choice.token : likeliest_token(state.model(), hidden, state.threads());
  const Tensor row = state.stream_at(made.row, state.info().layers);
  made.direction = logit_direction(state.model(), row.values<float>(), made.token);
  if (choice.than) {
    if (*choice.than == made.token)
      refuse("than is ", *choice.than, ", the token that is traced; another one is expected");
    const LogitDirection less = logit_direction(state.model(), row.values<float>(), *choice.than);
    for (std::size_t i = 0; i < less.stream.size(); ++i) {
      made.direction.stream[i] -= less.stream[i];
      made.direction.hidden[i] -= less.hidden[i];
    }
    made.direction.bias -= less.bias;
  }
  made.logit = made.logit_of(hidden);
  return made;
}

}  // namespace heed::detail
