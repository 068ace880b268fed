#include "picture/atlas.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "picture/atlas_layout.hpp"
#include "picture/palette.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr double kLeastMapPixels = 96;  // smallest side of a map in a PNG
constexpr double kMaxPixels = 8;        // largest number of PNG pixels per point
constexpr double kWordSize = 6;         // smallest cell for words beside a map
constexpr std::size_t kMaxRectangles = 8000;

// The height of the text above and below a card's maps, in multiples of the font size.
double letter_lines(int maps) { return 1.7 + 1.35 * (maps == 2 ? 3 : 2); }

class AtlasPainter {
 public:
  AtlasPainter(const AtlasPage& page, PictureFormat format)
      : page_(page),
        format_(format),
        maps_(std::ranges::any_of(page.cards, [](const AtlasCard& card) { return card.other.has_value(); })
                  ? 2
                  : 1),
        layout_(atlas_layout({page.in_layers, std::ssize(page.cards), maps_, header()}, letter_lines(maps_))),
        canvas_(new_canvas()) {}

  std::vector<std::string> paint() {
    std::vector<std::string> files;
    for (std::int64_t page = 0; page < layout_.pages; ++page) {
      if (page > 0) begin_page(files);
      paint_header(page);
      for (std::size_t n = 0; n < page_.cards.size(); ++n)
        if (layout_.cards[n].page == page) paint_card(layout_.cards[n].box, page_.cards[n]);
      paint_layer_names(page);
    }
    files.push_back(canvas_->finish());
    return files;
  }

 private:
  [[nodiscard]] double header() const {
    return kAtlasEdge + 46 + 14 * static_cast<double>(page_.about.size());
  }
  [[nodiscard]] double pixels() const { return std::clamp(kLeastMapPixels / layout_.side, 2.0, kMaxPixels); }
  [[nodiscard]] std::unique_ptr<Canvas> new_canvas() const {
    return std::make_unique<Canvas>(format_, layout_.width, layout_.height, pixels());
  }

  // A PDF holds all pages; of other formats each page is a file.
  void begin_page(std::vector<std::string>& files) {
    if (format_ == PictureFormat::pdf) return canvas_->next_page();
    files.push_back(canvas_->finish());
    canvas_ = new_canvas();
  }

  void paint_header(std::int64_t number) {
    const double width = layout_.width - 2 * kAtlasEdge;
    canvas_->text({kAtlasEdge, kAtlasEdge - 8, width - 330, 24}, page_.title + number_of(number),
                  {.size = 19, .bold = true, .ink = kText});
    double y = kAtlasEdge + 18;
    for (const std::string& line : page_.about) {
      canvas_->text({kAtlasEdge, y, width - 330, 13}, line, {.size = 10, .ink = kFaintText});
      y += 14;
    }
    const Box scale{layout_.width - kAtlasEdge - 300, kAtlasEdge + 6, 300, 24};
    const bool masked = std::ranges::any_of(page_.cards, [](const AtlasCard& card) {
      return card.head.map.is_masked() || (card.other && card.other->map.is_masked());
    });
    canvas_->text({scale.x, kAtlasEdge - 9, 300, 13},
                  std::string("ink: the share of a row's weight (square-root scale)") +
                      (masked ? "; sand: masked" : ""),
                  {.size = 8.5, .ink = kFaintText});
    draw_scale(*canvas_, scale, {.ink = ink_of_name("mixed"), .root = true});
    paint_names(y);
  }

  // ", page 2 of 10", if there are several.
  [[nodiscard]] std::string number_of(std::int64_t page) const {
    if (layout_.pages == 1) return "";
    return ", page " + std::to_string(page + 1) + " of " + std::to_string(layout_.pages);
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
    std::ranges::stable_sort(names, std::ranges::greater(), &NameCount::after);
    return names;
  }

  // Prints each head name with its number of heads, in letters of 10 or, to fit one line, fewer points.
  void paint_names(double y) {
    name_line(y, 10 * std::min(1.0, (layout_.width - 2 * kAtlasEdge) / name_line(0, 10, false)), true);
  }

  double name_line(double y, double size, bool painted) {
    const Lettering letters{.size = size, .ink = kText};
    double x = kAtlasEdge;
    for (const NameCount& one : names()) {
      std::string text = one.name + "  " + std::to_string(one.before);
      if (maps_ == 2) text += " ⇒ " + std::to_string(one.after);
      if (painted) canvas_->fill({x, y + 4, 0.9 * size, 0.9 * size}, ink_of_name(one.name));
      if (painted) canvas_->text({x + 1.3 * size, y + 1, 250, 15}, text, letters);
      x += 3.1 * size + canvas_->text_width(text, letters);
    }
    return x - kAtlasEdge;
  }

  void paint_layer_names(std::int64_t page) {
    for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer)
      if (layout_.layers[layer].page == page)
        canvas_->text_upwards(
            layout_.layers[layer].box, page_.layers[layer],
            {.size = std::min(11.0, layout_.side / 4), .side = Side::middle, .ink = kFaintText});
  }

  void paint_card(const Box& box, const AtlasCard& card) {
    const double letters = layout_.letters, line = 1.35 * letters;
    const double half = card.other ? layout_.side + layout_.gap / 2 : box.width;
    canvas_->line(box.x, box.y, box.x + half, box.y, ink_of_name(card.head.name), letters / 5);
    const Lettering bold{.size = letters, .bold = true, .ink = kText};
    canvas_->text({box.x, box.y + 0.2 * letters, box.width, line}, card.label, bold);
    const double label = canvas_->text_width(card.label, bold) + 0.6 * letters;
    paint_name({box.x + label, box.y + 0.2 * letters, half - label, line}, card.head, "");
    if (card.other) {
      canvas_->line(box.x + half, box.y, box.x + box.width, box.y, ink_of_name(card.other->name),
                    letters / 5);
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
      canvas_->text({box.x, y, box.width, line}, text, {.size = letters * 0.92, .ink = kFaintText});
      y += line;
    }
  }

  void paint_name(const Box& box, const AtlasHead& head, const std::string& before) {
    const std::string score = std::isnan(head.score) ? "" : " " + fixed(head.score, 2);
    canvas_->text(box, before + head.name + score, {.size = layout_.letters, .ink = ink_of_name(head.name)});
  }

  [[nodiscard]] static std::vector<std::string> texts_of(const AtlasCard& card) {
    std::string entropy = "entropy " + fixed(card.head.entropy, 2);
    std::string example = card.head.example;
    if (!card.other) return {entropy + " nats", example};
    entropy += " ⇒ " + fixed(card.other->entropy, 2) + " nats";
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
      style.margin = word_margin(*canvas_, map, box.width / cells, most);
      box = {box.x + style.margin, box.y + style.margin, box.width - style.margin, box.height - style.margin};
    }
    draw_map(*canvas_, box, map, style);
  }

  const AtlasPage& page_;
  PictureFormat format_;
  int maps_;  // maps per card
  AtlasLayout layout_;
  std::unique_ptr<Canvas> canvas_;
};

}  // namespace

std::vector<std::string> draw_atlas(const AtlasPage& page, PictureFormat format) {
  return AtlasPainter(page, format).paint();
}

}  // namespace heed::cli
