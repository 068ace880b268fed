// Splitting a text into words. Each word becomes tokens on its own.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "text/shared/aligned.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

/// Bytes [begin, end) of a text, at least one.
struct Word {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct Words {
  AlignedText text;
  std::vector<Word> words;
};

/// Splits each word further, and may change the text. Several threads may use one.
using PreTokenizer = std::function<void(Words& words)>;

/// Makes a pre-tokenizer from a tokenizer.json. Throws Error (io).
[[nodiscard]] PreTokenizer pre_tokenizer_from(const JsonPart& part);

}  // namespace heed::detail
