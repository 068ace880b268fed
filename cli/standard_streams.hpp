// Checks of standard input, output and error: they may be closed or full.
#pragma once

namespace heed::cli {

/// Reserves the descriptors of closed standard streams. Otherwise the next opened file would get such a
/// descriptor, and printed text would end up in it. Using a reserved stream still fails. Call this function
/// first.
void hold_standard_streams();

/// Throws Error (io) if standard output is closed. Long commands call it before their work.
void require_standard_output();

/// Throws Error (io) if printed text could not be written. Call it last.
void flush_standard_output();

}  // namespace heed::cli
