// Bytes written as letters, as in byte-level vocabularies.
#pragma once

#include "text/shared/aligned.hpp"

namespace heed::detail {

/// Appends the letters (text/byte_letters.hpp) of a text's bytes [begin, end), whole code points.
void add_letters(const AlignedText& text, std::size_t begin, std::size_t end, AlignedText& letters);

}  // namespace heed::detail
