// What is done to a text before it is cut into words: normal forms, case, accents, replacements.
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

/// A normalizer of a tokenizer.json. Throws Error (io).
[[nodiscard]] std::unique_ptr<const Normalizer> normalizer_from(const JsonPart& part);

}  // namespace heed::detail
