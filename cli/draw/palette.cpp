#include "draw/palette.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace heed::cli {
namespace {

struct Rgb {
  double red;
  double green;
  double blue;
};

// viridis at 0, 1/9, …, 1, with linear interpolation between.
constexpr std::array<Rgb, 10> kViridis = {{{68, 1, 84},
                                           {72, 40, 120},
                                           {62, 74, 137},
                                           {49, 104, 142},
                                           {38, 130, 142},
                                           {31, 158, 137},
                                           {53, 183, 121},
                                           {109, 205, 89},
                                           {180, 222, 44},
                                           {253, 231, 37}}};
// The xterm colours that approximate viridis, each brighter than the one before. Choosing the nearest by
// distance alone would jump between violet and grey.
constexpr std::array<int, 10> kPalette = {53, 54, 24, 30, 36, 72, 77, 113, 184, 220};
// The share from which black text is easier to read than white.
constexpr double kBlackFrom = 0.5;

Rgb viridis(double share) {
  const double at = share * (kViridis.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(at), kViridis.size() - 2);
  const Rgb& from = kViridis[below];
  const Rgb& to = kViridis[below + 1];
  const double rest = at - static_cast<double>(below);
  return {std::lerp(from.red, to.red, rest), std::lerp(from.green, to.green, rest),
          std::lerp(from.blue, to.blue, rest)};
}

std::string background_code(double share, Color color) {
  if (color == Color::palette) {
    const auto step = static_cast<std::size_t>(share * kPalette.size());
    return "48;5;" + std::to_string(kPalette[std::min(step, kPalette.size() - 1)]);
  }
  const Rgb c = viridis(share);
  return "48;2;" + std::to_string(std::lround(c.red)) + ";" + std::to_string(std::lround(c.green)) + ";" +
         std::to_string(std::lround(c.blue));
}

std::string styled(const std::string& text, const std::string& code, Color color) {
  return color == Color::none ? text : "\x1b[" + code + "m" + text + "\x1b[0m";
}

}  // namespace

std::string on_viridis(const std::string& text, double share, Color color) {
  if (color == Color::none) return text;
  const double within = std::clamp(std::isnan(share) ? 0.0 : share, 0.0, 1.0);
  const std::string foreground = within < kBlackFrom ? "38;5;231;" : "38;5;16;";
  return styled(text, foreground + background_code(within, color), color);
}

std::string bold(const std::string& text, Color color) { return styled(text, "1", color); }

std::string faint(const std::string& text, Color color) { return styled(text, "2", color); }

}  // namespace heed::cli
