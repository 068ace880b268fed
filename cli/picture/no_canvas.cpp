// heed without Pango and Cairo: picture_format() throws before anything is drawn.
#include "heed/error.hpp"
#include "picture/canvas.hpp"

namespace heed::cli {

struct Canvas::Page {};

std::string picture_libraries() { return ""; }

Canvas::Canvas(PictureFormat, double, double, double) {
  throw Error(ErrorCode::internal, "this heed was built without Pango and Cairo, which draw pictures");
}
Canvas::~Canvas() = default;
void Canvas::fill(const Box&, const Ink&) {}
void Canvas::outline(const Box&, const Ink&, double) {}
void Canvas::line(double, double, double, double, const Ink&, double) {}
void Canvas::text(const Box&, std::string_view, const Lettering&) {}
void Canvas::text_upwards(const Box&, std::string_view, const Lettering&) {}
double Canvas::text_width(std::string_view, const Lettering&) { return 0; }
void Canvas::image(const Box&, std::span<const Ink>, std::int64_t, std::int64_t) {}
void Canvas::next_page() {}
std::string Canvas::finish() { return ""; }

}  // namespace heed::cli
