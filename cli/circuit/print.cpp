#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>
#include <vector>

#include "circuit/traced.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "json.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kNumberColumns = 9;
constexpr int kMostColumns = 44;
constexpr std::size_t kDeniedShown = 3;

// Edges as lines with common columns.
class EdgePrinter {
 public:
  EdgePrinter(const TextOutput& output, const Traced& traced) : output_(output), traced_(traced) {
    std::vector<std::string> writers = {"what wrote"}, readers = {"read as"}, reads;
    for (const auto* edges : {&traced.circuit.edges, &traced.circuit.denied})
      for (const CircuitEdge& edge : *edges) {
        writers.push_back(writer_text(traced, edge));
        readers.push_back(reader_text(traced, edge));
        reads.push_back(read_text(edge));
      }
    widths_ = {kNumberColumns,
               kNumberColumns,
               2,
               -std::min(widest(writers), kMostColumns),
               2,
               -std::min(widest(readers), kMostColumns),
               -std::max(widest(reads), 1)};
  }

  void heading() const {
    output_.stream << bold(line_of({"share", "patched", "", "what wrote", "", "read as"}, widths_),
                           output_.color)
                   << '\n';
  }

  void edge(const CircuitEdge& edge) const {
    output_.stream << line_of({signed_fixed(edge.share, 3), signed_fixed(edge.patched, 3), "",
                               writer_text(traced_, edge), "", reader_text(traced_, edge), read_text(edge)},
                              widths_)
                   << '\n';
  }

 private:
  // The key that the writer read, if it is a head.
  [[nodiscard]] std::string read_text(const CircuitEdge& edge) const {
    return edge.writer.from < 0 ? "" : "  read " + traced_.word(edge.writer.from);
  }

  const TextOutput& output_;
  const Traced& traced_;
  std::vector<int> widths_;
};

Json edges_json(const std::vector<CircuitEdge>& edges) {
  Json list = Json::array();
  for (const CircuitEdge& edge : edges) {
    Json one = {{"writer", to_string(edge.writer)}, {"place", edge.place}, {"into", name_of(edge.into)}};
    if (edge.into != EdgeInto::logit)
      one.update({{"reader", to_string(edge.reader)}, {"reader_row", edge.reader_row}});
    one["share"] = edge.share;
    one["patched"] = std::isnan(edge.patched) ? Json(nullptr) : Json(edge.patched);
    if (edge.writer.from >= 0) one.update({{"read", edge.writer.from}, {"weight", edge.writer.from_weight}});
    list.push_back(std::move(one));
  }
  return list;
}

// Lines of a label of a DOT file, quoted.
std::string dot_text(const std::vector<std::string>& lines) {
  std::string quoted = "\"";
  for (const std::string& line : lines) {
    if (quoted.size() > 1) quoted += "\\n";
    for (const char c : printable(line)) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace

void print_circuit(const TextOutput& output, const Traced& traced) {
  const Circuit& circuit = traced.circuit;
  output.stream << bold(traced.title(), output.color) << "\n\n";
  const EdgePrinter print(output, traced);
  print.heading();
  for (const CircuitEdge& edge : circuit.edges) print.edge(edge);
  if (circuit.denied.empty()) return;
  output.stream << "\nPatching denies " << counted(static_cast<std::int64_t>(circuit.denied.size()), "read")
                << " with shares as large: the logit hardly falls without them. The largest:\n";
  std::vector<CircuitEdge> denied = circuit.denied;
  std::ranges::stable_sort(denied, [](const CircuitEdge& a, const CircuitEdge& b) {
    return std::abs(a.share) > std::abs(b.share);
  });
  denied.resize(std::min(denied.size(), kDeniedShown));
  for (const CircuitEdge& edge : denied) print.edge(edge);
}

void print_circuit_json(const Traced& traced) {
  const Circuit& circuit = traced.circuit;
  Json json = {
      {"tokens", traced.tokens.shown}, {"row", circuit.row},     {"token", traced.token(circuit.token)},
      {"id", circuit.token},           {"logit", circuit.logit}, {"threshold", circuit.threshold}};
  if (circuit.than) json["than"] = {{"token", traced.token(*circuit.than)}, {"id", *circuit.than}};
  json["edges"] = edges_json(circuit.edges);
  json["denied"] = edges_json(circuit.denied);
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

void print_circuit_dot(const Traced& traced) {
  const Circuit& circuit = traced.circuit;
  std::set<std::string> nodes;
  const auto node = [&](const std::string& name, std::int64_t place, const char* shape) {
    const std::string id = dot_text({name + " @ " + std::to_string(place)});
    if (nodes.insert(id).second)
      std::cout << "  " << id << " [label=" << dot_text({name, traced.word(place)}) << ", shape=" << shape
                << "];\n";
    return id;
  };
  std::cout << "digraph circuit {\n  rankdir=BT;\n  \"logit\" [label="
            << dot_text({traced.token_shown(circuit.token)}) << ", shape=box];\n";
  for (const CircuitEdge& edge : circuit.edges) {
    const std::string from = node(to_string(edge.writer), edge.place,
                                  edge.writer.kind == StreamPart::Kind::head ? "ellipse" : "plaintext");
    const std::string to =
        edge.into == EdgeInto::logit ? "\"logit\"" : node(to_string(edge.reader), edge.reader_row, "ellipse");
    std::cout << "  " << from << " -> " << to << " [label="
              << dot_text({(edge.into == EdgeInto::logit ? "" : std::string(name_of(edge.into)) + " ") +
                           signed_fixed(std::isnan(edge.patched) ? edge.share : edge.patched, 3)})
              << (edge.share < 0 ? ", style=dashed" : "") << "];\n";
  }
  std::cout << "}\n";
}

}  // namespace heed::cli
