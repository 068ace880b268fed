// Agreement of ranks: all go on, or none.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "distributed/mpi/communicator.hpp"

namespace heed::distributed {

/// Runs `work` on every rank, and returns when all have ended. If it throws on some ranks, it throws on all:
/// the rank's own Error, or the first failed rank's, as "rank 2: …".
void agree(const Communicator& comm, const std::function<void()>& work);

/// A number that must be the same on all ranks.
struct Common {
  std::string_view name;
  std::int64_t value;
};
/// The bits of a floating-point number, for a Common.
inline std::int64_t bits_of(double number) { return std::bit_cast<std::int64_t>(number); }
/// Throws Error (invalid_argument) on all ranks if the ranks' values of a number differ. The names must be
/// the same on all ranks.
void agree_on(const Communicator& comm, const std::vector<Common>& numbers);

}  // namespace heed::distributed
