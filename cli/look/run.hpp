// Folders from heed.transformers.capture(to=…), with one safetensors file per call of a layer.
#pragma once

#include "look/source.hpp"

namespace heed::cli {

/// Prints each call's layer, its contents and, for each head, the means over its rows. --layer selects the
/// calls of one layer. Throws Error (io) for a folder without calls, and for a file that is no captured call.
void answer_run(const LookSource& source, bool json);

}  // namespace heed::cli
