// What a model's folder holds, file by file.
#pragma once

#include <string>
#include <string_view>

#include "heed/model.hpp"

namespace heed::detail {

/// The JSON of a vocabulary.json. Throws Error (io), naming the file, for what save_model() did not write.
[[nodiscard]] Tokenizer tokenizer_from_json(std::string_view text, const std::string& path);

/// The numbers of the parameters, from a file that holds at least as many numbers as the sizes ask for.
[[nodiscard]] nn::LanguageModel read_parameters(const std::string& path,
                                                const nn::LanguageModelConfig& config);

}  // namespace heed::detail
