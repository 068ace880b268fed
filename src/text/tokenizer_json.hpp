// A tokenizer.json as JSON values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "heed/model/tokenizer.hpp"

namespace heed::detail {

struct TokenizerJson {
  /// Reads the file. Throws Error (io) if it is larger than any tokenizer.
  [[nodiscard]] static std::string bytes(const std::string& path);
  /// Throws Error (io) that begins with `subject` if the text is not JSON or has too many values for a
  /// tokenizer.
  [[nodiscard]] static nlohmann::json values(std::string_view text, const std::string& subject);
  /// The tokenizer that the values describe. Throws likewise.
  [[nodiscard]] static Tokenizer tokenizer(const nlohmann::json& values, const std::string& subject);
};

}  // namespace heed::detail
