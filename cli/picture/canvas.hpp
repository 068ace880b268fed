// A page to draw on, which becomes a PNG, SVG or PDF file. Cairo draws, Pango sets the words: it finds a font
// for every script, which Cairo's own text does not.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace heed::cli {

enum class PictureFormat { png, svg, pdf };

/// By the ending of its name. Throws UsageError, naming the option, for another one, and where this heed was
/// built without Pango and Cairo.
[[nodiscard]] PictureFormat picture_format(const std::string& option, const std::string& path);

/// "Cairo 1.16.0, Pango 1.50.12", or empty where heed was built without them.
[[nodiscard]] std::string picture_libraries();

/// Red, green and blue, each from 0 to 1.
struct Ink {
  double red = 0, green = 0, blue = 0;
};
/// From a (share 0) to b (share 1); a share of NaN counts as 0.
[[nodiscard]] Ink mixed(const Ink& a, const Ink& b, double share);

/// All lengths are points of 1/72 inch, from the upper left corner.
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

enum class Side { left, middle, right };

struct Lettering {
  double size = 9;
  bool bold = false;
  Side side = Side::left;  ///< of its box, where the text stands
  Ink ink{0.13, 0.15, 0.18};
};

class Canvas {
 public:
  /// `pixels` of a PNG lie along a point. Throws Error (invalid_argument) for a page of more than 30000
  /// pixels or points along a side, out_of_memory, and internal where Cairo fails.
  Canvas(PictureFormat format, double width, double height, double pixels = 2);
  ~Canvas();
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;

  void fill(const Box& box, const Ink& ink);
  void outline(const Box& box, const Ink& ink, double thickness);
  void line(double from_x, double from_y, double to_x, double to_y, const Ink& ink, double thickness);
  /// One line of printable text, in the middle of the box's height; what is too wide ends in "…".
  void text(const Box& box, std::string_view text, const Lettering& lettering);
  /// The same, read from bottom to top, and beginning (Side::left) at the bottom.
  void text_upwards(const Box& box, std::string_view text, const Lettering& lettering);
  [[nodiscard]] double text_width(std::string_view text, const Lettering& lettering);
  /// A picture of rows x columns inks, row by row, stretched over the box without blur.
  void image(const Box& box, std::span<const Ink> inks, std::int64_t rows, std::int64_t columns);

  /// The file's bytes. Of the same drawings in a process, with the same fonts, they are the same. Nothing can
  /// be drawn any more.
  [[nodiscard]] std::string finish();

 private:
  struct Page;
  std::unique_ptr<Page> page_;
};

}  // namespace heed::cli
