#include "heed/version.hpp"

namespace heed {
std::string_view version() noexcept { return HEED_VERSION; }
}  // namespace heed
