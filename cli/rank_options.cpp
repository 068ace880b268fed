#include "rank_options.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "command.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using Kind = RankOptions::Kind;

// The names of all kinds except by_mask.
constexpr std::array<std::string_view, 3> kShardings = {"contiguous", "zigzag", "striped"};

void parse_sharding(const std::string& text, RankOptions& options) {
  const std::size_t colon = text.find(':');
  const auto* const found = std::ranges::find(kShardings, text.substr(0, colon));
  const std::optional<std::int64_t> stripe =
      colon == std::string::npos ? options.stripe : whole_number(text.substr(colon + 1));
  const auto kind = static_cast<Kind>(1 + (found - kShardings.begin()));
  if (found == kShardings.end() || !stripe || *stripe < 1 ||
      (colon != std::string::npos && kind != Kind::striped))
    refuse_value("--sharding", text, "contiguous, zigzag, striped or striped:N (N positions, 1 or more)");
  options.sharding = kind;
  options.stripe = *stripe;
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
           "refuse calls whose bits may differ from those of one process (docs/distributed.md), such as a "
           "decay, or ranks with different instruction sets");
}

void refuse_rank_options_alone(const CLI::App& app, std::initializer_list<const char*> names) {
  if (started_by_mpirun()) return;
  for (const char* name : names)
    if (given(app, name))
      refuse_usage(
          name, " is given to a single process; several ranks are expected, as started by mpirun -n 4 heed ",
          "…");
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
  const Kind kind = kind_of(options, causal);
  const std::string name(kShardings[static_cast<std::size_t>(kind) - 1]);
  return kind == Kind::striped ? name + ":" + std::to_string(options.stripe) : name;
}

namespace {

std::optional<std::int64_t> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : whole_number(value);
}

}  // namespace

std::optional<StartedRank> started_by_mpirun() {
  constexpr std::array<std::pair<const char*, const char*>, 2> kNames = {
      {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}}};
  for (const auto& [size, rank] : kNames) {
    const std::optional<std::int64_t> ranks = variable(size), own = variable(rank);
    if (ranks && own) return StartedRank{static_cast<int>(*own), static_cast<int>(*ranks)};
  }
  return std::nullopt;
}

void become_heed_mpi(char** argv, const StartedRank& started) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "heed-mpi").string();
  if (!error) execv(program.c_str(), argv);
  const std::string reason =
      errno == ENOENT || error ? "this heed was built without MPI: heed-mpi is not beside it (install "
                                 "libopenmpi-dev and build again)"
                               : "'" + program + "' cannot be run: " + std::generic_category().message(errno);
  refuse_usage("mpirun started ", counted(started.ranks, "rank"), ", but ", reason);
}

}  // namespace heed::cli
