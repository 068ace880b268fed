// heed look over ranks: rank 0 runs the command. When it needs results of the call, all ranks compute their
// rows and rank 0 gathers them. Rank 0 computes single rows and weights itself, from the files.
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "core/message.hpp"
#include "core/tensor/lifted.hpp"
#include "distributed/mpi/messages.hpp"
#include "heed/distributed/attention.hpp"
#include "heed/error.hpp"
#include "heed/io/shards.hpp"
#include "look/arguments.hpp"
#include "mpi/commands.hpp"
#include "mpi/shards.hpp"
#include "options.hpp"
#include "tensor_argument.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kLeastMapped = 1 << 24;  // bytes

// A message from rank 0 to the other ranks.
struct Order {
  std::int64_t compute = 0;  // 0: stop
  std::int64_t exit_code = 0;
  std::int64_t need = 0, top_k = 0, received_last = 0, map_rows = 0, map_columns = 0;

  [[nodiscard]] AttentionOptions applied_to(AttentionOptions options) const {
    options.need = static_cast<Need>(need);
    options.top_k = top_k;
    options.received_last = received_last;
    options.map = {map_rows, map_columns};
    return options;
  }
};

// Reshapes to [B * H, rows or keys, columns].
template <class View>
View in_rows(View view) {
  if (view.rank() == 3) view = view.unsqueeze(3);
  return view.reshape({view.size(0) * view.size(1), view.size(2), view.size(3)});
}

class SharedCall {
 public:
  SharedCall(const Session& session, const LookArguments& arguments)
      : session_(session),
        shards_(session, arguments.source.call),
        needs_output_(arguments.heads.page.is_checked()) {
    together(session, [&] {
      inputs_ = shards_.read();
      check_whole_call(shards_, inputs_);
      layout_ = shards_.layout();
    });
    if (inputs_.options.threads == 0) inputs_.options.threads = session.default_threads();
    const RankOptions& over = arguments.source.call.over_ranks;
    choice_ = {over.scheme, over.deterministic, distributed::assumed_machines(session.ranks_on_machine())};
  }

  // Runs rank 0's part.
  void lead(LookSource& source, const std::function<void()>& look) {
    source.read = [this](const std::string& option, const std::string& text, const Along& /*along*/) {
      return read_all(tensor_argument(option, text));
    };
    source.attend = [this](const AttentionOptions& options) {
      const Order order{1,
                        0,
                        static_cast<std::int64_t>(options.need),
                        options.top_k,
                        options.received_last,
                        options.map.rows,
                        options.map.columns};
      is_computing_ = true;
      send(order);
      AttentionResult whole = computed(order);
      is_computing_ = false;
      return whole;
    };
    std::exception_ptr failed;
    const std::optional<Failure> failure = failure_of([&] {
      try {
        look();
      } catch (...) {
        failed = std::current_exception();
        throw;
      }
    });
    // If rank 0 fails during a computation, the others fail too or are aborted.
    if (!is_computing_) send({.exit_code = failure ? failure->exit_code : 0});
    if (failed) std::rethrow_exception(failed);
  }

  // Runs the part of the other ranks.
  void follow() {
    for (;;) {
      const Order order = receive();
      if (order.compute != 0) {
        (void)computed(order);
        continue;
      }
      // Fail with rank 0's exit code; rank 0 prints the reason.
      if (order.exit_code == 2) refuse_usage("");
      if (order.exit_code != 0) throw Error(ErrorCode::internal, "");
      return;
    }
  }

 private:
  // Large tensors are memory-mapped instead of copied.
  ReadTensor read_all(const TensorArgument& argument) {
    io::TensorOnDisk& file = files_.emplace_back(argument.file, argument.name);
    const bool is_large =
        element_count(file.shape()) >= kLeastMapped / static_cast<std::int64_t>(size_of(file.dtype()));
    const std::optional<TensorView> mapped = is_large ? file.mapped() : std::nullopt;
    return {mapped ? Tensor() : read_tensor(argument), file.shape(), mapped};
  }

  void send(Order order) { share(order); }
  Order receive() {
    Order order;
    share(order);
    return order;
  }
  void share(Order& order) {
    static_assert(sizeof(Order) == 7 * sizeof(std::int64_t));
    distributed::check(MPI_Bcast(&order, 7, MPI_INT64_T, 0, session_.comm().get()), "MPI_Bcast");
  }

  AttentionResult computed(const Order& order) {
    const AttentionOptions options = order.applied_to(inputs_.options);
    const distributed::Result shard = distributed::attention(
        session_.comm().get(), heed::detail::lifted(inputs_.query), heed::detail::lifted(inputs_.key),
        heed::detail::lifted(inputs_.value), *layout_, options, choice_);
    AttentionResult whole;
    whole.kernel = shard.kernel;
    whole.isa = shard.isa;
    for (std::size_t i = 0; i < kResultCount; ++i)
      if (is_asked_for(result_entry(i), options) &&
          (needs_output_ || result_entry(i).shape != ResultShape::output))
        result<Tensor>(whole, i) = gathered(result<Tensor>(shard, i), result_entry(i).shape);
    return whole;
  }

  // Gathers a result on rank 0. The other ranks send their shards and return nothing.
  Tensor gathered(const Tensor& shard, ResultShape shape) {
    const distributed::Communicator& comm = session_.comm();
    if (shape == ResultShape::map) return comm.rank() == 0 ? Tensor::copy_of(shard) : Tensor();
    const Sharding& sharding = has_rows(shape) ? layout_->query : layout_->key;
    distributed::Messages messages(comm);
    if (comm.rank() != 0) {
      // Local ranges with the lengths of the ranges that rank 0 receives into.
      std::vector<PositionRange> rows;
      for (const PositionRange& range : sharding.ranges(comm.rank())) {
        const std::int64_t begin = rows.empty() ? 0 : rows.back().end;
        rows.push_back({begin, begin + range.end - range.begin});
      }
      messages.send(in_rows(shard.view()), rows, 0, 0);
      messages.wait();
      return {};
    }
    Dims dims = shard.shape();
    dims[2] = sharding.length();
    Tensor whole = Tensor::uninitialized(dims, shard.dtype());
    const MutableTensorView rows = in_rows(whole.mutable_view());
    for (int from = 1; from < comm.size(); ++from) messages.receive(rows, sharding.ranges(from), from, 0);
    std::int64_t row = 0;
    for (const PositionRange& range : sharding.ranges(0)) {
      const std::int64_t count = range.end - range.begin;
      copy(in_rows(shard.view()).narrow(1, row, count), rows.narrow(1, range.begin, count));
      row += count;
    }
    messages.wait();
    return whole;
  }

  const Session& session_;
  ShardReader shards_;
  bool needs_output_;
  std::vector<io::TensorOnDisk> files_;  // used on rank 0
  AttendInputs inputs_;
  std::optional<distributed::Layout> layout_;
  distributed::Choice choice_;
  bool is_computing_ = false;
};

void refuse(const Session& session, const std::string& what) {
  refuse_usage("heed look ", what, " works in one process, and mpirun started ", session.comm().size(),
               " ranks; several ranks work only with --query, --key and --value");
}

void look_over(const Session& session, const CLI::App& app, LookArguments& arguments,
               const std::function<void()>& look) {
  if (session.comm().size() == 1) return look();
  if (!arguments.source.model.empty()) refuse(session, "--model");
  if (!arguments.source.document.empty()) refuse(session, "DOC");
  for (const char* option : {"--serve", "--price"})
    if (given(app, option)) refuse(session, option);
  require_files(arguments.source.call);
  SharedCall call(session, arguments);
  if (session.comm().rank() == 0)
    call.lead(arguments.source, look);
  else
    call.follow();
}

}  // namespace

Command add_look_over(const Session& session, CLI::App& heed) {
  return add_look_with(
      heed, [&session](const CLI::App& app, LookArguments& arguments, const std::function<void()>& look) {
        look_over(session, app, arguments, look);
      });
}

}  // namespace heed::cli
