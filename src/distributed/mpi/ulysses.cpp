// All results, computed by units.
#include <vector>

#include "distributed/mpi/by_units.hpp"
#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/unit_inputs.hpp"
#include "heed/attention/part.hpp"

namespace heed::distributed {
namespace {

std::vector<UnitResult> results_of(const Call& call, const AttentionOutputs& outputs) {
  std::vector<UnitResult> results;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const MutableTensorView& view = result(call.outputs, i);
    const ResultShape shape = result_entry(i).shape;
    if (view.data() == nullptr) continue;
    results.push_back({result_rows(view, shape), call.group(),
                       shape == ResultShape::map ? nullptr
                       : has_rows(shape)         ? &call.layout.query
                                                 : &call.layout.key,
                       result(outputs, i).data() != nullptr});
  }
  return results;
}

AttentionOutputs views_of(const Call& call, std::vector<Tensor>& results) {
  AttentionOutputs outputs;
  std::size_t at = 0;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    if (result(call.outputs, i).data() == nullptr) continue;
    const MutableTensorView rows = results[at++].mutable_view().unsqueeze(0);
    result(outputs, i) = axes_of(result_entry(i).shape) == 1 ? rows.select(3, 0) : rows;
  }
  return outputs;
}

}  // namespace

Work ulysses(const Communicator& comm, const Call& call, const AttentionOutputs& outputs) {
  std::vector<Shard> inputs{{call.query, call.group(), &call.layout.query},
                            {call.key, 1, &call.layout.key},
                            {call.value, 1, &call.layout.key}};
  const std::size_t rules = inputs.size();
  for (const Shard& shard : travelling_rules(call)) inputs.push_back(shard);
  const PositionRange all{0, call.layout.query.length()};
  return ByUnits(comm, call, inputs, results_of(call, outputs))
      .run([&](const Unit& unit, const UnitTensors& tensors, std::vector<Tensor>& results) {
        return attention_part_into(tensors[0].unsqueeze(0), tensors[1].unsqueeze(0), tensors[2].unsqueeze(0),
                                   unit_options(call, unit, tensors, rules), call.part_of(unit, {&all, 1}),
                                   views_of(call, results));
      });
}

}  // namespace heed::distributed
