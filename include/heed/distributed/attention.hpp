// Attention over a sequence that is split across the ranks of an MPI communicator (libheed_mpi;
// docs/distributed.md).
//
// Every rank makes the same call with its own rows of query and its own keys and values. Row results stay
// with the rows, key results with the keys; the map is on every rank. Positions are global: causality,
// windows, masks, dropout and indices of keys refer to the whole call. A result has the same bits as
// attention() on the whole call, on one machine with the same instruction set, for every number of ranks,
// layout and scheme. Choice::deterministic names the exceptions.
//
// A call that is wrong on one rank throws on all, before any tensor is sent. A rank that fails later, by
// running out of memory, throws alone while the others wait for it; end them with MPI_Abort.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <optional>

#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/distributed/plan.hpp"
#include "heed/distributed/scheme.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed::distributed {

/// The parts of the call on each rank of the communicator.
struct Layout {
  Sharding query;  ///< query rows, of Lq
  Sharding key;    ///< rows of key and value, of Lk
  /// Batch entries and heads may be split too: each communicator of a grid then has some of them. The whole
  /// call has `batch` entries and `heads` query heads (0: as many as query). This communicator's start at
  /// batch_begin and head_begin.
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t batch_begin = 0;
  std::int64_t head_begin = 0;
};

/// How to compute; must be the same on all ranks.
struct Choice {
  Scheme scheme = Scheme::automatic;
  /// Refuses calls that may differ in bits from a single process (docs/distributed.md): ranks with different
  /// instruction sets; gradients of a bias or of sinks that heads or batch entries share, whose sums over
  /// ranks round in another order; keys of lists that ranks do not gather; a decay.
  bool deterministic = false;
  /// Machine data for Scheme::automatic; default: assumed_machines().
  std::optional<Machines> machines{};
};

/// How a call was run.
struct Run : AttentionRun {
  Scheme scheme = Scheme::gather;
  std::int64_t bytes_sent = 0;  ///< bytes that this rank sent
};

/// The results of this rank's rows, with the scheme that computed them.
struct Result : AttentionResult {
  Scheme scheme = Scheme::gather;
  std::int64_t bytes_sent = 0;  ///< bytes that this rank sent
};

/// The gradients of this rank's rows, with the scheme that computed them.
struct Gradients : AttentionGradients {
  Scheme scheme = Scheme::gather;
  std::int64_t bytes_sent = 0;  ///< bytes that this rank sent
};

/// Runs attention() on query [B, H, rows of this rank, D], key [B, Hkv, keys of this rank, D], value [B, Hkv,
/// keys of this rank, Dv]. Rows and keys are in ascending order of their positions. mask and bias have this
/// rank's rows and all keys. decay has all positions. kv_lengths, segments and masks in O(L) memory describe
/// the whole call. weights and scores are [B, H, rows of this rank, Lk]. Throws Error (invalid_argument) on
/// all ranks if the call is wrong on one, if ranks disagree about it, or if the scheme cannot give a result.
/// A mask or bias with this rank's rows is not compared among ranks, and neither is the code of compiled
/// functions.
/// MPI must be initialised. Only one thread at a time may call with ranks of the same process.
[[nodiscard]] HEED_API Result attention(MPI_Comm comm, const TensorView& query, const TensorView& key,
                                        const TensorView& value, const Layout& layout,
                                        const AttentionOptions& options = {}, const Choice& choice = {});

/// Writes the results into caller memory, like attention_into(). All ranks give views for the same results.
HEED_API Run attention_into(MPI_Comm comm, const TensorView& query, const TensorView& key,
                            const TensorView& value, const Layout& layout, const AttentionOptions& options,
                            const AttentionOutputs& outputs, const Choice& choice = {});

/// Computes gradients. `inputs` are this rank's rows and keys of the whole call; `output` and `lse` are
/// results of attention(). Gradients by query, key and value are on the rank of their rows. Gradients by
/// bias, sinks and decay: entries of this rank's rows alone are on this rank; shared entries are summed over
/// all ranks, on every rank. Throws as attention() does.
[[nodiscard]] HEED_API Gradients attention_backward(MPI_Comm comm, const AttentionBackwardInputs& inputs,
                                                    const Layout& layout,
                                                    const AttentionOptions& options = {},
                                                    const GradientRequest& request = {},
                                                    const Choice& choice = {});

/// Writes the gradients into caller memory. All ranks give views for the same gradients.
HEED_API Run attention_backward_into(MPI_Comm comm, const AttentionBackwardInputs& inputs,
                                     const Layout& layout, const AttentionOptions& options,
                                     const AttentionGradientViews& gradients, const Choice& choice = {});

}  // namespace heed::distributed
