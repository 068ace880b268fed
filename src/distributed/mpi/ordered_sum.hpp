// The pieces of a batch, wherever they were computed, added up in their order.
#pragma once

#include <vector>

#include "distributed/mpi/communicator.hpp"
#include "heed/transformer.hpp"

namespace heed::distributed {

/// ((p0 + p1) + p2) + …, of rank 0's pieces (one at least), then rank 1's, and so on: the sum of the
/// gradients in `gradients` and that of the losses, on every rank.
double add_in_order(const Communicator& comm, std::vector<nn::LossPiece>& pieces,
                    nn::LanguageModel& gradients);

}  // namespace heed::distributed
