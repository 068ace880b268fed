// How tokens become text again.
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
  /// Changes tokens to pieces of text, which joined are the text.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// A decoder of a tokenizer.json. Throws Error (io).
[[nodiscard]] std::unique_ptr<const TokenDecoder> token_decoder_from(const JsonPart& part);

}  // namespace heed::detail
