// Checks of output files before a command starts its work.
#pragma once

#include <string>
#include <vector>

namespace heed::cli {

struct NamedFile {
  std::string option;
  std::string path;
};

/// Throws UsageError if an output is one of the inputs, also through links ("-" is standard input), or if two
/// outputs are the same file. Throws Error (io) if an output cannot be written: its folder is missing or
/// write-protected, or it is a folder itself. An empty path is a file that is not requested.
void check_outputs(std::vector<NamedFile> inputs, std::vector<NamedFile> outputs);

}  // namespace heed::cli
