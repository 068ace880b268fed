// Sums of a batch's pieces in their order, wherever they were computed.
#pragma once

#include <vector>

#include "distributed/mpi/communicator.hpp"
#include "heed/nn/transformer.hpp"

namespace heed::distributed {

/// ((p0 + p1) + p2) + … over rank 0's pieces (at least one), then rank 1's, and so on. Every rank gets the
/// sum of the gradients in `gradients`, and the sum of the losses as the result.
double add_in_order(const Communicator& comm, std::vector<nn::LossPiece>& pieces,
                    nn::LanguageModel& gradients);

}  // namespace heed::distributed
