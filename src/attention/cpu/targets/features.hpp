// What the processor can do, by the names that Linux gives it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed::detail::cpu {

/// Whether the processor has a feature and the system saves its registers. False for a name that heed does
/// not know.
bool processor_has(std::string_view feature);

/// "the processor has no amx_tile", or that the system refuses it; empty where it is to be had.
std::string why_missing(std::string_view feature);

/// "GenuineIntel", "AuthenticAMD", …; empty where the processor does not say.
std::string_view processor_vendor();

/// 25 (Zen 3 and 4), 26 (Zen 5), …; 0 where the processor does not say.
int processor_family();

/// Those that matter here: "avx2", "fma", …
std::vector<std::string> processor_features();

}  // namespace heed::detail::cpu
