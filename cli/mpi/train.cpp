// heed train over ranks: all ranks train together; rank 0 writes the folder and prints.
#include "train/trained_by.hpp"

#include "heed/distributed/train.hpp"
#include "mpi/commands.hpp"

namespace heed::cli {

Command add_train_over(const Session& session, CLI::App& heed) {
  return add_train_with(heed, {.ranks = session.comm().size(),
                               .is_first = session.comm().rank() == 0,
                               .threads = session.default_threads(),
                               .together = [&session](bool over_sequence) {
                                 return distributed::train_ranks(
                                     session.comm().get(),
                                     over_sequence ? distributed::Over::sequence : distributed::Over::batch);
                               }});
}

}  // namespace heed::cli
