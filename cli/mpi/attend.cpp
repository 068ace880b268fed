// heed attend over ranks: each rank reads its shards, computes its rows, and writes them into one shared
// file.
#include <memory>
#include <optional>

#include "attend_backend.hpp"
#include "attend_inputs.hpp"
#include "heed/distributed/attention.hpp"
#include "heed/distributed/plan.hpp"
#include "heed/error.hpp"
#include "heed/io/shards.hpp"
#include "json.hpp"
#include "machine.hpp"
#include "mpi/commands.hpp"
#include "mpi/session.hpp"
#include "mpi/shards.hpp"
#include "rank_options.hpp"

namespace heed::cli {
namespace {

std::int64_t size_of_axis(const Dims& shape, int from_end) {
  return shape.size() < from_end ? 1 : shape[shape.size() - from_end];
}

distributed::Results results_of(const AttentionOptions& options) {
  if (has(options.need, Need::received) || options.received_last > 0 || options.map.rows > 0)
    return distributed::Results::sums;
  for (std::size_t i = 0; i < kResultCount; ++i)
    if (const ResultEntry& entry = result_entry(i); has(options.need, entry.need) && !takes_one_pass(entry))
      return distributed::Results::weights;
  return distributed::Results::of_rows;
}

// The predicted plan; nothing if the model cannot predict the call.
std::optional<distributed::SchemePlan> plan_of(const AttendInputs& inputs, const distributed::Layout& layout,
                                               const distributed::Machines& machines,
                                               distributed::Scheme scheme, bool gradients) {
  const AttentionOptions& options = inputs.options;
  distributed::PlannedCall call;
  call.batch = size_of_axis(inputs.query_shape, 4);
  call.heads = size_of_axis(inputs.query_shape, 3);
  call.kv_heads = size_of_axis(inputs.key_shape, 3);
  call.head_dim = inputs.query_shape.back();
  call.value_dim = inputs.value_shape.back();
  call.element_bytes = static_cast<int>(size_of(inputs.query.dtype()));
  call.causal = options.causal;
  call.window = options.window;
  const std::int64_t end_offset = layout.key.length() - layout.query.length();
  call.query_offset = options.query_offset.value_or(options.align == Align::bottom_right ? end_offset : 0);
  call.gradients = gradients;
  call.results = gradients ? distributed::Results::of_rows : results_of(options);
  try {
    for (const distributed::SchemePlan& plan : distributed::plan(call, machines, layout.query, layout.key))
      if (plan.scheme == scheme && plan.possible) return plan;
  } catch (const Error&) {  // the cost model does not support these sizes
  }
  return std::nullopt;
}

class OverRanks : public AttendBackend {
 public:
  explicit OverRanks(const Session& session) : session_(session) {}

  void check(const CLI::App& /*app*/, const AttendArguments& arguments) override {
    if (arguments.plan)
      refuse_usage("--plan is given over ranks; heed plan tells what each scheme would do there");
    if (arguments.factor || !arguments.lambda.empty() || !arguments.gate.empty() ||
        !arguments.forms.grid.sizes.empty())
      refuse_usage("--differential, --gate or --grid is given over ranks; a single process is expected");
    if (!arguments.cache.empty()) refuse_usage("--cache is given over ranks; a single process is expected");
    require_files(arguments);
    machines_ = distributed::assumed_machines(session_.ranks_on_machine());
    choice_ = {arguments.over_ranks.scheme, arguments.over_ranks.deterministic, machines_};
    sharding_ = sharding_text(arguments.over_ranks, arguments.options.causal);
  }

  AttendInputs read(const AttendArguments& arguments) override {
    AttendInputs inputs;
    together(session_, [&] {
      shards_.emplace(session_, arguments);
      inputs = shards_->read();
      check_whole_call(*shards_, inputs);
      layout_ = shards_->layout();
    });
    if (inputs.options.threads == 0) inputs.options.threads = session_.default_threads();
    return inputs;
  }

  double memory() override {
    auto kilobytes = static_cast<std::int64_t>(memory_of_machine() / 1e3 / session_.ranks_on_machine());
    session_.comm().add_up({&kilobytes, 1});
    return static_cast<double>(kilobytes) * 1e3;
  }

  AttentionResult forward(const AttendInputs& inputs) override {
    inputs_ = &inputs;
    distributed::Result result;
    timed([&] {
      result = distributed::attention(session_.comm().get(), inputs.query, inputs.key, inputs.value, *layout_,
                                      inputs.options, choice_);
    });
    forward_ = took(result.scheme, result.bytes_sent);
    return result;
  }

  void forward_into(const AttendInputs& inputs, const AttentionOutputs& outputs) override {
    timed([&] {
      distributed::attention_into(session_.comm().get(), inputs.query, inputs.key, inputs.value, *layout_,
                                  inputs.options, outputs, choice_);
    });
  }

  AttentionGradients backward(const AttentionBackwardInputs& from, const AttentionOptions& options,
                              const GradientRequest& request) override {
    distributed::Gradients gradients;
    timed([&] {
      gradients = distributed::attention_backward(session_.comm().get(), from, *layout_, options, request,
                                                  backward_choice());
    });
    backward_ = took(gradients.scheme, gradients.bytes_sent);
    return gradients;
  }

  void backward_into(const AttentionBackwardInputs& from, const AttentionOptions& options,
                     const AttentionGradientViews& gradients) override {
    timed([&] {
      distributed::attention_backward_into(session_.comm().get(), from, *layout_, options, gradients,
                                           backward_choice());
    });
  }

  void write(const std::vector<ResultFile>& files) override {
    io::SharedNpyFiles shared;
    std::vector<std::string> paths(files.size());
    together(session_, [&] {
      if (session_.comm().rank() != 0) return;
      for (std::size_t i = 0; i < files.size(); ++i)
        paths[i] = shared.add(files[i].path, files[i].view.dtype(), whole_shape(files[i]));
    });
    for (std::string& path : paths) path = session_.shared(path);
    hold_temporaries(paths);
    together(session_, [&] {
      for (std::size_t i = 0; i < files.size(); ++i) write_shard(paths[i], files[i]);
    });
    // During commit(), temporary names may hold the previous files, so a signal must not remove them.
    hold_temporaries({});
    together(session_, [&] { shared.commit(); });
  }

  void describe(Json& object) override {
    object["ranks"] = session_.comm().size();
    object["sharding"] = sharding_;
    describe_pass(object, forward_, false);
    if (backward_) describe_pass(object["backward"], *backward_, true);
  }

 private:
  struct Took {
    distributed::Scheme scheme = distributed::Scheme::gather;
    std::int64_t bytes_sent = 0;  // by all ranks
  };

  // Times the work from the start of the first rank to the end of the last.
  template <class Work>
  void timed(Work work) {
    distributed::check(MPI_Barrier(session_.comm().get()), "MPI_Barrier");
    work();
    distributed::check(MPI_Barrier(session_.comm().get()), "MPI_Barrier");
  }

  Took took(distributed::Scheme scheme, std::int64_t bytes_sent) {
    session_.comm().add_up({&bytes_sent, 1});
    return {scheme, bytes_sent};
  }

  // The schemes ring and decode compute only row results, so gradients use an automatic choice instead.
  [[nodiscard]] distributed::Choice backward_choice() const {
    distributed::Choice choice = choice_;
    if (choice.scheme == distributed::Scheme::ring || choice.scheme == distributed::Scheme::decode)
      choice.scheme = distributed::Scheme::automatic;
    return choice;
  }

  // Whether ranks hold different positions of the tensor. A bias that broadcasts has the same gradient on all
  // ranks.
  [[nodiscard]] bool is_cut(const Along& along) const {
    return along.sequence != Along::nothing && (!along.broadcasts || shards_->is_cut("--bias"));
  }

  [[nodiscard]] const Sharding& sharding_of(const Along& along) const {
    return along.sequence == Along::keys ? layout_->key : layout_->query;
  }

  [[nodiscard]] int axis_of(const ResultFile& file) const {
    return file.along.axis_of(file.view.rank(), shards_->length_first());
  }

  [[nodiscard]] Dims whole_shape(const ResultFile& file) const {
    Dims shape = file.view.shape();
    if (is_cut(file.along)) shape[shape.size() + axis_of(file)] = sharding_of(file.along).length();
    return shape;
  }

  void write_shard(const std::string& path, const ResultFile& file) const {
    const int rank = session_.comm().rank();
    if (is_cut(file.along))
      return io::write_npy_shard(path, axis_of(file), sharding_of(file.along).ranges(rank), file.view);
    if (rank == 0) io::write_npy_shard(path, file.view);
  }

  void describe_pass(Json& object, const Took& took, bool gradients) const {
    object["scheme"] = distributed::name_of(took.scheme);
    object["bytes_sent"] = took.bytes_sent;
    const auto plan = plan_of(*inputs_, *layout_, machines_, took.scheme, gradients);
    if (!plan) return;
    object["plan"] = {{"bytes_per_rank", plan->bytes_per_rank},
                      {"bytes_sent", plan->bytes_sent},
                      {"seconds", plan->seconds},
                      {"efficiency", plan->efficiency}};
  }

  const Session& session_;
  distributed::Machines machines_;
  distributed::Choice choice_;
  std::string sharding_;
  std::optional<ShardReader> shards_;
  std::optional<distributed::Layout> layout_;
  const AttendInputs* inputs_ = nullptr;
  Took forward_;
  std::optional<Took> backward_;
};

}  // namespace

Command add_attend_over(const Session& session, CLI::App& heed) {
  return add_attend_with(heed, std::make_shared<OverRanks>(session));
}

}  // namespace heed::cli
