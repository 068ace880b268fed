// All ranks go on, or none.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "distributed/mpi/communicator.hpp"

namespace heed::distributed {

/// Runs `work` on every rank, and returns when it has ended on all. Where it throws on some, throws on all:
/// the rank's own Error, or that of the first rank that failed, as "rank 2: …".
void agree(const Communicator& comm, const std::function<void()>& work);

/// A number that has to be the same on all ranks.
struct Common {
  std::string_view name;
  std::int64_t value;
};
/// A floating-point number as one.
inline std::int64_t bits_of(double number) { return std::bit_cast<std::int64_t>(number); }
/// Throws Error (invalid_argument) on all ranks where one of them is not. The names are the same everywhere.
void agree_on(const Communicator& comm, const std::vector<Common>& numbers);

}  // namespace heed::distributed
