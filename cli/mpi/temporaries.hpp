// Temporary files that are removed however the process ends.
#pragma once

#include <string>
#include <vector>

namespace heed::cli {

/// Registers files to remove when a signal ends this process: SIGTERM (which mpirun sends to ranks), SIGINT
/// or SIGHUP. An empty list clears the registration.
void hold_temporaries(std::vector<std::string> paths);
/// Removes the registered files.
void remove_temporaries();

}  // namespace heed::cli
