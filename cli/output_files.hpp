// Files that a command is about to write, checked before it begins its work.
#pragma once

#include <string>
#include <vector>

namespace heed::cli {

/// A file and the option that named it.
struct NamedFile {
  std::string option;
  std::string path;
};

/// Throws UsageError where an output is one of the inputs (through whatever links and folders; "-" is
/// standard input), or two outputs are one file; Error (io) where an output could not be written because its
/// folder is missing or write-protected, or because it is a folder itself.
void check_outputs(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

}  // namespace heed::cli
