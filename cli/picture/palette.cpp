#include "picture/palette.hpp"

#include <array>
#include <cmath>
#include <utility>

namespace heed::cli {
namespace {

constexpr Ink ink(int red, int green, int blue) { return {red / 255.0, green / 255.0, blue / 255.0}; }

// CIELAB lightness of 35 to 45, so a weight of 1 looks equally dark under every name.
constexpr std::array<std::pair<std::string_view, Ink>, 12> kInks = {{
    {"induction", ink(178, 34, 52)},
    {"previous-token", ink(25, 92, 168)},
    {"next-token", ink(0, 116, 122)},
    {"same-token", ink(118, 62, 168)},
    {"duplicate-token", ink(168, 40, 130)},
    {"self", ink(102, 98, 10)},
    {"first-token sink", ink(132, 84, 32)},
    {"separators", ink(176, 78, 0)},
    {"vertical", ink(122, 48, 52)},
    {"local", ink(36, 112, 44)},
    {"uniform", ink(66, 104, 136)},
    {"fixed offset", ink(74, 66, 168)},
}};
constexpr Ink kMixed = ink(84, 88, 94);

// Relative luminance of an sRGB colour.
double luminance(const Ink& ink) {
  const auto linear = [](double part) {
    return part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(ink.red) + 0.7152 * linear(ink.green) + 0.0722 * linear(ink.blue);
}

}  // namespace

Ink letters_on(const Ink& ground) {
  const double light = luminance(ground) + 0.05;
  return (luminance(kPaper) + 0.05) / light > light / (luminance(kText) + 0.05) ? kPaper : kText;
}

Ink ink_of_name(std::string_view name) {
  if (name.ends_with(" back") || name.ends_with(" ahead")) name = "fixed offset";
  for (const auto& [known, ink] : kInks)
    if (known == name) return ink;
  return kMixed;
}

}  // namespace heed::cli
