// The command line of `heed look`: the question that it asks, and the options of each.
#pragma once

#include <functional>

#include "command.hpp"
#include "look/cause.hpp"
#include "look/heads.hpp"
#include "look/questions.hpp"
#include "look/subject.hpp"

namespace heed::cli {

enum class LookQuestion {
  heads,  ///< the summary, if no option asks another question
  texts,  ///< the summary of several texts
  rows,
  tile,
  evict,
  cause,
  run,  ///< the calls in a folder
};

struct LookArguments {
  LookQuestion question = LookQuestion::heads;
  LookSource source;
  SharedOptions shared;
  // Only the options of the question are set.
  HeadsQuestion heads;
  RowsQuestion rows;
  TileQuestion tile;
  EvictQuestion evict;
  CauseQuestion cause;
};

void add_look_options(CLI::App& app, LookArguments& arguments);

/// Decides the question, and refuses options that do not belong to it; call it after parsing. Throws
/// UsageError.
void complete_look_arguments(const CLI::App& app, LookArguments& arguments);

/// Runs `look`, which answers the question, on this process or leaves it to another rank (cli/mpi). It may
/// first set how the call is computed.
using LookRunner =
    std::function<void(const CLI::App& app, LookArguments& arguments, const std::function<void()>& look)>;

[[nodiscard]] Command add_look_with(CLI::App& heed, LookRunner run);

}  // namespace heed::cli
