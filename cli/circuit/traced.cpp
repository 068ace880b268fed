#include "circuit/traced.hpp"

#include "text.hpp"

namespace heed::cli {

TensorView Traced::ids() const { return {tokens.ids.data(), {static_cast<std::int64_t>(tokens.ids.size())}}; }

std::string Traced::token(std::int64_t id) const { return model.text_of(id, tokens); }

std::string Traced::token_shown(std::int64_t id) const {
  const std::string shown = token_text(token(id));
  return on_page ? isolated(shown) : shown;
}

std::string Traced::word(std::int64_t place) const {
  const std::string word = token_text(tokens.shown[static_cast<std::size_t>(place)]);
  return (on_page ? isolated(word) : word) + " (" + std::to_string(place) + ")";
}

std::string Traced::title() const {
  const auto quoted = [&](std::int64_t id) {
    const bool is_white = token(id).find_first_not_of(" \t\r\n") == std::string::npos;
    return is_white ? token_shown(id) : "“" + token_shown(id) + "”";
  };
  return quoted(circuit.token) + " after " + word(circuit.row) + ": logit " +
         (circuit.than ? "over that of " + quoted(*circuit.than) + " " : "") + fixed(circuit.logit, 3);
}

std::string writer_text(const Traced& traced, const CircuitEdge& edge) {
  return to_string(edge.writer) + " at " + traced.word(edge.place);
}

std::string reader_text(const Traced& traced, const CircuitEdge& edge) {
  if (edge.into == EdgeInto::logit) return "the logit";
  return "the " + std::string(name_of(edge.into)) + (edge.into == EdgeInto::query ? " of " : " for ") +
         to_string(edge.reader) + " at " + traced.word(edge.reader_row);
}

}  // namespace heed::cli
