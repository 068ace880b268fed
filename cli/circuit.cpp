// heed circuit: the heads and reads through which a predicted token comes about.
#include "heed/model/circuit.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "command.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "given_tokens.hpp"
#include "heed/error.hpp"
#include "heed/model/cause.hpp"
#include "help.hpp"
#include "json.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "standard_streams.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr const char* kCircuitDescription =
    "trace a predicted token back to what the heads read\n"
    "\n"
    "Splits the token's logit into what the parts of the model wrote, follows the largest shares backwards "
    "through the heads, and checks each read by patching: the reader alone runs without it.";

constexpr const char* kCircuitExamples =
    "Examples:\n"
    "  heed circuit --model induction to be or not to be or\n"
    "  heed circuit --model model.gguf --than ' London' 'The capital of France is'\n"
    "  heed circuit --model induction to be or not to be or --dot | dot -Tsvg >be.svg\n";

constexpr int kNumberColumns = 9;
constexpr int kMostColumns = 44;
constexpr std::size_t kDeniedShown = 3;

struct CircuitArguments {
  ModelText text;
  std::string row, token, than;
  CircuitOptions options;
  bool json = false, dot = false;
};

// A text, its circuit, and the names of both.
struct Traced {
  const heed::Model& model;
  ModelTokens tokens;
  Circuit circuit;

  [[nodiscard]] std::string token(std::int64_t id) const {
    try {
      return model.text_of(id, tokens);
    } catch (const Error&) {  // an unembedding row without a token
      return "#" + std::to_string(id);
    }
  }
  [[nodiscard]] std::string word(std::int64_t place) const { return word_with_place(tokens.shown, place); }
};

TensorView ids_of(const ModelTokens& tokens) {
  return {tokens.ids.data(), {static_cast<std::int64_t>(tokens.ids.size())}};
}

// The likeliest token of the row that is shown so, without a space before it; "#58" is token 58.
std::int64_t token_named(const Traced& traced, const char* option, const std::string& name,
                         const CircuitOptions& options) {
  CauseOptions every;
  every.row = options.row;
  every.top = traced.model.info().vocabulary;
  const std::string shown = name.substr(std::min(name.find_first_not_of(' '), name.size() - 1));
  const Lens all = lens(traced.model, ids_of(traced.tokens), every);
  for (const TokenChance& chance : all.layers.back().top)
    if (traced.token(chance.token) == shown) return chance.token;
  const auto number = name[0] == '#' ? whole_number(name.substr(1)) : std::nullopt;
  if (number && *number >= 0 && *number < every.top) return *number;
  throw UsageError(std::string(option) + " is '" + name +
                   "', which is not a token of the model; a token as heed look --lens shows it is expected");
}

// Edges as lines with common columns.
class EdgePrinter {
 public:
  EdgePrinter(const TextOutput& output, const Traced& traced) : output_(output), traced_(traced) {
    std::vector<std::string> writers = {"what wrote"}, readers = {"read as"};
    for (const auto* edges : {&traced.circuit.edges, &traced.circuit.denied})
      for (const CircuitEdge& edge : *edges) {
        writers.push_back(writer_text(edge));
        readers.push_back(reader_text(edge));
      }
    widths_ = {kNumberColumns,
               kNumberColumns,
               2,
               -std::min(widest(writers), kMostColumns),
               2,
               -std::min(widest(readers), kMostColumns)};
  }

  void heading() const {
    output_.stream << bold(in_columns({"share", "patched", "", "what wrote", "", "read as"}, widths_),
                           output_.color)
                   << '\n';
  }

  void edge(const CircuitEdge& edge) const {
    output_.stream << in_columns({signed_fixed(edge.share, 3), signed_fixed(edge.patched, 3), "",
                                  writer_text(edge), "", reader_text(edge)},
                                 widths_);
    if (edge.writer.from >= 0) output_.stream << "  read " << traced_.word(edge.writer.from);
    output_.stream << '\n';
  }

 private:
  [[nodiscard]] std::string writer_text(const CircuitEdge& edge) const {
    return to_string(edge.writer) + " at " + traced_.word(edge.place);
  }
  [[nodiscard]] std::string reader_text(const CircuitEdge& edge) const {
    if (edge.into == EdgeInto::logit) return "the logit";
    return "the " + std::string(name_of(edge.into)) + (edge.into == EdgeInto::query ? " of " : " for ") +
           to_string(edge.reader) + " at " + traced_.word(edge.reader_row);
  }

  const TextOutput& output_;
  const Traced& traced_;
  std::vector<int> widths_;
};

void print_circuit(const TextOutput& output, const Traced& traced) {
  const Circuit& circuit = traced.circuit;
  const auto quoted = [&](std::int64_t id) { return "“" + printable(traced.token(id)) + "”"; };
  output.stream << bold(quoted(circuit.token) + " after " + traced.word(circuit.row) + ": logit " +
                            (circuit.than ? "over that of " + quoted(*circuit.than) + " " : "") +
                            fixed(circuit.logit, 3),
                        output.color)
                << "\n\n";
  const EdgePrinter print(output, traced);
  print.heading();
  for (const CircuitEdge& edge : circuit.edges) print.edge(edge);
  if (circuit.denied.empty()) return;
  output.stream << "\nPatching denies " << counted(static_cast<std::int64_t>(circuit.denied.size()), "read")
                << " with shares as large: the logit hardly falls without them. The largest:\n";
  std::vector<CircuitEdge> denied = circuit.denied;
  std::stable_sort(denied.begin(), denied.end(), [](const CircuitEdge& a, const CircuitEdge& b) {
    return std::abs(a.share) > std::abs(b.share);
  });
  denied.resize(std::min(denied.size(), kDeniedShown));
  for (const CircuitEdge& edge : denied) print.edge(edge);
}

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

// Graphviz: words from left to right, layers upwards.
void print_dot(const Traced& traced) {
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
            << dot_text({traced.token(circuit.token)}) << ", shape=box];\n";
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

void run_circuit(const CLI::App& app, const CircuitArguments& arguments) {
  check_model_text(app, arguments.text);
  if (arguments.json && arguments.dot)
    throw UsageError("--json is given together with --dot; one is expected");
  if (arguments.json || arguments.dot) require_standard_output();
  const heed::Model model = read_model(arguments.text.model);
  Traced traced{model, read_model_text(model, arguments.text), {}};
  CircuitOptions options = arguments.options;
  if (!arguments.row.empty()) {
    const std::vector<std::int64_t> rows = word_places("--row", arguments.row, traced.tokens.shown,
                                                       static_cast<std::int64_t>(traced.tokens.ids.size()));
    if (rows.size() > 1)
      throw UsageError("--row is '" + arguments.row + "', which is " + std::to_string(rows.size()) +
                       " tokens; one is expected (such as " + arguments.row + ":2)");
    options.row = rows.front();
  }
  if (model.info().predicts) {
    if (!arguments.token.empty()) options.token = token_named(traced, "--token", arguments.token, options);
    if (!arguments.than.empty()) options.than = token_named(traced, "--than", arguments.than, options);
  }
  traced.circuit = find_circuit(model, ids_of(traced.tokens), options);
  if (arguments.json) return print_circuit_json(traced);
  if (arguments.dot) return print_dot(traced);
  print_circuit(standard_output(), traced);
}

}  // namespace

Command add_circuit(CLI::App& heed) {
  CLI::App* app = add_command(heed, "circuit", kCircuitDescription);
  const auto arguments = std::make_shared<CircuitArguments>();
  add_model_text(*app, arguments->text);
  begin_group(*app, "Question");
  add_text(*app, "--row", "WORD", arguments->row, "trace what follows this word (default: the last)");
  add_text(*app, "--token", "TOKEN", arguments->token, "trace this token (default: the likeliest)");
  add_text(*app, "--than", "TOKEN", arguments->than,
           "trace the difference from this other token's logit: why one and not the other");
  begin_group(*app, "Results");
  add_integer(*app, "--edges", {1, 1000}, arguments->options.edges, "show at most N reads (default 30)");
  add_flag(
      *app, "--no-patch", [arguments] { arguments->options.patch = false; },
      "do not run the model again for each read");
  add_flag(*app, "--json", arguments->json, "print one JSON object instead");
  add_flag(*app, "--dot", arguments->dot, "print a graph for Graphviz instead");
  finish_help(*app, {"--model DIR WORDS [options]"}, kCircuitExamples);
  return {app, [app, arguments] { run_circuit(*app, *arguments); }};
}

}  // namespace heed::cli
