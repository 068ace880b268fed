// Unicode normal forms (Unicode Standard Annex 15) of an aligned text.
#pragma once

#include "text/shared/aligned.hpp"

namespace heed::detail {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// Uses Unicode 9: newer code points stay unchanged.
void normalize(AlignedText& text, NormalForm form);

}  // namespace heed::detail
