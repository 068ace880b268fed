// Temporary files that have to go whoever ends the ranks.
#pragma once

#include <string>
#include <vector>

namespace heed::cli {

/// From here on a signal that ends this process (SIGTERM, with which mpirun ends ranks, SIGINT, SIGHUP)
/// removes them first. None: forgets those that it was told.
void hold_temporaries(std::vector<std::string> paths);
/// Removes those that it holds.
void remove_temporaries();

}  // namespace heed::cli
