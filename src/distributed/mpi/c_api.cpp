// The C functions of heed/heed_mpi.h over heed::distributed.
#include <optional>
#include <utility>

#include "attention/api/c_attention.hpp"
#include "attention/api/c_structs.hpp"
#include "distributed/mpi/agreement.hpp"
#include "distributed/mpi/own_calls.hpp"
#include "heed/heed_mpi.h"

namespace {

using heed::TensorView;
using heed::detail::refuse;
using namespace heed::detail::c_api;
using namespace heed::distributed;

static_assert(static_cast<int>(Scheme::decode) == HEED_MPI_DECODE);

heed_mpi_choice default_choice() {
  const Machines machines;
  auto made = nothing_given<heed_mpi_choice>();
  made.ranks_per_node = machines.ranks_per_node;
  made.node_bytes_per_second = machines.node_bytes_per_second;
  return made;
}

Layout layout_of(const heed_mpi_layout* given) {
  require("layout", given);
  const auto from = as_known("layout", given, nothing_given<heed_mpi_layout>());
  require("layout.query", from.query);
  require("layout.key", from.key);
  return {from.query->sharding, from.key->sharding, from.batch,
          from.heads,           from.batch_begin,   from.head_begin};
}

Choice choice_of(const heed_mpi_choice* given) {
  const heed_mpi_choice defaults = default_choice();
  const heed_mpi_choice from = given == nullptr ? defaults : as_known("choice", given, defaults);
  Choice made{choice("choice.scheme", from.scheme, Scheme::decode),
              flag("choice.deterministic", from.deterministic)};
  if (flag("choice.has_machines", from.has_machines))
    made.machines = {from.ranks_per_node, from.flops_per_second, from.bytes_per_second,
                     from.node_bytes_per_second, from.latency_seconds};
  return made;
}

// Returns the result of read() on every rank; if it throws on one rank, it throws on all.
template <class Read>
auto read_on_all(const Communicator& comm, Read read) {
  std::optional<decltype(read())> given;
  heed::distributed::agree(comm, [&] { given.emplace(read()); });
  return *std::move(given);
}

void tell(const Run& took, heed_mpi_run* run) {
  if (run != nullptr) *run = {static_cast<std::int32_t>(took.scheme), 0, took.bytes_sent};
}

}  // namespace

heed_status heed_mpi_layout_init_sized(heed_mpi_layout* layout, std::size_t struct_size) {
  return guarded([&] { initialise("layout", layout, struct_size, nothing_given<heed_mpi_layout>()); });
}

heed_status heed_mpi_choice_init_sized(heed_mpi_choice* choice, std::size_t struct_size) {
  return guarded([&] { initialise("choice", choice, struct_size, default_choice()); });
}

heed_status heed_mpi_attention(MPI_Comm comm, const heed_tensor* query, const heed_tensor* key,
                               const heed_tensor* value, const heed_mpi_layout* layout,
                               const heed_attention_options* options, const heed_attention_outputs* outputs,
                               const heed_mpi_choice* choice, heed_mpi_run* run) {
  struct Given {
    TensorView query, key, value;
    Layout layout;
    ForwardCall call;
    Choice choice;
  };
  return guarded([&] {
    const Communicator own(comm);
    const Given given = read_on_all(own, [&] {
      return Given{view_of("query", query),        view_of("key", key),
                   view_of("value", value),        layout_of(layout),
                   forward_call(options, outputs), choice_of(choice)};
    });
    const Run took = heed::distributed::attention_into(own, given.query, given.key, given.value, given.layout,
                                                       given.call.options, given.call.outputs, given.choice);
    given.call.report.tell(took);
    tell(took, run);
  });
}

heed_status heed_mpi_attention_backward(MPI_Comm comm, const heed_attention_backward_inputs* inputs,
                                        const heed_mpi_layout* layout, const heed_attention_options* options,
                                        const heed_attention_gradients* gradients,
                                        const heed_mpi_choice* choice, heed_mpi_run* run) {
  struct Given {
    Layout layout;
    BackwardCall call;
    Choice choice;
  };
  return guarded([&] {
    const Communicator own(comm);
    const Given given = read_on_all(own, [&] {
      return Given{layout_of(layout), backward_call(inputs, options, gradients), choice_of(choice)};
    });
    const Run took = heed::distributed::attention_backward_into(
        own, given.call.inputs, given.layout, given.call.options, given.call.gradients, given.choice);
    given.call.report.tell(took);
    tell(took, run);
  });
}
