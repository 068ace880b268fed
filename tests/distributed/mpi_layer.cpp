#include "mpi_layer.hpp"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace heed::test::mpi_layer {

using Clock = std::chrono::steady_clock;

// A held send, kept as a persistent request until it has started and ended.
struct HeldSend {
  MPI_Request request;
  int looks;  // polls left before it starts; -1: started
  int to, tag;
  MPI_Comm comm;
};

struct State {
  bool shuffles = false;
  std::mt19937_64 engine;
  double delay_seconds = 0;
  std::vector<HeldSend> sends;
  std::map<MPI_Request, Clock::time_point> due;  // due times of delayed receives
  Left left;
  std::int64_t held = 0;
};

static State& state() {
  static State state;
  return state;
}

static void start(HeldSend& send) {
  PMPI_Start(&send.request);
  send.looks = -1;
}

// MPI keeps the order of messages with one tag to one rank.
static bool waits_for_another(const HeldSend& send) {
  for (const HeldSend& other : state().sends) {
    if (&other == &send) return false;
    if (other.looks >= 0 && other.to == send.to && other.tag == send.tag && other.comm == send.comm)
      return true;
  }
  return false;
}

static void look_at_sends() {
  for (HeldSend& send : state().sends) {
    if (send.looks > 0) --send.looks;
    if (send.looks == 0 && !waits_for_another(send)) start(send);
  }
}

// Starts all held sends, before a call that waits for other ranks.
static void start_all() {
  for (HeldSend& send : state().sends)
    if (send.looks >= 0) start(send);
}

static bool test_held(MPI_Request* request) {
  auto& sends = state().sends;
  const auto at = std::find_if(sends.begin(), sends.end(),
                               [&](const HeldSend& send) { return send.request == *request; });
  if (at->looks >= 0) return false;
  int done = 0;
  PMPI_Test(&at->request, &done, MPI_STATUS_IGNORE);
  if (done == 0) return false;
  PMPI_Request_free(&at->request);
  sends.erase(at);
  *request = MPI_REQUEST_NULL;
  return true;
}

static bool is_held(const MPI_Request& request) {
  const auto& sends = state().sends;
  return std::any_of(sends.begin(), sends.end(),
                     [&](const HeldSend& send) { return send.request == request; });
}

static bool test(MPI_Request* request) {
  if (*request == MPI_REQUEST_NULL) return true;
  if (is_held(*request)) {
    if (!test_held(request)) return false;
  } else {
    const auto due = state().due.find(*request);
    if (due != state().due.end() && Clock::now() < due->second) return false;
    const MPI_Request before = *request;
    int done = 0;
    PMPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (done == 0) return false;
    state().due.erase(before);
  }
  --state().left.requests;
  return true;
}

static bool test_all(int count, MPI_Request* requests) {
  look_at_sends();
  bool done = true;
  for (int i = 0; i < count; ++i) done = test(requests + i) && done;
  return done;
}

void shuffle(std::uint64_t seed) {
  state().shuffles = true;
  state().engine.seed(seed);
}
void delay(double seconds) { state().delay_seconds = seconds; }
void off() {
  state().shuffles = false;
  state().delay_seconds = 0;
}
Left left() { return state().left; }
std::int64_t held() { return state().held; }

}  // namespace heed::test::mpi_layer

// Replaces the MPI functions that heed calls.
extern "C" {

using heed::test::mpi_layer::Clock;
using heed::test::mpi_layer::state;

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  ++state().left.requests;
  if (!state().shuffles) return PMPI_Isend(data, count, type, to, tag, comm, request);
  const int code = PMPI_Send_init(data, count, type, to, tag, comm, request);
  state().sends.push_back({*request, static_cast<int>(state().engine() % 16), to, tag, comm});
  ++state().held;
  return code;
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  ++state().left.requests;
  const int code = PMPI_Irecv(data, count, type, from, tag, comm, request);
  if (state().delay_seconds > 0)
    state().due[*request] = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(state().delay_seconds));
  return code;
}

int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* /*statuses*/) {
  *done = heed::test::mpi_layer::test_all(count, requests) ? 1 : 0;
  return MPI_SUCCESS;
}

int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* /*statuses*/) {
  while (!heed::test::mpi_layer::test_all(count, requests)) sched_yield();
  return MPI_SUCCESS;
}

int MPI_Request_free(MPI_Request* request) {
  --state().left.requests;
  return PMPI_Request_free(request);
}

int MPI_Allreduce(const void* from, void* into, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  heed::test::mpi_layer::start_all();
  return PMPI_Allreduce(from, into, count, type, op, comm);
}

int MPI_Allgather(const void* from, int from_count, MPI_Datatype from_type, void* into, int into_count,
                  MPI_Datatype into_type, MPI_Comm comm) {
  heed::test::mpi_layer::start_all();
  return PMPI_Allgather(from, from_count, from_type, into, into_count, into_type, comm);
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  heed::test::mpi_layer::start_all();
  return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Type_contiguous(int count, MPI_Datatype of, MPI_Datatype* type) {
  ++state().left.types;
  return PMPI_Type_contiguous(count, of, type);
}

int MPI_Type_create_hvector(int count, int length, MPI_Aint stride, MPI_Datatype of, MPI_Datatype* type) {
  ++state().left.types;
  return PMPI_Type_create_hvector(count, length, stride, of, type);
}

int MPI_Type_create_resized(MPI_Datatype of, MPI_Aint begin, MPI_Aint extent, MPI_Datatype* type) {
  ++state().left.types;
  return PMPI_Type_create_resized(of, begin, extent, type);
}

int MPI_Type_create_hindexed(int count, const int* lengths, const MPI_Aint* places, MPI_Datatype of,
                             MPI_Datatype* type) {
  ++state().left.types;
  return PMPI_Type_create_hindexed(count, lengths, places, of, type);
}

int MPI_Type_free(MPI_Datatype* type) {
  --state().left.types;
  return PMPI_Type_free(type);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
  heed::test::mpi_layer::start_all();
  ++state().left.communicators;
  return PMPI_Comm_dup(comm, copy);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* part) {
  const int code = PMPI_Comm_split(comm, color, key, part);
  if (*part != MPI_COMM_NULL) ++state().left.communicators;
  return code;
}

int MPI_Comm_split_type(MPI_Comm comm, int kind, int key, MPI_Info info, MPI_Comm* part) {
  heed::test::mpi_layer::start_all();
  ++state().left.communicators;
  return PMPI_Comm_split_type(comm, kind, key, info, part);
}

int MPI_Comm_free(MPI_Comm* comm) {
  heed::test::mpi_layer::start_all();
  --state().left.communicators;
  return PMPI_Comm_free(comm);
}

}  // extern "C"
