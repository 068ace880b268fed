#include "circuit/traced.hpp"

#include <algorithm>

#include "command.hpp"
#include "heed/error.hpp"
#include "heed/model/cause.hpp"
#include "options.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {

TensorView Traced::ids() const { return {tokens.ids.data(), {static_cast<std::int64_t>(tokens.ids.size())}}; }

std::string Traced::token(std::int64_t id) const {
  try {
    return model.text_of(id, tokens);
  } catch (const Error&) {  // an unembedding row without a token
    return "#" + std::to_string(id);
  }
}

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

std::int64_t token_named(const Traced& traced, const char* option, const std::string& name,
                         const CircuitOptions& options) {
  CauseOptions every;
  every.row = options.row;
  every.top = traced.model.info().vocabulary;
  const std::string shown = name.substr(std::min(name.find_first_not_of(' '), name.size() - 1));
  const Lens all = lens(traced.model, traced.ids(), every);
  for (const TokenChance& chance : all.layers.back().top)
    if (traced.token(chance.token) == shown) return chance.token;
  const auto number = name[0] == '#' ? whole_number(name.substr(1)) : std::nullopt;
  if (number && *number >= 0 && *number < every.top) return *number;
  refuse_usage(option, " is '", name,
               "', which is not a token of the model; a token as heed look --lens shows it is expected");
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
