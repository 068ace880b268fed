#include "rank_options.hpp"

#include <optional>

#include "command.hpp"
#include "options.hpp"
#include "ranks.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using Kind = RankOptions::Kind;

void parse_sharding(const std::string& text, RankOptions& options) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const std::optional<std::int64_t> stripe =
      colon == std::string::npos ? options.stripe : whole_number(text.substr(colon + 1));
  if (name == "contiguous" && colon == std::string::npos) {
    options.sharding = Kind::contiguous;
  } else if (name == "zigzag" && colon == std::string::npos) {
    options.sharding = Kind::zigzag;
  } else if (name == "striped" && stripe && *stripe >= 1) {
    options.sharding = Kind::striped;
    options.stripe = *stripe;
  } else {
    refuse_value("--sharding", text, "contiguous, zigzag, striped or striped:N (N positions, 1 or more)");
  }
}

Kind kind_of(const RankOptions& options, bool causal) {
  if (options.sharding != Kind::by_mask) return options.sharding;
  return causal ? Kind::zigzag : Kind::contiguous;
}

}  // namespace

void add_rank_options(CLI::App& app, RankOptions& options) {
  begin_group(app, kRankGroup);
  add_text_option(
      app, "--sharding", "HOW", [&options](const std::string& text) { parse_sharding(text, options); },
      "which rank holds which queries and keys: contiguous (default), zigzag (default with --causal), "
      "striped or striped:N (runs of N positions in turn; N is 192 by default)")
      ->words({"contiguous", "zigzag", "striped"});
  add_choice(
      app, "--scheme", {"automatic", "ring", "gather", "ulysses", "decode"},
      [&options](std::size_t i) { options.scheme = static_cast<distributed::Scheme>(i); },
      "how the ranks compute (docs/distributed.md); automatic chooses the fastest by the cost model (default "
      "automatic)");
  add_flag(app, "--deterministic", options.deterministic,
           "refuse calls whose bits may differ from those of one process: ranks with different instruction "
           "sets, gradients of bias and sinks");
}

void refuse_rank_options_alone(const CLI::App& app, std::initializer_list<const char*> names) {
  if (started_by_mpirun()) return;
  for (const char* name : names)
    if (given(app, name))
      throw UsageError(
          std::string(name) +
          " is given to a single process; several ranks are expected, as started by mpirun -n 4 heed " + "…");
}

Sharding sharding_of(const RankOptions& options, bool causal, std::int64_t length, int ranks) {
  switch (kind_of(options, causal)) {
    case Kind::zigzag:
      return Sharding::zigzag(length, ranks);
    case Kind::striped:
      return Sharding::striped(length, ranks, options.stripe);
    default:
      return Sharding::contiguous(length, ranks);
  }
}

std::string sharding_text(const RankOptions& options, bool causal) {
  switch (kind_of(options, causal)) {
    case Kind::zigzag:
      return "zigzag";
    case Kind::striped:
      return "striped:" + std::to_string(options.stripe);
    default:
      return "contiguous";
  }
}

}  // namespace heed::cli
