// The circuit drawn over the words: layers upwards, and a line from what wrote to what read it.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "circuit/traced.hpp"
#include "draw/lettering.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr int kNodeWidth = 56, kNodeHeight = 24, kNodeGap = 10, kColumnGap = 26, kRowHeight = 84;
constexpr int kLeft = 76, kTop = 24, kLetterWidth = 9, kMostLetters = 14, kMostText = 400;
constexpr double kThinnest = 1.2, kThickest = 7;

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { --ground: #f6f6f3; --surface: #fff; --ink: #1b1e27; --soft: #565c6b; --line: #d9d9d2; --logit: #274690;
  --value: #2f7d32; --key: #8a2fb0; --query: #b93d06; color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { :root { --ground: #14161c; --surface: #1d2028; --ink: #e9eaf0; --soft: #a3a9b9;
  --line: #31353f; --logit: #9db8ff; --value: #7fd184; --key: #e49bff; --query: #ff9a62; } }
body { margin: 0 auto; max-width: 1480px; padding: 20px 24px; color: var(--ink); background: var(--ground); }
h1 { font-size: 24px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
p { margin: 6px 0; max-width: 90ch; color: var(--soft); overflow-wrap: anywhere; }
.scroll { overflow-x: auto; background: var(--surface); border: 1px solid var(--line); border-radius: 10px; margin: 14px 0; }
svg { display: block; margin: 0 auto; font: 13px system-ui, sans-serif; }
svg text { fill: var(--ink); text-anchor: middle; dominant-baseline: central; }
svg text.layer { fill: var(--soft); text-anchor: start; font-size: 12px; }
svg line { stroke: var(--line); }
svg rect { fill: var(--surface); stroke: var(--soft); }
svg .word rect { stroke: none; fill: var(--ground); }
svg rect.column { stroke: none; fill: var(--ground); opacity: .45; }
svg path { fill: none; opacity: .75; }
svg path.logit { stroke: var(--logit); } svg path.value { stroke: var(--value); }
svg path.key { stroke: var(--key); } svg path.query { stroke: var(--query); }
svg path.less { stroke-dasharray: 7 5; }
svg.chosen path:not(.on) { opacity: .08; }
svg g { outline: none; } svg g:focus-visible rect { stroke: var(--logit); stroke-width: 2.5; }
.into b { font-weight: 600; margin-right: 16px; } .into .logit { color: var(--logit); } .into .value { color: var(--value); }
.into .key { color: var(--key); } .into .query { color: var(--query); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 2px 18px 2px 0; } th { color: var(--soft); font-weight: 500; } td.n, th.n { text-align: right; }
td { vertical-align: top; } td:not(.n) { min-width: 11em; overflow-wrap: anywhere; }
@media print {
  @page { margin: 10mm; }
  body { padding: 0; background: #fff; } .scroll { overflow: visible; border: 0; break-inside: avoid; }
  .reads { break-inside: auto; } svg { max-width: 100%; height: auto; } td:not(.n) { min-width: 0; }
}
</style>
)";

constexpr const char* kScript = R"(<script>
const drawing = document.querySelector("svg");
const scroll = drawing.parentElement;
const logit = drawing.querySelector("[data-node^=logit] rect").getBBox();
scroll.scrollLeft = logit.x + logit.width / 2 - scroll.clientWidth / 2;  // where the drawing is wider than the window
for (const node of drawing.querySelectorAll("[data-node]")) {
  for (const begin of ["pointerenter", "focus"]) node.addEventListener(begin, () => {
    drawing.classList.add("chosen");
    for (const line of drawing.querySelectorAll("path"))
      line.classList.toggle("on", line.dataset.from === node.dataset.node || line.dataset.to === node.dataset.node);
  });
  for (const end of ["pointerleave", "blur"]) node.addEventListener(end, () => drawing.classList.remove("chosen"));
}
</script>
)";

std::string escaped(const std::string& text) {
  std::string made;
  for (const char c : text) {
    const std::string_view special = "&<>\"";
    constexpr const char* kNames[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    const std::size_t at = special.find(c);
    made += at == std::string_view::npos ? std::string(1, c) : kNames[at];
  }
  return made;
}

// A writer or reader at a place. Row -1 holds the words; the row behind the last layer holds the logit.
struct Node {
  std::int64_t row = -1, place = 0;
  std::string name;
  friend bool operator<(const Node& a, const Node& b) {
    return std::tie(a.row, a.place, a.name) < std::tie(b.row, b.place, b.name);
  }
};

Node writer_node(const CircuitEdge& edge) {
  const bool in_layer =
      edge.writer.kind == StreamPart::Kind::head || edge.writer.kind == StreamPart::Kind::mlp;
  return {in_layer ? edge.writer.layer : -1, edge.place, to_string(edge.writer)};
}

class Drawing {
 public:
  explicit Drawing(const Traced& traced) : traced_(traced), last_(traced.model.info().layers) {
    const Node logit{last_, traced.circuit.row, "logit"};
    for (const CircuitEdge& edge : traced.circuit.edges) {
      const Node from = writer_node(edge);
      const Node to = edge.into == EdgeInto::logit
                          ? logit
                          : Node{edge.reader.layer, edge.reader_row, to_string(edge.reader)};
      lines_.push_back({from, to, &edge});
      nodes_.insert({from, to});
      largest_ = std::max(largest_, std::abs(edge.share));
    }
    nodes_.insert(logit);
    for (const Node& node : std::set<Node>(nodes_)) nodes_.insert({-1, node.place, "token"});
    place_rows();
    place_columns();
  }

  std::string svg() {
    out_ << "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"the drawing\"><svg width=\""
         << width_ << "\" height=\"" << height_ << "\" viewBox=\"0 0 " << width_ << ' ' << height_
         << "\" role=\"group\" aria-label=\"The circuit, drawn over the words\">\n";
    for (const auto& [x, width] : columns_)
      out_ << "<rect class=\"column\" x=\"" << x << "\" y=\"8\" width=\"" << width << "\" height=\""
           << height_ - 16 << "\" rx=\"8\"/>\n";
    for (const auto& [row, y] : rows_) {
      out_ << "<line x1=\"" << kLeft - 8 << "\" x2=\"" << width_ << "\" y1=\"" << y << "\" y2=\"" << y
           << "\"/>"
           << "<text class=\"layer\" x=\"10\" y=\"" << y << "\">"
           << (row < 0        ? "words"
               : row == last_ ? "logit"
                              : "layer " + std::to_string(row))
           << "</text>\n";
    }
    for (const Line& line : lines_) draw(line);
    for (const Node& node : nodes_) draw(node);
    out_ << "</svg></div>\n";
    return out_.str();
  }

 private:
  struct Line {
    Node from, to;
    const CircuitEdge* edge;
  };

  void place_rows() {
    std::set<std::int64_t> rows;
    for (const Node& node : nodes_) rows.insert(node.row);
    height_ = kTop + static_cast<int>(rows.size()) * kRowHeight;
    int y = height_ - kRowHeight / 2;
    for (const std::int64_t row : rows) {
      rows_[row] = y;
      y -= kRowHeight;
    }
  }

  // A column is as wide as its word, or as the most nodes that stand side by side in it.
  void place_columns() {
    std::map<std::int64_t, std::map<std::int64_t, std::vector<const Node*>>> cells;  // by place, then row
    for (const Node& node : nodes_) cells[node.place][node.row].push_back(&node);
    int x = kLeft;
    for (const auto& [place, rows] : cells) {
      int width = 0;
      for (const auto& [row, nodes] : rows) {
        int whole = -kNodeGap;
        for (const Node* node : nodes) whole += width_of(*node) + kNodeGap;
        width = std::max(width, whole);
      }
      for (const auto& [row, nodes] : rows) {
        int whole = -kNodeGap;
        for (const Node* node : nodes) whole += width_of(*node) + kNodeGap;
        int at = x + (width - whole) / 2;
        for (const Node* node : nodes) {
          centres_[*node] = at + width_of(*node) / 2;
          at += width_of(*node) + kNodeGap;
        }
      }
      columns_.emplace_back(x - kNodeGap / 2, width + kNodeGap);
      x += width + kColumnGap;
    }
    width_ = x;
  }

  [[nodiscard]] std::string label_of(const Node& node) const {
    if (node.name == "logit") return shortened(traced_.token_shown(traced_.circuit.token), kMostLetters);
    if (node.row < 0 && node.name == "token") return shortened(traced_.word(node.place), kMostLetters + 5);
    return node.name;
  }
  [[nodiscard]] std::string spoken(const Node& node) const {
    if (node.name == "logit") return "logit of " + traced_.token_shown(traced_.circuit.token);
    return node.name + " at " + traced_.word(node.place);
  }
  [[nodiscard]] int width_of(const Node& node) const {
    return std::max(kNodeWidth, display_width(label_of(node)) * kLetterWidth + 14);
  }
  [[nodiscard]] std::string id_of(const Node& node) const {
    return node.name + "@" + std::to_string(node.place);
  }

  void draw(const Line& line) {
    const int x1 = centres_.at(line.from), x2 = centres_.at(line.to);
    const int y1 = rows_.at(line.from.row) - kNodeHeight / 2, y2 = rows_.at(line.to.row) + kNodeHeight / 2;
    const int bend = std::max((y1 - y2) / 2, 20);
    const CircuitEdge& edge = *line.edge;
    out_ << "<path class=\"" << name_of(edge.into) << (edge.share < 0 ? " less" : "") << "\" data-from=\""
         << escaped(id_of(line.from)) << "\" data-to=\"" << escaped(id_of(line.to)) << "\" stroke-width=\""
         << fixed(kThinnest + (kThickest - kThinnest) * std::abs(edge.share) / largest_, 1) << "\" d=\"M"
         << x1 << ' ' << y1 << " C" << x1 << ' ' << y1 - bend << ' ' << x2 << ' ' << y2 + bend << ' ' << x2
         << ' ' << y2 << "\"><title>" << escaped(writer_text(traced_, edge)) << " → "
         << escaped(reader_text(traced_, edge)) << ": share " << signed_fixed(edge.share, 3);
    if (!std::isnan(edge.patched)) out_ << ", patched " << signed_fixed(edge.patched, 3);
    out_ << "</title></path>\n";
  }

  void draw(const Node& node) {
    const int width = width_of(node), x = centres_.at(node), y = rows_.at(node.row);
    const bool is_word = node.row < 0 && node.name == "token";
    out_ << "<g" << (is_word ? " class=\"word\"" : "") << " data-node=\"" << escaped(id_of(node))
         << "\" tabindex=\"0\" role=\"img\" aria-label=\"" << escaped(spoken(node)) << "\"><rect x=\""
         << x - width / 2 << "\" y=\"" << y - kNodeHeight / 2 << "\" width=\"" << width << "\" height=\""
         << kNodeHeight << "\" rx=\"" << kNodeHeight / 2 << "\"/><text x=\"" << x << "\" y=\"" << y << "\">"
         << escaped(label_of(node)) << "</text></g>\n";
  }

  const Traced& traced_;
  std::int64_t last_;
  std::vector<Line> lines_;
  std::set<Node> nodes_;
  std::map<std::int64_t, int> rows_;          // y of each row
  std::map<Node, int> centres_;               // x of each node
  std::vector<std::pair<int, int>> columns_;  // x and width of each
  double largest_ = 0;
  int width_ = 0, height_ = 0;
  std::ostringstream out_;
};

void write_table(std::ostream& out, const Traced& traced) {
  out << "<table><thead><tr><th class=\"n\">share</th><th class=\"n\">patched</th><th>what "
         "wrote</th><th>read as</th>"
         "</tr></thead><tbody>\n";
  for (const CircuitEdge& edge : traced.circuit.edges)
    out << "<tr><td class=\"n\">" << signed_fixed(edge.share, 3) << "</td><td class=\"n\">"
        << signed_fixed(edge.patched, 3) << "</td><td>" << escaped(writer_text(traced, edge)) << "</td><td>"
        << escaped(reader_text(traced, edge)) << "</td></tr>\n";
  out << "</tbody></table>\n";
}

}  // namespace

std::string circuit_page(Traced traced, const std::string& given_title) {
  traced.on_page = true;
  std::ostringstream out;
  const std::string about = escaped(traced.title());
  const std::string title = given_title.empty() ? about : escaped(printable(given_title));
  out << kHead << "<title>" << title << "</title></head><body><main>\n<h1>" << title << "</h1>\n<p>"
      << (given_title.empty() ? "" : about + "<br>") << escaped(text_of(traced.tokens.shown, kMostText))
      << "</p>\n<p>Where the logit comes from: each line is a read, as thick as its share; a dashed one "
         "takes away. Point at a head, or go to it with the Tab key, to see its lines alone.</p>\n"
      << "<p class=\"into\">Read as <b class=\"logit\">logit</b><b class=\"value\">value</b><b "
         "class=\"key\">key</b>"
         "<b class=\"query\">query</b></p>\n"
      << Drawing(traced).svg();
  if (!traced.circuit.denied.empty())
    out << "<p>Patching denies " << counted(std::ssize(traced.circuit.denied), "read")
        << " with shares as large: the logit hardly falls without them. They are not drawn.</p>\n";
  out << "<div class=\"scroll reads\" tabindex=\"0\" role=\"region\" aria-label=\"the reads\" "
         "style=\"padding: 8px 14px\">\n";
  write_table(out, traced);
  out << "</div>\n</main>\n" << kScript << "</body></html>\n";
  return out.str();
}

}  // namespace heed::cli
