// Unicode's normal forms (Unicode Standard Annex 15), of a text that knows where it came from.
#pragma once

#include "text/shared/aligned.hpp"

namespace heed::detail {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// As of Unicode 9: code points that are younger stay as they are.
void normalize(AlignedText& text, NormalForm form);

}  // namespace heed::detail
