// A layer between heed and MPI, which uses MPI's profiling interface. It counts objects that are created and
// freed, starts messages late and in any order, and delays them.
#pragma once

#include <cstdint>

namespace heed::test::mpi_layer {

/// Holds back each send for a random number of polls, drawn from the seed. Sends of different tags then start
/// in any order.
void shuffle(std::uint64_t seed);
/// Delays each message by at least `seconds` after its receive was posted.
void delay(double seconds);
/// Stops holding back and delaying messages.
void off();

/// The objects created and not yet freed.
struct Left {
  std::int64_t requests = 0, types = 0, communicators = 0;
};
[[nodiscard]] Left left();

/// The number of messages that were held back.
[[nodiscard]] std::int64_t held();

}  // namespace heed::test::mpi_layer
