// heed_attention and heed_attention_backward over the ranks of an MPI communicator, for C (libheed_mpi). What
// each computes is written in heed/distributed.hpp, how in docs/distributed.md.
//
//   heed_sharding* positions;
//   heed_sharding_zigzag(length, ranks, &positions);
//   heed_mpi_layout layout;
//   heed_mpi_layout_init(&layout);
//   layout.query = layout.key = positions;
//   ...                                  // q, k, v, out: the rows of this rank, heed_sharding_rows() of them
//   if (heed_mpi_attention(MPI_COMM_WORLD, &q, &k, &v, &layout, &options, &outputs, NULL, NULL) != HEED_OK)
//     puts(heed_last_error());
//
// Every rank makes the same call. A call that is wrong on one rank fails on all of them, before any tensor
// travels; a rank that runs out of memory later fails alone, and the others wait for it: end them by
// MPI_Abort.
#ifndef HEED_HEED_MPI_H_
#define HEED_HEED_MPI_H_

#include <mpi.h>

#include "heed/heed.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum heed_mpi_scheme {
  HEED_MPI_AUTOMATIC = 0,
  HEED_MPI_RING = 1,
  HEED_MPI_GATHER = 2,
  HEED_MPI_ULYSSES = 3,
  HEED_MPI_DECODE = 4
} heed_mpi_scheme;

/// Which rank has which part of the call. Made by heed_mpi_layout_init, then filled in.
typedef struct heed_mpi_layout {
  size_t struct_size;          ///< sizeof(heed_mpi_layout)
  const heed_sharding* query;  ///< its rows, of Lq
  const heed_sharding* key;    ///< keys and values, of Lk
  int64_t batch;               ///< where batch entries are cut besides: of the whole call; 0: those of query
  int64_t heads;               ///< where heads are cut besides: query heads of the whole call
  int64_t batch_begin;         ///< the first of this communicator
  int64_t head_begin;
} heed_mpi_layout;

/// How to compute; the same on all ranks. Made by heed_mpi_choice_init.
typedef struct heed_mpi_choice {
  size_t struct_size;     ///< sizeof(heed_mpi_choice)
  int32_t scheme;         ///< a heed_mpi_scheme
  int32_t deterministic;  ///< 1: refuses what need not have the bits of one process
  int32_t has_machines;   ///< 1: HEED_MPI_AUTOMATIC reckons with what follows (heed/distributed_plan.hpp)
  int32_t ranks_per_node;
  double flops_per_second;
  double bytes_per_second;
  double node_bytes_per_second;
  double latency_seconds;
} heed_mpi_choice;

/// What a call took, besides a heed_attention_run.
typedef struct heed_mpi_run {
  int32_t scheme;      ///< a heed_mpi_scheme
  int32_t reserved;    ///< 0
  int64_t bytes_sent;  ///< by this rank
} heed_mpi_run;

/// As those of heed.h.
HEED_C_API heed_status heed_mpi_layout_init_sized(heed_mpi_layout* layout, size_t struct_size);
HEED_C_API heed_status heed_mpi_choice_init_sized(heed_mpi_choice* choice, size_t struct_size);

static inline heed_status heed_mpi_layout_init(heed_mpi_layout* layout) {
  return heed_mpi_layout_init_sized(layout, sizeof(heed_mpi_layout));
}
static inline heed_status heed_mpi_choice_init(heed_mpi_choice* choice) {
  return heed_mpi_choice_init_sized(choice, sizeof(heed_mpi_choice));
}

/// query [B, H, rows of this rank, D], key [B, Hkv, keys of this rank, D], value [B, Hkv, keys of this rank,
/// Dv]. Outputs of rows are where the rows are, those of keys where the keys are; weights and scores are
/// [B, H, rows of this rank, Lk], and the map is on every rank. Mask and bias have this rank's rows and all
/// keys. All ranks ask for the same outputs, also those without rows. `options`, `choice` and `run` may be
/// NULL: the defaults, and nowhere.
HEED_C_API heed_status heed_mpi_attention(MPI_Comm comm, const heed_tensor* query, const heed_tensor* key,
                                          const heed_tensor* value, const heed_mpi_layout* layout,
                                          const heed_attention_options* options,
                                          const heed_attention_outputs* outputs,
                                          const heed_mpi_choice* choice, heed_mpi_run* run);

/// `inputs` are this rank's rows and keys of the whole call's; gradients by query, key and value are where
/// those are. Of a bias, what this rank's rows have of their own; what ranks share of it, and sinks, are sums
/// over all ranks, on every rank.
HEED_C_API heed_status heed_mpi_attention_backward(MPI_Comm comm,
                                                   const heed_attention_backward_inputs* inputs,
                                                   const heed_mpi_layout* layout,
                                                   const heed_attention_options* options,
                                                   const heed_attention_gradients* gradients,
                                                   const heed_mpi_choice* choice, heed_mpi_run* run);

#ifdef __cplusplus
}
#endif

#endif  // HEED_HEED_MPI_H_
