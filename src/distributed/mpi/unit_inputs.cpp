#include "distributed/mpi/unit_inputs.hpp"

namespace heed::distributed {
namespace {

// Inputs of the backward pass; optional ones follow.
enum Input : std::size_t { kQuery, kKey, kValue, kOutput, kLse, kGradOutput, kOthers };

}  // namespace

std::vector<Shard> travelling_rules(const Call& call) {
  std::vector<Shard> shards;
  if (call.mask_has_rows) shards.push_back({*call.options.mask, call.group(), &call.layout.query});
  if (call.bias_has_rows) shards.push_back({*call.options.bias, call.group(), &call.layout.query});
  return shards;
}

AttentionOptions unit_options(const Call& call, const Unit& unit, const UnitTensors& tensors,
                              std::size_t first) {
  AttentionOptions options = call.options_of(unit);
  if (call.mask_has_rows) options.mask = tensors[first++];
  if (call.bias_has_rows) options.bias = tensors[first];
  return options;
}

std::vector<Shard> backward_shards(const BackwardCall& call) {
  const Call& forward = call.forward;
  const Sharding *rows = &forward.layout.query, *keys = &forward.layout.key;
  const std::int64_t group = forward.group();
  std::vector<Shard> shards{{forward.query, group, rows}, {forward.key, 1, keys},
                            {forward.value, 1, keys},     {call.output, group, rows},
                            {call.lse, group, rows},      {call.grad_output, group, rows}};
  if (call.grad_lse) shards.push_back({*call.grad_lse, group, rows});
  if (call.grad_weights) shards.push_back({*call.grad_weights, group, rows});
  for (const Shard& shard : travelling_rules(forward)) shards.push_back(shard);
  return shards;
}

UnitBackward unit_backward(const BackwardCall& call, const Unit& unit, const UnitTensors& tensors) {
  const auto of = [&](std::size_t at) { return tensors[at].unsqueeze(0); };
  const auto rows_of = [&](std::size_t at) { return of(at).select(3, 0); };
  UnitBackward own{{of(kQuery), of(kKey), of(kValue), of(kOutput), rows_of(kLse), of(kGradOutput)}, {}};
  std::size_t at = kOthers;
  if (call.grad_lse) own.inputs.grad_lse = rows_of(at++);
  if (call.grad_weights) own.inputs.grad_weights = of(at++);
  own.options = unit_options(call.forward, unit, tensors, at);
  return own;
}

}  // namespace heed::distributed
