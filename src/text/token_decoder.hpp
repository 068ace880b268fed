// Turning tokens back into text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/shared/json_part.hpp"

namespace heed::detail {

/// Immutable; several threads may use one.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  /// Turns tokens into pieces of text, whose concatenation is the text.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// Makes a decoder from a tokenizer.json. Throws Error (io).
[[nodiscard]] std::unique_ptr<const TokenDecoder> token_decoder_from(const JsonPart& part);

}  // namespace heed::detail
