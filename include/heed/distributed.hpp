// Attention whose sequence is cut over the ranks of an MPI communicator (libheed_mpi; docs/distributed.md).
//
// Every rank makes the same call with its own rows of query and its own keys and values. Results of rows
// are where the rows are, results of keys where the keys are, the map on every rank. Positions are global:
// causality, windows, masks, dropout and indices of keys speak of the whole. A result has the bits that
// attention() gives to the whole on one machine with the same instruction set, for every number of ranks,
// every layout and every scheme.
//
// A call that is wrong on one rank throws on all of them, before any tensor travels. A rank that fails
// later (it runs out of memory) throws alone, and the others wait for it: end them by MPI_Abort.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <optional>

#include "heed/attention.hpp"
#include "heed/backward.hpp"
#include "heed/distributed_plan.hpp"
#include "heed/distributed_scheme.hpp"
#include "heed/export.hpp"
#include "heed/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed::distributed {

/// Which rank of the communicator has which part of the call.
struct Layout {
  Sharding query;  ///< its rows, of Lq
  Sharding key;    ///< keys and values, of Lk
  /// Batch entries and heads may be cut besides: then each communicator of a grid has some of them, the whole
  /// call has `batch` entries and `heads` query heads (0: those of query), and these are from here on.
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t batch_begin = 0;
  std::int64_t head_begin = 0;
};

/// How to compute; the same on all ranks.
struct Choice {
  Scheme scheme = Scheme::automatic;
  /// Refuses what need not have the bits of one process: ranks with different instruction sets, and gradients
  /// of bias and sinks, whose sums over ranks are rounded in another order.
  bool deterministic = false;
  /// What `automatic` reckons with; else assumed_machines().
  std::optional<Machines> machines{};
};

/// What a call took.
struct Run : AttentionRun {
  Scheme scheme = Scheme::gather;
  std::int64_t bytes_sent = 0;  ///< by this rank
};

struct Result : AttentionResult {
  Scheme scheme = Scheme::gather;
  std::int64_t bytes_sent = 0;  ///< by this rank
};

struct Gradients : AttentionGradients {
  Scheme scheme = Scheme::gather;
  std::int64_t bytes_sent = 0;  ///< by this rank
};

/// query [B, H, rows of this rank, D], key [B, Hkv, keys of this rank, D], value [B, Hkv, keys of this rank,
/// Dv], as attention() takes them: rows and keys in rising order of their positions. Of the options, mask and
/// bias have this rank's rows and all keys; kv_lengths, segments and masks in O(L) memory are those of the
/// whole. weights and scores are [B, H, rows of this rank, Lk]. Throws Error (invalid_argument) on all ranks
/// where the call is wrong on one, where ranks disagree about it, and where the scheme cannot give a result.
/// MPI must be initialised; one thread at a time may call with ranks of the same process.
[[nodiscard]] HEED_API Result attention(MPI_Comm comm, const TensorView& query, const TensorView& key,
                                        const TensorView& value, const Layout& layout,
                                        const AttentionOptions& options = {}, const Choice& choice = {});

/// The same into memory of the caller, as attention_into(). All ranks give views for the same results.
HEED_API Run attention_into(MPI_Comm comm, const TensorView& query, const TensorView& key,
                            const TensorView& value, const Layout& layout, const AttentionOptions& options,
                            const AttentionOutputs& outputs, const Choice& choice = {});

/// `inputs` are this rank's rows of the whole call's, and its keys; `output` and `lse` what attention() gave.
/// The gradients by query, key and value are where those are. Bias and sinks: what a rank's rows of a bias
/// have of their own; what ranks share is the sum over all of them, on every rank. Throws as attention().
[[nodiscard]] HEED_API Gradients attention_backward(MPI_Comm comm, const AttentionBackwardInputs& inputs,
                                                    const Layout& layout,
                                                    const AttentionOptions& options = {},
                                                    const GradientRequest& request = {},
                                                    const Choice& choice = {});

/// The same into memory of the caller. All ranks give views for the same gradients.
HEED_API Run attention_backward_into(MPI_Comm comm, const AttentionBackwardInputs& inputs,
                                     const Layout& layout, const AttentionOptions& options,
                                     const AttentionGradientViews& gradients, const Choice& choice = {});

}  // namespace heed::distributed
