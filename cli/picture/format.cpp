#include <cmath>

#include "command.hpp"
#include "picture/canvas.hpp"

namespace heed::cli {

PictureFormat picture_format(const std::string& option, const std::string& path) {
  if (picture_libraries().empty())
    refuse_usage(option,
                 " is given, but this heed was built without Pango and Cairo, which draw pictures; "
                 "one built where libpango1.0-dev is installed has them");
  if (path.ends_with(".png")) return PictureFormat::png;
  if (path.ends_with(".svg")) return PictureFormat::svg;
  if (path.ends_with(".pdf")) return PictureFormat::pdf;
  refuse_usage(option, " is '", path, "'; a file whose name ends in .png, .svg or .pdf is expected");
}

Ink mixed(const Ink& a, const Ink& b, double share) {
  const double s = std::isnan(share) ? 0 : std::fmin(std::fmax(share, 0), 1);
  return {std::lerp(a.red, b.red, s), std::lerp(a.green, b.green, s), std::lerp(a.blue, b.blue, s)};
}

}  // namespace heed::cli
