#include "picture/atlas.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "picture/palette.hpp"

namespace heed::cli {
namespace {

constexpr double kLongSide = 1190.55, kShortSide = 841.89;  // A3
constexpr double kEdge = 30;
constexpr double kLayerNames = 20;  // width of the layer names, left of the grid
constexpr double kMaxGap = 14, kMaxLetters = 10.5;
constexpr double kLeastMapPixels = 96;  // smallest side of a map in a PNG
constexpr double kMaxPixels = 8;        // largest number of PNG pixels per point
constexpr double kWordSize = 6;         // smallest cell for words beside a map
constexpr std::size_t kMaxRectangles = 8000;

std::string decimals(double value, int count) {
  if (std::isnan(value)) return "-";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", count, value);
  return text.data();
}

// The layout of cards on the page, and of maps in a card.
struct Layout {
  double width = 0, height = 0;  // of the page
  std::int64_t columns = 1;
  double step_x = 0, step_y = 0;  // from card to card
  double gap = 0;                 // the part of step_x between cards, and between the two maps of a card
  double card_width = 0;
  double letters = 9;  // font size
  double side = 0;     // side length of a map
};

class AtlasPainter {
 public:
  AtlasPainter(const AtlasPage& page, PictureFormat format)
      : page_(page),
        maps_(std::any_of(page.cards.begin(), page.cards.end(),
                          [](const AtlasCard& card) { return card.other.has_value(); })
                  ? 2
                  : 1),
        layout_(best_layout()),
        canvas_(format, layout_.width, layout_.height, pixels()) {}

  std::string paint() {
    paint_header();
    for (std::size_t n = 0; n < page_.cards.size(); ++n) paint_card(place(n), page_.cards[n]);
    paint_layer_names();
    return canvas_.finish();
  }

 private:
  [[nodiscard]] double header() const { return kEdge + 46 + 14 * static_cast<double>(page_.about.size()); }
  [[nodiscard]] double left() const { return kEdge + (page_.layers.empty() ? 0 : kLayerNames); }

  // The height of the text above and below a card's maps, in multiples of the font size.
  [[nodiscard]] double letter_lines() const { return 1.7 + 1.35 * (maps_ == 2 ? 3 : 2); }

  [[nodiscard]] Layout layout(double width, double height, std::int64_t columns) const {
    Layout made{width, height, columns};
    const auto rows =
        page_.layers.empty() ? (std::ssize(page_.cards) + columns - 1) / columns : std::ssize(page_.layers);
    const double room_x = width - left() - kEdge, room_y = height - kEdge - header();
    made.gap = std::clamp(room_x / static_cast<double>(columns) * 0.1, 1.0, kMaxGap);
    made.step_x = (room_x + made.gap) / static_cast<double>(columns);
    made.card_width = made.step_x - made.gap;
    made.letters = std::clamp(made.card_width / (maps_ == 2 ? 24 : 14), 0.5, kMaxLetters);
    const double letters = letter_lines() * made.letters;
    const double card_height = (room_y + made.gap) / static_cast<double>(rows) - made.gap;
    made.side =
        std::max(1.0, std::min((made.card_width - made.gap * (maps_ - 1)) / maps_, card_height - letters));
    made.step_y = std::min(card_height, 1.25 * (made.side + letters)) + made.gap;
    return made;
  }

  [[nodiscard]] Layout best_layout() const {
    const std::int64_t most = page_.layers.empty()
                                  ? std::ssize(page_.cards)
                                  : *std::max_element(page_.in_layers.begin(), page_.in_layers.end());
    Layout best;
    for (std::int64_t columns = page_.layers.empty() ? 1 : most; columns <= most; ++columns)
      for (const auto& [width, height] : {std::pair(kLongSide, kShortSide), std::pair(kShortSide, kLongSide)})
        if (const Layout one = layout(width, height, columns); one.side > best.side) best = one;
    return best;
  }

  [[nodiscard]] double pixels() const { return std::clamp(kLeastMapPixels / layout_.side, 2.0, kMaxPixels); }

  [[nodiscard]] Box place(std::size_t n) const {
    auto row = static_cast<std::int64_t>(n) / layout_.columns;
    auto column = static_cast<std::int64_t>(n) % layout_.columns;
    if (!page_.layers.empty()) {
      column = static_cast<std::int64_t>(n);
      for (row = 0; column >= page_.in_layers[static_cast<std::size_t>(row)]; ++row)
        column -= page_.in_layers[static_cast<std::size_t>(row)];
    }
    return {left() + static_cast<double>(column) * layout_.step_x,
            header() + static_cast<double>(row) * layout_.step_y, layout_.card_width,
            layout_.step_y - layout_.gap};
  }

  void paint_header() {
    const double width = layout_.width - 2 * kEdge;
    canvas_.text({kEdge, kEdge - 8, width - 330, 24}, page_.title, {.size = 19, .bold = true, .ink = kText});
    double y = kEdge + 18;
    for (const std::string& line : page_.about) {
      canvas_.text({kEdge, y, width - 330, 13}, line, {.size = 10, .ink = kFaintText});
      y += 14;
    }
    const Box scale{layout_.width - kEdge - 300, kEdge + 6, 300, 24};
    canvas_.text({scale.x, kEdge - 9, 300, 13},
                 "ink: the share of a row's weight (square-root scale); sand: masked",
                 {.size = 8.5, .ink = kFaintText});
    draw_scale(canvas_, scale, {.ink = ink_of_name("mixed"), .root = true});
    paint_names(y);
  }

  struct NameCount {
    std::string name;
    int before = 0, after = 0;  ///< number of heads; equal without a second model
  };

  [[nodiscard]] std::vector<NameCount> names() const {
    std::vector<NameCount> names;
    const auto count_of = [&](const std::string& name) -> NameCount& {
      for (NameCount& one : names)
        if (one.name == name) return one;
      return names.emplace_back(NameCount{name});
    };
    for (const AtlasCard& card : page_.cards) {
      ++count_of(card.head.name).before;
      ++count_of(card.other ? card.other->name : card.head.name).after;
    }
    std::stable_sort(names.begin(), names.end(),
                     [](const NameCount& a, const NameCount& b) { return a.after > b.after; });
    return names;
  }

  // Prints each head name with its number of heads.
  void paint_names(double y) {
    double x = kEdge;
    for (const NameCount& one : names()) {
      std::string text = one.name + "  " + std::to_string(one.before);
      if (maps_ == 2) text += " ⇒ " + std::to_string(one.after);
      const Lettering letters{.size = 10, .ink = kText};
      canvas_.fill({x, y + 4, 9, 9}, ink_of_name(one.name));
      canvas_.text({x + 13, y + 1, 250, 15}, text, letters);
      x += 13 + canvas_.text_width(text, letters) + 18;
    }
  }

  void paint_layer_names() {
    for (std::size_t layer = 0; layer < page_.layers.size(); ++layer)
      canvas_.text_upwards(
          {kEdge - 4, header() + static_cast<double>(layer) * layout_.step_y, kLayerNames - 2,
           1.7 * layout_.letters + layout_.side},
          page_.layers[layer],
          {.size = std::min(11.0, layout_.side / 4), .side = Side::middle, .ink = kFaintText});
  }

  void paint_card(const Box& box, const AtlasCard& card) {
    const double letters = layout_.letters, line = 1.35 * letters;
    const double half = card.other ? layout_.side + layout_.gap / 2 : box.width;
    canvas_.line(box.x, box.y, box.x + half, box.y, ink_of_name(card.head.name), letters / 5);
    const Lettering bold{.size = letters, .bold = true, .ink = kText};
    canvas_.text({box.x, box.y + 0.2 * letters, box.width, line}, card.label, bold);
    const double label = canvas_.text_width(card.label, bold) + 0.6 * letters;
    paint_name({box.x + label, box.y + 0.2 * letters, half - label, line}, card.head, "");
    if (card.other) {
      canvas_.line(box.x + half, box.y, box.x + box.width, box.y, ink_of_name(card.other->name), letters / 5);
      paint_name(
          {box.x + half + layout_.gap / 2, box.y + 0.2 * letters, box.width - half - layout_.gap / 2, line},
          *card.other, "⇒  ");
    }
    const double top = box.y + 1.7 * letters;
    paint_map({box.x, top, layout_.side, layout_.side}, card.head);
    if (card.other)
      paint_map({box.x + layout_.side + layout_.gap, top, layout_.side, layout_.side}, *card.other);
    double y = top + layout_.side + 0.2 * letters;
    for (const std::string& text : texts_of(card)) {
      canvas_.text({box.x, y, box.width, line}, text, {.size = letters * 0.92, .ink = kFaintText});
      y += line;
    }
  }

  void paint_name(const Box& box, const AtlasHead& head, const std::string& before) {
    const std::string score = std::isnan(head.score) ? "" : " " + decimals(head.score, 2);
    canvas_.text(box, before + head.name + score, {.size = layout_.letters, .ink = ink_of_name(head.name)});
  }

  [[nodiscard]] static std::vector<std::string> texts_of(const AtlasCard& card) {
    std::string entropy = "entropy " + decimals(card.head.entropy, 2);
    std::string example = card.head.example;
    if (!card.other) return {entropy + " nats", example};
    entropy += " ⇒ " + decimals(card.other->entropy, 2) + " nats";
    if (!card.other->example.empty()) example += "  ⇒  " + card.other->example;
    return {card.note, entropy, example};
  }

  // Draws words beside the map if its cells are large enough to read them.
  void paint_map(Box box, const AtlasHead& head) {
    const HeadMap& map = head.map;
    MapStyle style{.ink = ink_of_name(head.name), .root = true};
    style.as_image =
        page_.cards.size() * map.shares.size() * static_cast<std::size_t>(maps_) > kMaxRectangles;
    const auto cells = static_cast<double>(std::max(map.rows, map.columns));
    const double most = std::min(70.0, box.width / 3);
    if (!map.row_words.empty() && (box.width - most) / cells * 0.8 >= kWordSize) {
      style.words = true;
      style.margin = word_margin(canvas_, map, box.width / cells, most);
      box = {box.x + style.margin, box.y + style.margin, box.width - style.margin, box.height - style.margin};
    }
    draw_map(canvas_, box, map, style);
  }

  const AtlasPage& page_;
  int maps_;  // maps per card
  Layout layout_;
  Canvas canvas_;
};

}  // namespace

std::string draw_atlas(const AtlasPage& page, PictureFormat format) {
  return AtlasPainter(page, format).paint();
}

}  // namespace heed::cli
