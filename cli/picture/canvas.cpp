#include "picture/canvas.hpp"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>
#include <pango/pangocairo.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "core/message.hpp"
#include "heed/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define HEED_CHECKS_LEAKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEED_CHECKS_LEAKS
#endif
#endif
#ifdef HEED_CHECKS_LEAKS
// Fontconfig keeps its patterns until the process ends, so suppress that leak report.
extern "C" {
__attribute__((visibility("default"))) const char* __lsan_default_suppressions();
__attribute__((visibility("default"))) const char* __lsan_default_options();
const char* __lsan_default_suppressions() { return "leak:libfontconfig\n"; }
const char* __lsan_default_options() { return "print_suppressions=0"; }
}
#endif

namespace heed::cli {
namespace {

constexpr double kMaxAlongSide = 30000;
constexpr const char* kFonts = "DejaVu Sans, Noto Sans, sans-serif";
constexpr double kAcross = -1.5707963267948966;  // a quarter turn counterclockwise

struct Release {
  void operator()(cairo_t* context) const { cairo_destroy(context); }
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
  void operator()(cairo_font_options_t* options) const { cairo_font_options_destroy(options); }
  void operator()(PangoLayout* layout) const { g_object_unref(layout); }
  void operator()(PangoFontDescription* font) const { pango_font_description_free(font); }
};
template <class T>
using Owned = std::unique_ptr<T, Release>;

void require(cairo_status_t status) {
  if (status == CAIRO_STATUS_NO_MEMORY) throw Error(ErrorCode::out_of_memory, "no memory for the picture");
  if (status != CAIRO_STATUS_SUCCESS)
    detail::refuse(ErrorCode::internal, "Cairo could not draw the picture: ", cairo_status_to_string(status));
}

cairo_status_t append(void* to, const unsigned char* bytes, unsigned int count) {
  try {
    static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(bytes), count);
    return CAIRO_STATUS_SUCCESS;
  } catch (const std::bad_alloc&) {
    return CAIRO_STATUS_NO_MEMORY;
  }
}

std::uint32_t pixel_of(const Ink& ink) {
  const auto byte = [](double share) { return static_cast<std::uint32_t>(std::lround(share * 255)); };
  return 0xFF000000U | byte(ink.red) << 16U | byte(ink.green) << 8U | byte(ink.blue);
}

}  // namespace

struct Canvas::Page {
  PictureFormat format;
  std::string bytes;
  Owned<cairo_surface_t> surface;
  Owned<cairo_t> context;
  Owned<PangoLayout> layout;

  void set_source(const Ink& ink) { cairo_set_source_rgb(context.get(), ink.red, ink.green, ink.blue); }

  void set_text(std::string_view text, const Lettering& lettering) {
    const Owned<PangoFontDescription> font(pango_font_description_from_string(kFonts));
    pango_font_description_set_absolute_size(font.get(), lettering.size * PANGO_SCALE);
    if (lettering.bold) pango_font_description_set_weight(font.get(), PANGO_WEIGHT_BOLD);
    pango_layout_set_font_description(layout.get(), font.get());
    pango_layout_set_width(layout.get(), -1);
    pango_layout_set_text(layout.get(), text.data(), static_cast<int>(text.size()));
  }

  // Draws text in the box from (0, 0) to (width, height).
  void draw_text(double width, double height, std::string_view text, const Lettering& lettering) {
    if (!(width > 0)) return;
    set_text(text, lettering);
    pango_layout_set_width(layout.get(), static_cast<int>(width * PANGO_SCALE));
    pango_layout_set_alignment(layout.get(), lettering.side == Side::left     ? PANGO_ALIGN_LEFT
                                             : lettering.side == Side::middle ? PANGO_ALIGN_CENTER
                                                                              : PANGO_ALIGN_RIGHT);
    int used_width = 0, used_height = 0;
    pango_layout_get_size(layout.get(), &used_width, &used_height);
    cairo_move_to(context.get(), 0, (height - static_cast<double>(used_height) / PANGO_SCALE) / 2);
    set_source(lettering.ink);
    pango_cairo_show_layout(context.get(), layout.get());
  }
};

std::string picture_libraries() {
  return "Cairo " + std::string(cairo_version_string()) + ", Pango " + pango_version_string();
}

Canvas::Canvas(PictureFormat format, double width, double height, double pixels)
    : page_(std::make_unique<Page>()) {
  const double scale = format == PictureFormat::png ? pixels : 1;
  if (!(std::max(width, height) * scale <= kMaxAlongSide))
    detail::refuse("the picture would be ", std::lround(width * scale), " x ", std::lround(height * scale),
                   "; at most 30000 along a side are expected");
  page_->format = format;
  if (format == PictureFormat::png)
    page_->surface.reset(cairo_image_surface_create(CAIRO_FORMAT_RGB24,
                                                    static_cast<int>(std::ceil(width * scale)),
                                                    static_cast<int>(std::ceil(height * scale))));
  else if (format == PictureFormat::svg)
    page_->surface.reset(cairo_svg_surface_create_for_stream(append, &page_->bytes, width, height));
  else
    page_->surface.reset(cairo_pdf_surface_create_for_stream(append, &page_->bytes, width, height));
  require(cairo_surface_status(page_->surface.get()));
  if (format == PictureFormat::pdf) {
    // From version 1.5 on, PDF hides the sizes of pages in compressed streams.
    cairo_pdf_surface_restrict_to_version(page_->surface.get(), CAIRO_PDF_VERSION_1_4);
    // A creation date would change the bytes.
    cairo_pdf_surface_set_metadata(page_->surface.get(), CAIRO_PDF_METADATA_CREATE_DATE, "");
  }
  page_->context.reset(cairo_create(page_->surface.get()));
  cairo_scale(page_->context.get(), scale, scale);
  page_->layout.reset(pango_cairo_create_layout(page_->context.get()));
  // Turn hinting off, so letters keep the positions of their outlines at any size.
  const Owned<cairo_font_options_t> options(cairo_font_options_create());
  cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);
  cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
  pango_cairo_context_set_font_options(pango_layout_get_context(page_->layout.get()), options.get());
  pango_context_set_round_glyph_positions(pango_layout_get_context(page_->layout.get()), FALSE);
  pango_layout_set_ellipsize(page_->layout.get(), PANGO_ELLIPSIZE_END);
  pango_layout_set_single_paragraph_mode(page_->layout.get(), TRUE);
  pango_layout_set_auto_dir(page_->layout.get(), FALSE);  // a right-to-left word would change its line's side
  page_->set_source({1, 1, 1});
  cairo_paint(page_->context.get());
}

Canvas::~Canvas() = default;

void Canvas::fill(const Box& box, const Ink& ink) {
  cairo_t* context = page_->context.get();
  page_->set_source(ink);
  cairo_rectangle(context, box.x, box.y, box.width, box.height);
  cairo_fill(context);
}

void Canvas::outline(const Box& box, const Ink& ink, double thickness) {
  cairo_t* context = page_->context.get();
  page_->set_source(ink);
  cairo_set_line_width(context, thickness);
  cairo_rectangle(context, box.x, box.y, box.width, box.height);
  cairo_stroke(context);
}

void Canvas::line(double from_x, double from_y, double to_x, double to_y, const Ink& ink, double thickness) {
  cairo_t* context = page_->context.get();
  page_->set_source(ink);
  cairo_set_line_width(context, thickness);
  cairo_move_to(context, from_x, from_y);
  cairo_line_to(context, to_x, to_y);
  cairo_stroke(context);
}

void Canvas::text(const Box& box, std::string_view text, const Lettering& lettering) {
  cairo_save(page_->context.get());
  cairo_translate(page_->context.get(), box.x, box.y);
  page_->draw_text(box.width, box.height, text, lettering);
  cairo_restore(page_->context.get());
}

void Canvas::text_upwards(const Box& box, std::string_view text, const Lettering& lettering) {
  cairo_save(page_->context.get());
  cairo_translate(page_->context.get(), box.x, box.y + box.height);
  cairo_rotate(page_->context.get(), kAcross);
  page_->draw_text(box.height, box.width, text, lettering);
  cairo_restore(page_->context.get());
}

double Canvas::text_width(std::string_view text, const Lettering& lettering) {
  page_->set_text(text, lettering);
  int width = 0, height = 0;
  pango_layout_get_size(page_->layout.get(), &width, &height);
  return static_cast<double>(width) / PANGO_SCALE;
}

void Canvas::image(const Box& box, std::span<const Ink> inks, std::int64_t rows, std::int64_t columns) {
  // SVG and PDF viewers blur stretched images, so each ink covers several pixels: four a point, if that
  // suffices.
  const auto pixels = static_cast<std::int64_t>(std::clamp(4 * std::max(box.width, box.height), 1.0, 512.0));
  const auto times = static_cast<int>(std::max<std::int64_t>(4, pixels / std::max(rows, columns)));
  const Owned<cairo_surface_t> image(cairo_image_surface_create(
      CAIRO_FORMAT_RGB24, static_cast<int>(columns) * times, static_cast<int>(rows) * times));
  require(cairo_surface_status(image.get()));
  cairo_surface_flush(image.get());
  unsigned char* data = cairo_image_surface_get_data(image.get());
  const std::int64_t stride = cairo_image_surface_get_stride(image.get());
  for (std::int64_t y = 0; y < rows * times; ++y) {
    auto* line = reinterpret_cast<std::uint32_t*>(data + y * stride);
    const Ink* from = &inks[static_cast<std::size_t>(y / times * columns)];
    for (std::int64_t x = 0; x < columns * times; ++x) line[x] = pixel_of(from[x / times]);
  }
  cairo_surface_mark_dirty(image.get());
  cairo_t* context = page_->context.get();
  cairo_save(context);
  cairo_translate(context, box.x, box.y);
  cairo_scale(context, box.width / static_cast<double>(columns * times),
              box.height / static_cast<double>(rows * times));
  cairo_set_source_surface(context, image.get(), 0, 0);
  cairo_pattern_set_filter(cairo_get_source(context), CAIRO_FILTER_NEAREST);
  cairo_paint(context);
  cairo_restore(context);
}

void Canvas::next_page() { cairo_show_page(page_->context.get()); }

std::string Canvas::finish() {
  require(cairo_status(page_->context.get()));
  page_->layout.reset();
  page_->context.reset();
  if (page_->format == PictureFormat::png)
    require(cairo_surface_write_to_png_stream(page_->surface.get(), append, &page_->bytes));
  cairo_surface_finish(page_->surface.get());
  require(cairo_surface_status(page_->surface.get()));
  return std::move(page_->bytes);
}

}  // namespace heed::cli
