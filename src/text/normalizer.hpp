// Changes to a text before it is split into words: normal forms, case, accents, replacements.
#pragma once

#include <memory>

#include "text/shared/aligned.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

/// Immutable; several threads may use one.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(AlignedText& text) const = 0;
};

/// Makes a normalizer from a tokenizer.json. Throws Error (io).
[[nodiscard]] std::unique_ptr<const Normalizer> normalizer_from(const JsonPart& part);

}  // namespace heed::detail
