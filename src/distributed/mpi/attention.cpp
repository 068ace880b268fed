// options -> checks -> scheme -> results.

#include "attention/execute/run.hpp"
#include "core/message.hpp"
#include "distributed/mpi/agreement.hpp"
#include "distributed/mpi/call.hpp"
#include "distributed/mpi/choose.hpp"
#include "distributed/mpi/own_calls.hpp"
#include "distributed/mpi/schemes.hpp"
#include "heed/attention/targets.hpp"

namespace heed::distributed {

void Work::add(const AttentionRun& one) { add(Work{one.threads, one.recomputed_rows}); }

void Work::add(const Work& other) {
  threads = std::max(threads, other.threads);
  recomputed_rows += other.recomputed_rows;
  bytes_sent += other.bytes_sent;
}

Run run_of(const Communicator& comm, const Call& call, Scheme scheme, const Work& work) {
  Run run{call.target, scheme, work.bytes_sent};
  std::int64_t threads = work.threads;
  comm.take_largest({&threads, 1});
  run.threads = static_cast<int>(threads);
  run.recomputed_rows = work.recomputed_rows;
  comm.add_up({&run.recomputed_rows, 1});
  return run;
}

namespace {

Scheme chosen(const Communicator& comm, const Call& call, const Choice& choice) {
  if (choice.scheme != Scheme::automatic) return choice.scheme;
  // Sums over rows are computed by heads, whatever the rest does.
  if (is_any_given(sum_results(call.outputs))) return Scheme::ulysses;
  if (choice.deterministic && call.options.sparse_mask.may_be_gathered())
    return choose_scheme(comm, call, choice, false, {Scheme::gather, Scheme::ulysses}, Scheme::gather);
  return choose_scheme(comm, call, choice, false,
                       {Scheme::ring, Scheme::gather, Scheme::ulysses, Scheme::decode}, Scheme::gather);
}

Work run_rows(const Communicator& comm, const Call& call, Scheme scheme, const AttentionOutputs& rows) {
  switch (scheme) {
    case Scheme::ring:
      return ring(comm, call, rows);
    case Scheme::decode:
      return decode(comm, call, rows);
    default:
      return gather(comm, call, rows);
  }
}

Work run(const Communicator& comm, const Call& call, Scheme scheme) {
  if (scheme == Scheme::ulysses) return ulysses(comm, call, call.outputs);
  Work work;
  const AttentionOutputs rows = row_results(call.outputs), sums = sum_results(call.outputs);
  if (is_any_given(rows)) work.add(run_rows(comm, call, scheme, rows));
  if (is_any_given(sums)) work.add(ulysses(comm, call, sums));
  return work;
}

// Checks that ring and decode need not return all weights of a row, which they never have at once.
void check_scheme(const Call& call, Scheme scheme) {
  if (scheme != Scheme::ring && scheme != Scheme::decode) return;
  for (const auto& [entry, member] : kResults<MutableTensorView>)
    if (has_rows(entry.shape) && !takes_one_pass(entry) && (call.outputs.*member).data() != nullptr)
      detail::refuse(entry.path, " is requested with scheme ", name_of(scheme),
                     ", which never has all weights of a row; gather or ulysses is expected");
}

Tensor memory_for(const ResultEntry& entry, const Given& given, const Layout& layout, int rank) {
  const TensorView& query = given.query;
  const AttentionOptions& options = given.options;
  Dims shape{};
  for (int axis = 0; axis + 2 < query.rank(); ++axis) shape.push_back(query.size(axis));
  if (has_rows(entry.shape)) shape.push_back(query.size(-2));
  switch (entry.shape) {
    case ResultShape::output:
      shape.push_back(given.value.size(-1));
      break;
    case ResultShape::pair:
      shape.push_back(layout.key.length());
      break;
    case ResultShape::row:
      break;
    case ResultShape::top_k:
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
    check_shards(comm, given);
    if (given.options.top_k < 0 || given.options.map.rows < 0 || given.options.map.columns < 0)
      detail::refuse("top_k or map is negative; 0 (off) or more is expected");
    for (std::size_t i = 0; i < kResultCount; ++i)
      if (is_asked_for(result_entry(i), given.options))
        result(results, i) = memory_for(result_entry(i), given, given.layout, comm.rank());
  });
}

Run attention_over(const Communicator& comm, const Given& given, const AttentionOutputs& outputs,
                   const Choice& choice) {
  const Call call = checked_call(comm, given, outputs);
  agree_on_choice(comm, choice);
  Scheme scheme = chosen(comm, call, choice);
  // With a map, packed sequences of all lengths take one kernel, and a scheme over rows would not have its
  // bits.
  if (call.outputs.map.data() != nullptr && call.options.query_segments) scheme = Scheme::ulysses;
  check_scheme(call, scheme);
  check_targets(comm, call, choice.deterministic || scheme == Scheme::decode);
  if (choice.deterministic)
    check_bits(call, scheme == Scheme::ring || scheme == Scheme::decode, "scheme gather or ulysses");
  return run_of(comm, call, scheme, run(comm, call, scheme));
}

}  // namespace

Result attention(const Communicator& comm, const TensorView& query, const TensorView& key,
                 const TensorView& value, const Layout& layout, const AttentionOptions& options,
                 const Choice& choice) {
  const Given given{query, key, value, layout, options};
  Result result_set;
  allocate(comm, given, result_set);
  AttentionOutputs outputs;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (is_asked_for(result_entry(i), options))
      result(outputs, i) = result<Tensor>(result_set, i).mutable_view();
  const Run run = attention_over(comm, given, outputs, choice);
  detail::tell(run, result_set);
  result_set.scheme = run.scheme;
  result_set.bytes_sent = run.bytes_sent;
  return result_set;
}

Run attention_into(const Communicator& comm, const TensorView& query, const TensorView& key,
                   const TensorView& value, const Layout& layout, const AttentionOptions& options,
                   const AttentionOutputs& outputs, const Choice& choice) {
  return attention_over(comm, {query, key, value, layout, options}, outputs, choice);
}

Result attention(MPI_Comm comm, const TensorView& query, const TensorView& key, const TensorView& value,
                 const Layout& layout, const AttentionOptions& options, const Choice& choice) {
  return attention(Communicator(comm), query, key, value, layout, options, choice);
}

Run attention_into(MPI_Comm comm, const TensorView& query, const TensorView& key, const TensorView& value,
                   const Layout& layout, const AttentionOptions& options, const AttentionOutputs& outputs,
                   const Choice& choice) {
  return attention_into(Communicator(comm), query, key, value, layout, options, outputs, choice);
}

}  // namespace heed::distributed
