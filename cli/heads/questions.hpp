// The questions of `heed heads`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "given_tokens.hpp"
#include "heed/attention/eviction.hpp"
#include "heed/model/model.hpp"

namespace heed::cli {

struct HeadsArguments {
  ModelText text;  ///< --keep
  std::string text_file;
  bool compose = false;
  std::string lines;  ///< a file with one text a line
  std::string head;
  std::string keep;  ///< SINKS+WINDOW
  double lost = 0.05;
  std::string save;
  std::int64_t top = 10;
  bool json = false;
};

/// Lists the pairs of heads whose weights fit best.
void answer_composition(const heed::Model& model, const HeadsArguments& arguments);
/// Shows where heads move most, over many texts.
void answer_examples(const heed::Model& model, const HeadsArguments& arguments,
                     const std::optional<ModelHead>& head);
/// Says how much heads lose if their caches keep the first and the last keys alone. `policy` comes from
/// policy_in().
void answer_kept(const heed::Model& model, const HeadsArguments& arguments, const EvictionPolicy& policy);
/// The policy that "4+64" names: four first keys and 64 last ones. Throws UsageError for another text.
[[nodiscard]] EvictionPolicy policy_in(const std::string& keep);

}  // namespace heed::cli
