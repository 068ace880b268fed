#include "distributed/mpi/choose.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/message.hpp"
#include "distributed/mpi/agreement.hpp"
#include "heed/distributed/plan.hpp"
#include "heed/error.hpp"

namespace heed::distributed {
namespace {

int ranks_per_node(const Communicator& comm) {
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm.get(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  int size = 1;
  check(MPI_Comm_size(node, &size), "MPI_Comm_size");
  check(MPI_Comm_free(&node), "MPI_Comm_free");
  std::int64_t most = size;
  comm.take_largest({&most, 1});
  return static_cast<int>(most);
}

Results results_of(const AttentionOutputs& outputs) {
  Results results = Results::of_rows;
  for (const auto& [entry, member] : kResults<MutableTensorView>) {
    if ((outputs.*member).data() == nullptr) continue;
    if (!has_rows(entry.shape)) return Results::sums;
    if (!takes_one_pass(entry)) results = Results::weights;
  }
  return results;
}

PlannedCall planned(const Call& call, bool gradients) {
  PlannedCall planned;
  planned.batch = call.batch();
  planned.heads = call.heads();
  planned.kv_heads = call.kv_heads();
  planned.head_dim = call.query.size(3);
  planned.value_dim = call.value.size(3);
  planned.element_bytes = static_cast<int>(size_of(call.query.dtype()));
  planned.causal = call.options.causal;
  planned.window = call.options.window;
  const std::int64_t end_offset = call.layout.key.length() - call.layout.query.length();
  planned.query_offset =
      call.options.query_offset.value_or(call.options.align == Align::bottom_right ? end_offset : 0);
  planned.gradients = gradients;
  planned.results = gradients ? Results::of_rows : results_of(call.outputs);
  return planned;
}

}  // namespace

void agree_on_choice(const Communicator& comm, const Choice& choice) {
  const Machines machines = choice.machines.value_or(Machines{});
  agree_on(comm,
           {{"choice.scheme's number", static_cast<std::int64_t>(choice.scheme)},
            {"choice.deterministic", choice.deterministic},
            {"whether there are machines", choice.machines.has_value()},
            {"choice.machines.ranks_per_node", machines.ranks_per_node},
            {"the bits of choice.machines.flops_per_second", bits_of(machines.flops_per_second)},
            {"the bits of choice.machines.bytes_per_second", bits_of(machines.bytes_per_second)},
            {"the bits of choice.machines.node_bytes_per_second", bits_of(machines.node_bytes_per_second)},
            {"the bits of choice.machines.latency_seconds", bits_of(machines.latency_seconds)}});
  detail::check_listed("choice.scheme", choice.scheme, Scheme::decode);
  try {
    if (choice.machines) check_machines(machines);
  } catch (const Error& error) {
    throw Error(error.code(), std::string("choice.machines.") + error.what());
  }
}

Scheme choose_scheme(const Communicator& comm, const Call& call, const Choice& choice, bool gradients,
                     std::initializer_list<Scheme> possible, Scheme otherwise) {
  const Machines machines = choice.machines ? *choice.machines : assumed_machines(ranks_per_node(comm));
  try {
    std::vector<SchemePlan> plans =
        plan(planned(call, gradients), machines, call.layout.query, call.layout.key);
    for (SchemePlan& one : plans)
      one.possible = one.possible && std::ranges::find(possible, one.scheme) != possible.end();
    return choose(plans);
  } catch (const Error&) {
    return otherwise;
  }
}

}  // namespace heed::distributed
