#include "picture/heads.hpp"

#include <algorithm>
#include <cmath>

#include "picture/palette.hpp"

namespace heed::cli {
namespace {

constexpr double kMargin = 24, kGap = 22, kLine = 12, kLeastWidth = 400;
constexpr double kLargeCell = 27, kSmallCell = 9;  // large enough for a number, and for a word beside it
constexpr double kLeastMap = 96, kLeastSide = 180, kUsualSide = 480;
constexpr double kMostWidth = 1500;   // of a page, while its maps are not too small
constexpr double kMostPixels = 4000;  // of a PNG along a side, at one pixel per point or more
constexpr double kMaxMargin = 110;    // for words
constexpr double kTitle = 20, kScale = 46;

class HeadsPainter {
 public:
  HeadsPainter(const HeadsPicture& picture, PictureFormat format)
      : picture_(picture),
        cells_(
            std::max({picture.heads.front().map.rows, picture.heads.front().map.columns, std::int64_t{1}})),
        columns_(columns_of(static_cast<int>(picture.heads.size()))),
        side_(std::clamp((kMostWidth - 2 * kMargin) / columns_ - kGap, kLeastMap, kUsualSide)),
        cell_(cell_size()),
        margin_(margin()),
        canvas_(format, width(), height(), std::clamp(kMostPixels / std::max(width(), height()), 1.0, 2.0)) {}

  std::string paint() {
    const double inside = width() - 2 * kMargin;
    canvas_.text({kMargin, kMargin - 6, inside, 20}, picture_.title,
                 {.size = 14, .bold = true, .ink = kText});
    for (std::size_t i = 0; i < picture_.about.size(); ++i)
      canvas_.text({kMargin, kMargin + 15 + kLine * static_cast<double>(i), inside, 14}, picture_.about[i],
                   {.size = 9, .ink = kFaintText});
    for (std::size_t n = 0; n < picture_.heads.size(); ++n) paint_head(n);
    return canvas_.finish();
  }

 private:
  // The number of columns near the square root that leaves the fewest places empty.
  static int columns_of(int count) {
    const int root = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
    int best = root;
    for (int columns = root; columns <= root + root / 3 + 1; ++columns)
      if ((columns - count % columns) % columns < (best - count % best) % best) best = columns;
    return best;
  }

  // Few cells are large enough for numbers. More cells are large enough for the words at the margin, if there
  // are any and the maps are few. Else a map is as wide as its place.
  [[nodiscard]] double cell_size() const {
    const auto cells = static_cast<double>(cells_);
    if (cells * kLargeCell <= side_) return std::max(kLargeCell, std::min(kLeastSide, side_) / cells);
    return has_words() ? std::max(kSmallCell, side_ / cells) : side_ / cells;
  }
  [[nodiscard]] bool has_words() const {
    return !picture_.heads.front().map.row_words.empty() &&
           (side_ == kUsualSide || side_ / static_cast<double>(cells_) >= kSmallCell);
  }

  // Measured on a temporary canvas, because the page size depends on the margin.
  [[nodiscard]] double margin() const {
    if (!has_words()) return 0;
    Canvas ruler(PictureFormat::svg, 1, 1);
    return word_margin(ruler, picture_.heads.front().map, cell_, kMaxMargin);
  }

  [[nodiscard]] double map_width() const {
    return cell_ * static_cast<double>(picture_.heads.front().map.columns);
  }
  [[nodiscard]] double map_height() const {
    return cell_ * static_cast<double>(picture_.heads.front().map.rows);
  }
  [[nodiscard]] double card_width() const {
    return std::max(std::min(kLeastSide, side_), margin_ + map_width());
  }
  [[nodiscard]] double card_height() const { return kTitle + margin_ + map_height() + kScale; }
  [[nodiscard]] double header() const { return 48 + kLine * static_cast<double>(picture_.about.size()); }
  [[nodiscard]] double width() const {
    return std::max(kLeastWidth, 2 * kMargin + columns_ * (card_width() + kGap) - kGap);
  }
  [[nodiscard]] double height() const {
    const auto rows = (static_cast<int>(picture_.heads.size()) + columns_ - 1) / columns_;
    return header() + kMargin + rows * card_height();
  }

  void paint_head(std::size_t n) {
    const DrawnHead& head = picture_.heads[n];
    const double x =
        kMargin + static_cast<double>(n % static_cast<std::size_t>(columns_)) * (card_width() + kGap);
    const double y = header() + static_cast<double>(n / static_cast<std::size_t>(columns_)) * card_height();
    MapStyle style{.ink = ink_of_name(head.name), .full = head.map.largest};
    style.numbers = !head.map.bins && cell_ >= kLargeCell;
    style.words = has_words();
    style.margin = margin_;
    style.as_image = style.root = head.map.bins;
    canvas_.text({x, y, card_width(), kTitle - 4}, head.title,
                 {.size = side_ < kLeastSide ? 8.0 : 10.5, .bold = true, .ink = style.ink});
    const Box map{x + margin_, y + kTitle + margin_, map_width(), map_height()};
    draw_map(canvas_, map, head.map, style);
    draw_scale(canvas_, {map.x, map.y + map.height + 6, std::min(160.0, card_width() - margin_), 24}, style);
  }

  const HeadsPicture& picture_;
  std::int64_t cells_;  // cells along the longer side
  int columns_;
  double side_;  // of the place for a map
  double cell_;
  double margin_;
  Canvas canvas_;
};

}  // namespace

std::string draw_heads(const HeadsPicture& picture, PictureFormat format) {
  return HeadsPainter(picture, format).paint();
}

}  // namespace heed::cli
