// A text, a token that a model predicts for it, and the circuit behind the token.
#pragma once

#include <cstdint>
#include <string>

#include "heed/model/circuit.hpp"
#include "heed/model/model.hpp"
#include "heed/model/paths.hpp"
#include "terminal.hpp"

namespace heed::cli {

struct Traced {
  const heed::Model& model;
  ModelTokens tokens;
  Circuit circuit;
  bool on_page = false;  ///< right-to-left words are isolated()

  [[nodiscard]] TensorView ids() const;
  [[nodiscard]] std::string token(std::int64_t id) const;
  /// The same, made visible: token_text().
  [[nodiscard]] std::string token_shown(std::int64_t id) const;
  [[nodiscard]] std::string word(std::int64_t place) const;
  /// "“not” after or (6): logit 15.008".
  [[nodiscard]] std::string title() const;
};

/// "0.3 at not (3)" and "the key for 1.0 at or (6)".
[[nodiscard]] std::string writer_text(const Traced& traced, const CircuitEdge& edge);
[[nodiscard]] std::string reader_text(const Traced& traced, const CircuitEdge& edge);

void print_circuit(const TextOutput& output, const Traced& traced);
void print_circuit_json(const Traced& traced);
/// A graph for Graphviz: words from left to right, layers upwards.
void print_circuit_dot(const Traced& traced);
/// The circuit drawn over the words, in one file of HTML. Without a title, its title says what is traced.
[[nodiscard]] std::string circuit_page(Traced traced, const std::string& given_title);

void print_paths(const TextOutput& output, const Traced& traced, const ModelHead& head,
                 const HeadPaths& paths, std::int64_t top);
void print_paths_json(const Traced& traced, const ModelHead& head, const HeadPaths& paths);

}  // namespace heed::cli
