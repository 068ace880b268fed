// What a model's folder holds, file by file.
#pragma once

#include <string>
#include <string_view>

#include "heed/trained_model.hpp"

namespace heed::detail {

/// The JSON of a vocabulary.json. Throws Error (io), naming the file, for what save_model() did not write.
[[nodiscard]] Tokenizer tokenizer_from_json(std::string_view text, const std::string& path);

/// The tokenizer of a folder's vocabulary.json. Throws likewise.
[[nodiscard]] Tokenizer tokenizer_in(const std::string& folder);

/// The tokenizer.json of characters, for PyPI's tokenizers: it reads and writes the same text with the same
/// ids, and refuses a character that is not among them, too.
[[nodiscard]] std::string tokenizers_json(const Vocabulary& characters);

}  // namespace heed::detail
