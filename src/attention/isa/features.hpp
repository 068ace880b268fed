// Features of the processor, by the names that Linux uses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed::detail::cpu {

/// Whether the processor has a feature and the system saves its registers. False for a name that heed does
/// not know.
bool processor_has(std::string_view feature);

/// Returns "the processor has no amx_tile", or that the system refuses it; empty if the feature is available.
std::string why_missing(std::string_view feature);

/// "GenuineIntel", "AuthenticAMD", …; empty if the processor does not tell.
std::string_view processor_vendor();

/// 25 (Zen 3 and 4), 26 (Zen 5), …; 0 if the processor does not tell.
int processor_family();

/// The processor's features that heed uses: "avx2", "fma", …
std::vector<std::string> processor_features();

}  // namespace heed::detail::cpu
