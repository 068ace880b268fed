// A page to draw on, written as a PNG, SVG or PDF file. Cairo draws and Pango sets the text. Unlike Cairo's
// own text functions, Pango finds a font for every script.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace heed::cli {

enum class PictureFormat { png, svg, pdf };

/// The format of the file extension. Throws UsageError, naming the option, for an unknown extension, or if
/// heed was built without Pango and Cairo.
[[nodiscard]] PictureFormat picture_format(const std::string& option, const std::string& path);

/// "Cairo 1.16.0, Pango 1.50.12", or empty if heed was built without them.
[[nodiscard]] std::string picture_libraries();

/// Red, green and blue, each from 0 to 1.
struct Ink {
  double red = 0, green = 0, blue = 0;
};
/// Interpolates from a (share 0) to b (share 1). NaN counts as share 0.
[[nodiscard]] Ink mixed(const Ink& a, const Ink& b, double share);

/// Lengths are in points (1/72 inch), measured from the upper left corner.
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

enum class Side { left, middle, right };

struct Lettering {
  double size = 9;
  bool bold = false;
  Side side = Side::left;  ///< alignment of the text in its box
  Ink ink{0.13, 0.15, 0.18};
};

class Canvas {
 public:
  /// A PNG has `pixels` pixels per point. Throws Error: invalid_argument for a page of more than 30000 pixels
  /// or points along a side, out_of_memory, and internal if Cairo fails.
  Canvas(PictureFormat format, double width, double height, double pixels = 2);
  ~Canvas();
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;

  void fill(const Box& box, const Ink& ink);
  void outline(const Box& box, const Ink& ink, double thickness);
  void line(double from_x, double from_y, double to_x, double to_y, const Ink& ink, double thickness);
  /// Draws one line of printable text, centred vertically in the box. Text that is too wide ends in "…".
  void text(const Box& box, std::string_view text, const Lettering& lettering);
  /// The same, rotated to read from bottom to top. Side::left aligns to the bottom.
  void text_upwards(const Box& box, std::string_view text, const Lettering& lettering);
  [[nodiscard]] double text_width(std::string_view text, const Lettering& lettering);
  /// Draws rows x columns inks, given row by row, stretched over the box without blur.
  void image(const Box& box, std::span<const Ink> inks, std::int64_t rows, std::int64_t columns);

  /// Begins another page of the same size; for PDF alone.
  void next_page();

  /// The file's bytes; nothing can be drawn afterwards. Within a process and with the same fonts, the same
  /// drawings give the same bytes.
  [[nodiscard]] std::string finish();

 private:
  struct Page;
  std::unique_ptr<Page> page_;
};

}  // namespace heed::cli
