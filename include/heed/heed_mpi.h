// heed_attention and heed_attention_backward over the ranks of an MPI communicator, for C (libheed_mpi).
// heed/distributed/attention.hpp explains the calls, docs/distributed.md the algorithms.
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
// Every rank makes the same call. A call that is wrong on one rank fails on all, before any tensor is sent. A
// rank that runs out of memory later fails alone while the others wait for it; end them with MPI_Abort.
#ifndef HEED_HEED_MPI_H_
#define HEED_HEED_MPI_H_

#include <mpi.h>

#include "heed/heed.h"

#ifdef __cplusplus
extern "C" {
#endif

/// How the ranks share a call: heed::distributed::Scheme.
typedef enum heed_mpi_scheme {
  HEED_MPI_AUTOMATIC = 0,
  HEED_MPI_RING = 1,
  HEED_MPI_GATHER = 2,
  HEED_MPI_ULYSSES = 3,
  HEED_MPI_DECODE = 4
} heed_mpi_scheme;

/// The parts of the call on each rank. Fill with heed_mpi_layout_init, then set the members.
typedef struct heed_mpi_layout {
  size_t struct_size;          ///< sizeof(heed_mpi_layout)
  const heed_sharding* query;  ///< query rows, of Lq
  const heed_sharding* key;    ///< rows of key and value, of Lk
  int64_t batch;        ///< batch entries of the whole call, if these are split too; 0: as many as query
  int64_t heads;        ///< query heads of the whole call, if heads are split too; 0: as many as query
  int64_t batch_begin;  ///< first batch entry of this communicator
  int64_t head_begin;
} heed_mpi_layout;

/// How to compute; must be the same on all ranks. Fill with heed_mpi_choice_init.
typedef struct heed_mpi_choice {
  size_t struct_size;     ///< sizeof(heed_mpi_choice)
  int32_t scheme;         ///< a heed_mpi_scheme
  int32_t deterministic;  ///< 1: refuses calls that may differ in bits from a single process
  int32_t has_machines;   ///< 1: HEED_MPI_AUTOMATIC uses the members below (heed/distributed/plan.hpp)
  int32_t ranks_per_node;
  double flops_per_second;
  double bytes_per_second;
  double node_bytes_per_second;
  double latency_seconds;
} heed_mpi_choice;

/// How a call was run, in addition to heed_attention_run.
typedef struct heed_mpi_run {
  int32_t scheme;      ///< a heed_mpi_scheme
  int32_t reserved;    ///< 0
  int64_t bytes_sent;  ///< bytes that this rank sent
} heed_mpi_run;

/// These write the defaults, like the init functions of heed.h.
HEED_C_API heed_status heed_mpi_layout_init_sized(heed_mpi_layout* layout, size_t struct_size);
HEED_C_API heed_status heed_mpi_choice_init_sized(heed_mpi_choice* choice, size_t struct_size);

static inline heed_status heed_mpi_layout_init(heed_mpi_layout* layout) {
  return heed_mpi_layout_init_sized(layout, sizeof(heed_mpi_layout));
}
static inline heed_status heed_mpi_choice_init(heed_mpi_choice* choice) {
  return heed_mpi_choice_init_sized(choice, sizeof(heed_mpi_choice));
}

/// query [B, H, rows of this rank, D], key [B, Hkv, keys of this rank, D], value [B, Hkv, keys of this rank,
/// Dv]. Row results stay with the rows, key results with the keys; weights and scores are [B, H, rows of this
/// rank, Lk]; the map is on every rank. Mask and bias have this rank's rows and all keys. A decay has all
/// positions. All ranks request the same outputs, also ranks without rows. `options` and `choice` may be NULL
/// for the defaults; `run` may be NULL.
HEED_C_API heed_status heed_mpi_attention(MPI_Comm comm, const heed_tensor* query, const heed_tensor* key,
                                          const heed_tensor* value, const heed_mpi_layout* layout,
                                          const heed_attention_options* options,
                                          const heed_attention_outputs* outputs,
                                          const heed_mpi_choice* choice, heed_mpi_run* run);

/// `inputs` are this rank's rows and keys of the whole call. Gradients by query, key and value are on the
/// rank of their rows. Gradients by bias, sinks and decay: entries of this rank's rows alone are on this
/// rank; shared entries are summed over all ranks, on every rank.
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
