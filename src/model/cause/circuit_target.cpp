#include "model/cause/circuit_target.hpp"

#include <utility>

#include "core/message.hpp"
#include "model/predictions.hpp"

namespace heed::detail {

double CircuitTarget::logit_of(const Tensor& hidden) const {
  return dot<float>(direction.hidden, hidden.values<float>()) + direction.bias;
}

void check_target(const Model& model, const TargetChoice& choice) {
  check_has_shares(model);
  const std::int64_t vocabulary = model.info().vocabulary;
  for (const auto& [name, token] : {std::pair("token", choice.token), std::pair("than", choice.than)})
    if (token && (*token < 0 || *token >= vocabulary))
      refuse(name, " is ", *token, "; 0 to ", vocabulary - 1, " is expected");
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
