// Bytes written as letters, as byte-level vocabularies have them.
#pragma once

#include "text/shared/aligned.hpp"

namespace heed::detail {

/// Adds the letters (text/byte_letters.hpp) of the bytes [begin, end), whole code points, of a text.
void add_letters(const AlignedText& text, std::size_t begin, std::size_t end, AlignedText& letters);

}  // namespace heed::detail
