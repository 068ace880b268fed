// The weights that heads lose if their caches evict keys.
#include <algorithm>

#include "core/message.hpp"
#include "heed/model/look.hpp"

namespace heed {

Tensor lost_by_eviction(const Model& model, const TensorView& tokens, const EvictionPolicy& policy,
                        std::int64_t prompt, int threads) {
  const ModelInfo& info = model.info();
  const std::int64_t length = tokens.count();
  if (policy.chosen >= length || policy.recent >= length - policy.chosen || prompt >= length)
    detail::refuse("tokens has length ", length, "; more than the cache keeps, ", policy.chosen, " + ",
                   policy.recent, ", and than a prompt of ", prompt, " is expected");
  const std::int64_t first = std::max(policy.chosen + policy.recent, prompt);
  Tensor lost({info.layers, info.heads}, DType::f64);
  ModelHooks hooks;
  hooks.attend = [&](const LayerCall& call) {
    const EvictionTrace trace =
        trace_eviction(call.query.unsqueeze(0), call.key.unsqueeze(0), call.options, policy, prompt);
    for (std::int64_t head = 0; head < info.heads; ++head)
      for (std::int64_t row = first; row < length; ++row)
        lost.at<double>(call.layer, head) +=
            static_cast<double>(trace.dropped.at<float>(0, head, row)) / static_cast<double>(length - first);
    return attention(call.query, call.key, call.value, call.options).output;
  };
  (void)model.hidden_states(tokens, hooks, threads);
  return lost;
}

}  // namespace heed
