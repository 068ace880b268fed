// A tokenizer.json as values of JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "heed/text_tokenizer.hpp"

namespace heed::detail {

struct TokenizerJson {
  /// The bytes of the file. Throws Error (io) where there are more than a tokenizer has.
  [[nodiscard]] static std::string bytes(const std::string& path);
  /// Throws Error (io) that begins with `subject` for what is not JSON, or more than a tokenizer has.
  [[nodiscard]] static nlohmann::json values(std::string_view text, const std::string& subject);
  /// The tokenizer that they describe. Throws likewise.
  [[nodiscard]] static TextTokenizer tokenizer(const nlohmann::json& values, const std::string& subject);
};

}  // namespace heed::detail
