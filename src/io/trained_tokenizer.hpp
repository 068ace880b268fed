// vocabulary.json: the tokens of a model that heed trained.
#pragma once

#include <string>

#include "heed/export.hpp"
#include "heed/io/trained_tokenizer.hpp"

namespace heed::detail {

/// Reads a folder's vocabulary.json. Throws Error (io), naming the file, for what save_model() did not write.
[[nodiscard]] HEED_API TrainedTokenizer tokenizer_in(const std::string& folder);

}  // namespace heed::detail
