// The files of a model's folder.
#pragma once

#include <string>
#include <string_view>

#include "heed/trained_model.hpp"

namespace heed::detail {

/// Parses a vocabulary.json. Throws Error (io) with the file's name for contents that save_model() does not
/// write.
[[nodiscard]] Tokenizer tokenizer_from_json(std::string_view text, const std::string& path);

/// The tokenizer of a folder's vocabulary.json. Throws likewise.
[[nodiscard]] Tokenizer tokenizer_in(const std::string& folder);

/// The tokenizer.json of a character vocabulary, for PyPI's tokenizers: the same text gives the same ids, and
/// unknown characters are refused, too.
[[nodiscard]] std::string tokenizers_json(const Vocabulary& characters);

}  // namespace heed::detail
