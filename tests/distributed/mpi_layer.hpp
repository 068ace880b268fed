// A layer between heed and MPI, by MPI's profiling interface: it counts what is made and given back, starts
// messages late and in any order, and lets them take their time.
#pragma once

#include <cstdint>

namespace heed::test::mpi_layer {

/// Sends are held back for some looks at the messages, drawn from the seed: those of different tags start in
/// any order.
void shuffle(std::uint64_t seed);
/// A message arrives no sooner than so long after it was asked for.
void delay(double seconds);
/// Neither.
void off();

/// What was made and not given back, so far.
struct Left {
  std::int64_t requests = 0, types = 0, communicators = 0;
};
[[nodiscard]] Left left();

/// Messages that were held back.
[[nodiscard]] std::int64_t held();

}  // namespace heed::test::mpi_layer
