#include "heed/distributed/scheme.hpp"

#include <array>
#include <string>

#include "heed/error.hpp"

namespace heed::distributed {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"automatic", "ring", "gather", "ulysses", "decode"};

}  // namespace

std::string_view name_of(Scheme scheme) {
  const auto at = static_cast<std::size_t>(scheme);
  if (at >= kNames.size())
    throw Error(ErrorCode::invalid_argument,
                "scheme is " + std::to_string(static_cast<int>(scheme)) + "; 0 to 4 is expected");
  return kNames[at];
}

Scheme scheme_of(std::string_view name) {
  for (std::size_t at = 0; at < kNames.size(); ++at)
    if (kNames[at] == name) return static_cast<Scheme>(at);
  throw Error(ErrorCode::invalid_argument, "scheme is '" + std::string(name) +
                                               "'; automatic, ring, gather, ulysses or decode is expected");
}

}  // namespace heed::distributed
