#include "picture/atlas_layout.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace heed::cli {
namespace {

constexpr double kLongSide = 1190.55, kShortSide = 841.89;  // A3
constexpr double kLayerNames = 20;                          // width of the strip for layer names
constexpr double kMaxGap = 14, kMaxLetters = 10.5, kLeastLetters = 3.5;
constexpr double kTextShare = 0.45;  // of a card's height at most

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How many cards stand beside and below one another on a page.
struct Arrangement {
  double width = 0, height = 0;
  std::int64_t pages = 1;
  std::int64_t blocks = 1;   // of layers, side by side
  std::int64_t columns = 1;  // of a block
  std::int64_t lines = 1;    // of a layer
  std::int64_t layers = 1;   // below one another on a page; without layers: lines
};

struct Sizes {
  double step_x = 0, step_y = 0, gap = 0, card_width = 0, card_height = 0, letters = 0, side = 0;
};

class LayoutSearch {
 public:
  LayoutSearch(const AtlasGrid& grid, double letter_lines) : grid_(grid), letter_lines_(letter_lines) {}

  // Empty if no number of pages suffices.
  [[nodiscard]] std::optional<Arrangement> best() const {
    const std::int64_t most =
        has_layers() ? std::ssize(grid_.in_layers) : std::max<std::int64_t>(1, grid_.cards);
    for (std::int64_t pages = 1; pages <= most; ++pages)
      if (const auto found = best_of(pages)) return found;
    return std::nullopt;
  }

  [[nodiscard]] Sizes sizes(const Arrangement& a) const {
    const auto columns = static_cast<double>(a.blocks * a.columns),
               rows = static_cast<double>(a.layers * a.lines);
    const double room_x = a.width - 2 * kAtlasEdge - strip() * static_cast<double>(a.blocks);
    const double room_y = a.height - kAtlasEdge - grid_.header;
    Sizes made;
    made.gap = std::clamp(room_x / columns * 0.1, 1.0, kMaxGap);
    made.step_x = (room_x + made.gap) / columns;
    made.card_width = made.step_x - made.gap;
    const double row_gap = std::min(made.gap, room_y / rows * 0.1);
    made.card_height = (room_y + row_gap) / rows - row_gap;
    made.letters = std::min({made.card_width / (grid_.maps == 2 ? 24 : 14),
                             made.card_height * kTextShare / letter_lines_, kMaxLetters});
    made.letters = std::max(made.letters, kLeastLetters);
    const double letters = letter_lines_ * made.letters;
    made.side =
        std::min((made.card_width - made.gap * (grid_.maps - 1)) / grid_.maps, made.card_height - letters);
    made.card_height = std::min(made.card_height, 1.25 * (made.side + letters));
    made.step_y = made.card_height + row_gap;
    return made;
  }

  [[nodiscard]] AtlasLayout placed(const Arrangement& a) const {
    const Sizes size = sizes(a);
    AtlasLayout made{a.width, a.height, a.pages, size.gap, size.letters, size.side, {}, {}};
    if (!has_layers()) {
      for (std::int64_t n = 0; n < grid_.cards; ++n) {
        const std::int64_t line = n / a.columns;
        made.cards.push_back({line / a.layers,
                              {x_of(a, size, 0, n % a.columns), y_of(size, line % a.layers), size.card_width,
                               size.card_height}});
      }
      return made;
    }
    for (std::int64_t layer = 0; layer < std::ssize(grid_.in_layers); ++layer) {
      const std::int64_t on_page = layer % (a.layers * a.blocks), page = layer / (a.layers * a.blocks);
      const std::int64_t block = on_page / a.layers, line = on_page % a.layers * a.lines;
      made.layers.push_back({page,
                             {x_of(a, size, block, 0) - kLayerNames - 4, y_of(size, line), kLayerNames - 2,
                              1.7 * size.letters + size.side}});
      for (std::int64_t n = 0; n < grid_.in_layers[static_cast<std::size_t>(layer)]; ++n)
        made.cards.push_back({page,
                              {x_of(a, size, block, n % a.columns), y_of(size, line + n / a.columns),
                               size.card_width, size.card_height}});
    }
    return made;
  }

 private:
  [[nodiscard]] bool has_layers() const { return !grid_.in_layers.empty(); }
  [[nodiscard]] double strip() const { return has_layers() ? kLayerNames : 0; }

  [[nodiscard]] double x_of(const Arrangement& a, const Sizes& size, std::int64_t block,
                            std::int64_t column) const {
    return kAtlasEdge + strip() * static_cast<double>(block + 1) +
           static_cast<double>(block * a.columns + column) * size.step_x;
  }
  [[nodiscard]] double y_of(const Sizes& size, std::int64_t line) const {
    return grid_.header + static_cast<double>(line) * size.step_y;
  }

  // The arrangement of this many pages with the largest maps, if they are large enough.
  [[nodiscard]] std::optional<Arrangement> best_of(std::int64_t pages) const {
    std::optional<Arrangement> best;
    double side = 0;
    const auto consider = [&](std::int64_t blocks, std::int64_t columns, std::int64_t lines,
                              std::int64_t layers) {
      for (const auto& [width, height] :
           {std::pair(kLongSide, kShortSide), std::pair(kShortSide, kLongSide)}) {
        const Arrangement one{width, height, pages, blocks, columns, lines, layers};
        const Sizes size = sizes(one);
        if (size.side < kLeastMapSide || size.side <= side) continue;
        best = one;
        side = size.side;
      }
    };
    if (!has_layers()) {
      for (std::int64_t columns = 1; columns <= std::max<std::int64_t>(1, grid_.cards); ++columns)
        consider(1, columns, 1, ceil_div(ceil_div(grid_.cards, columns), pages));
      return best;
    }
    const std::int64_t most = *std::ranges::max_element(grid_.in_layers);
    const std::int64_t layers = ceil_div(std::ssize(grid_.in_layers), pages);
    for (std::int64_t columns = 1; columns <= most; ++columns)
      for (std::int64_t blocks = 1; blocks <= layers; ++blocks)
        consider(blocks, columns, ceil_div(most, columns), ceil_div(layers, blocks));
    return best;
  }

  const AtlasGrid& grid_;
  double letter_lines_;
};

}  // namespace

AtlasLayout atlas_layout(const AtlasGrid& grid, double letter_lines) {
  const LayoutSearch search(grid, letter_lines);
  if (const auto found = search.best()) return search.placed(*found);
  AtlasGrid flat = grid;
  flat.in_layers.clear();
  const LayoutSearch without_layers(flat, letter_lines);
  return without_layers.placed(without_layers.best().value_or(Arrangement{kLongSide, kShortSide}));
}

}  // namespace heed::cli
