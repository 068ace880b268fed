// options -> checks -> scheme -> results.
#include <array>
#include <string>

#include "distributed/mpi/agreement.hpp"
#include "distributed/mpi/call.hpp"
#include "distributed/mpi/schemes.hpp"
#include "heed/distributed.hpp"
#include "heed/error.hpp"
#include "heed/targets.hpp"

namespace heed::distributed {

void Work::add(const AttentionRun& one) {
  run.kernel = one.kernel;
  run.isa = one.isa;
  run.threads = std::max(run.threads, one.threads);
  run.recomputed_rows += one.recomputed_rows;
}

void Work::add(const Work& other) {
  if (!other.run.isa.empty()) add(other.run);
  bytes_sent += other.bytes_sent;
}

void add_ranks(const Communicator& comm, AttentionRun& run) {
  std::int64_t threads = run.threads;
  comm.take_largest({&threads, 1});
  comm.add_up({&run.recomputed_rows, 1});
  run.threads = static_cast<int>(threads);
}

namespace {

// The fastest by what is known here: heads that divide evenly need the fewest bytes.
Scheme chosen(const Communicator& comm, const Call& call) {
  return call.units() >= comm.size() ? Scheme::ulysses : Scheme::gather;
}

Work run(const Communicator& comm, const Call& call, Scheme scheme) {
  if (scheme == Scheme::ulysses) return ulysses(comm, call, call.outputs);
  Work work;
  const AttentionOutputs rows = row_results(call.outputs), sums = sum_results(call.outputs);
  if (is_any_given(rows)) work.add(gather(comm, call, rows));
  if (is_any_given(sums)) work.add(ulysses(comm, call, sums));
  return work;
}

Tensor memory_for(const ResultEntry& entry, const Given& given, const Layout& layout, int rank) {
  const TensorView& query = given.query;
  const AttentionOptions& options = given.options;
  Dims shape{};
  for (int axis = 0; axis + 2 < query.rank(); ++axis) shape.push_back(query.size(axis));
  switch (entry.shape) {
    case ResultShape::output:
      shape.push_back(query.size(-2));
      shape.push_back(given.value.size(-1));
      break;
    case ResultShape::pair:
      shape.push_back(query.size(-2));
      shape.push_back(layout.key.length());
      break;
    case ResultShape::row:
      shape.push_back(query.size(-2));
      break;
    case ResultShape::top_k:
      shape.push_back(query.size(-2));
      shape.push_back(options.top_k);
      break;
    case ResultShape::key:
    case ResultShape::key_last:
      shape.push_back(layout.key.rows(rank));
      break;
    case ResultShape::map:
      shape.push_back(options.map.rows);
      shape.push_back(options.map.columns);
      break;
  }
  const DType summary = query.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (entry.type == ResultType::index) return Tensor(shape, DType::i64);
  return Tensor(shape,
                entry.type == ResultType::output ? options.output_dtype.value_or(query.dtype()) : summary);
}

void allocate(const Communicator& comm, const Given& given, ResultSet<Tensor>& results) {
  agree(comm, [&] {
    for (const TensorView* tensor : {&given.query, &given.key, &given.value})
      if (tensor->rank() < 2 || tensor->rank() > 4)
        throw Error(
            ErrorCode::invalid_argument,
            "a tensor of the call has shape " + to_string(tensor->shape()) + "; 2 to 4 axes are expected");
    if (given.layout.key.ranks() != comm.size())
      throw Error(ErrorCode::invalid_argument, "layout.key has " + std::to_string(given.layout.key.ranks()) +
                                                   " ranks; the communicator's " +
                                                   std::to_string(comm.size()) + " are expected");
    if (given.options.top_k < 0 || given.options.map.rows < 0 || given.options.map.columns < 0)
      throw Error(ErrorCode::invalid_argument, "top_k or map is negative; 0 (off) or more is expected");
    for (std::size_t i = 0; i < kResultCount; ++i)
      if (is_asked_for(result_entry(i), given.options))
        result(results, i) = memory_for(result_entry(i), given, given.layout, comm.rank());
  });
}

Run attention_over(const Communicator& comm, const Given& given, const AttentionOutputs& outputs,
                   const Choice& choice) {
  const Call call = checked_call(comm, given, outputs);
  Run done;
  done.scheme = choice.scheme == Scheme::automatic ? chosen(comm, call) : choice.scheme;
  Work work = run(comm, call, done.scheme);
  add_ranks(comm, work.run);
  static_cast<AttentionRun&>(done) = work.run;
  done.bytes_sent = work.bytes_sent;
  return done;
}

}  // namespace

Result attention(MPI_Comm comm, const TensorView& query, const TensorView& key, const TensorView& value,
                 const Layout& layout, const AttentionOptions& options, const Choice& choice) {
  const Communicator own(comm);
  const Given given{query, key, value, layout, options};
  Result result_set;
  allocate(own, given, result_set);
  AttentionOutputs outputs;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (is_asked_for(result_entry(i), options))
      result(outputs, i) = result<Tensor>(result_set, i).mutable_view();
  const Run run = attention_over(own, given, outputs, choice);
  result_set.kernel = run.kernel;
  result_set.isa = run.isa;
  result_set.threads = run.threads;
  result_set.recomputed_rows = run.recomputed_rows;
  result_set.scheme = run.scheme;
  result_set.bytes_sent = run.bytes_sent;
  return result_set;
}

Run attention_into(MPI_Comm comm, const TensorView& query, const TensorView& key, const TensorView& value,
                   const Layout& layout, const AttentionOptions& options, const AttentionOutputs& outputs,
                   const Choice& choice) {
  const Communicator own(comm);
  return attention_over(own, {query, key, value, layout, options}, outputs, choice);
}

}  // namespace heed::distributed
