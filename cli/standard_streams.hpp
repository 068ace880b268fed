// Standard input, output and error as they really are: closed, full, or gone.
#pragma once

namespace heed::cli {

/// A file that is opened while a standard stream is closed would take its number, and what is printed would
/// end in that file. This holds the place of those that are closed; using one still fails. Call it first.
void hold_standard_streams();

/// Throws Error (io) where standard output is closed: for a command that would find out too late.
void require_standard_output();

/// Throws Error (io) where what was printed did not arrive. Call it last.
void flush_standard_output();

}  // namespace heed::cli
