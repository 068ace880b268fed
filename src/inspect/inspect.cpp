// make_report(): one attention call with all requested results, then the results that need single weights.
#include "heed/inspect/reports.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <new>

#include "attention/check/checks.hpp"
#include "attention/check/results.hpp"
#include "attention/execute/run.hpp"
#include "core/message.hpp"
#include "inspect/cost.hpp"
#include "inspect/describe.hpp"
#include "inspect/heads.hpp"
#include "inspect/part.hpp"
#include "inspect/rows.hpp"
#include "inspect/single_weights.hpp"
#include "inspect/tile.hpp"
#include "inspect/token_sets.hpp"

namespace heed {
namespace detail {
namespace {

using Clock = std::chrono::steady_clock;

// Shortest plain forward, in seconds, for which other costs are given as multiples of it.
constexpr double kComparable = 1e-3;

double bytes_of(const Tensor& tensor) {
  return static_cast<double>(tensor.count()) * static_cast<double>(size_of(tensor.dtype()));
}

// Forwards the progress of kernels in steps of a thousandth, one call at a time.
class Progress {
 public:
  explicit Progress(const ReportOptions& wanted) : tell_(wanted.progress) {}

  void operator()(std::string_view what, double share) {
    const std::lock_guard lock(mutex_);
    if (what == "forward" && share >= 1) forward_end_ = Clock::now();
    has_weights_pass_ = has_weights_pass_ || what == "weights pass";
    const bool same = what == last_what_;
    if (!tell_ || (same && share < 1 && share < last_share_ + 0.001)) return;
    last_what_ = what;
    last_share_ = same ? std::max(share, last_share_) : share;  // threads may report out of order
    tell_(what, last_share_);
  }

  [[nodiscard]] Clock::time_point forward_end() const { return forward_end_; }
  [[nodiscard]] bool has_weights_pass() const { return has_weights_pass_; }

 private:
  std::function<void(std::string_view, double)> tell_;
  std::mutex mutex_;
  std::string last_what_;
  double last_share_ = 0;
  Clock::time_point forward_end_;
  bool has_weights_pass_ = false;
};

class ReportBuilder {
 public:
  ReportBuilder(const TensorView& query, const TensorView& key, const TensorView& value,
                const AttentionOptions& options, const ReportOptions& wanted)
      : wanted_(wanted), options_(options), progress_(wanted) {
    options_.need = Need::none;
    options_.top_k = options_.received_last = 0;
    options_.map = {};
    (void)check_call(query, key, value, options_);  // messages should name the given shapes
    query_ = lifted(query);
    key_ = lifted(key);
    value_ = lifted(value);
    request_results();
    problem_ = check_call(query_, key_, value_, options_);
    check_wanted();
  }

  AttentionReport build() {
    describe_call(problem_, options_, wanted_, report_);
    compute();
    if (!wanted_.rows.empty()) return std::move(report_);
    add_tiles();
    add_shares();
    timed("names of heads", 0, [&] { fill_summaries(problem_, wanted_.most_received, sets_, report_); });
    sets_ = {};
    report_.map =
        result_.map.rank() == 4 && result_.map.count() > 0 ? pool_map(result_.map) : std::vector<Tensor>{};
    if (wanted_.cost) add_full_matrix();
    return std::move(report_);
  }

 private:
  void request_results() {
    const std::int64_t rows = query_.size(2);
    const std::int64_t keys = key_.size(2);
    options_.need = Need::lse | Need::max_score | Need::entropy | Need::distance;
    options_.top_k = wanted_.top_k;
    if (!wanted_.rows.empty()) return;
    if (wanted_.received) options_.need |= Need::received;
    if (rows > 0 && keys > 0 && rows <= wanted_.full_weights_cells / keys) options_.need |= Need::weights;
    options_.map = {std::min(wanted_.map.rows, rows), std::min(wanted_.map.columns, keys)};
    if (options_.map.rows <= 0 || options_.map.columns <= 0) options_.map = {};
  }

  void check_wanted() {
    check_tokens(wanted_, problem_.query_length, "query", problem_.key_length, "key");
    if (wanted_.map.rows < 0 || wanted_.map.columns < 0)
      refuse("map is ", wanted_.map.rows, " x ", wanted_.map.columns,
             "; sizes of 0 (off) or more are expected");
    if (wanted_.most_received < 0)
      refuse("most_received is ", wanted_.most_received, "; 0 or more keys are expected");
    if (wanted_.attend && !wanted_.rows.empty())
      refuse("attend is given together with rows; at most one of them is expected");
    for (const TileRange& range : wanted_.tiles) check_tile(problem_, range);
    std::int64_t least = 0;
    for (const std::int64_t row : wanted_.rows) {
      if (row < least || row >= problem_.query_length)
        refuse("rows holds ", row, "; ascending rows of ", least, " to ", problem_.query_length - 1,
               " are expected there");
      least = row + 1;
    }
  }

  void compute() {
    if (wanted_.attend) {
      result_ = wanted_.attend(options_);
      bind_outputs(views_of(result_), options_, 4, problem_);
      take_results(result_.kernel, result_.isa);
      return;
    }
    // Dropout depends on the row number, so then the rows must keep their places.
    const bool alone = !wanted_.rows.empty() && options_.dropout.probability == 0;
    CallOfRows some;
    if (alone) some = call_of_rows(problem_, wanted_.rows);
    Problem& problem = alone ? some.problem : problem_;
    result_ = allocate_results(problem, options_, 4);
    bind_outputs(views_of(result_), options_, 4, problem);
    const AttentionRun done = run(problem);
    if (!wanted_.rows.empty()) put_in_place(alone);
    take_results(done.kernel, done.isa);
  }

  AttentionRun run(Problem& problem) {
    ForwardSeconds forward;
    if (wanted_.cost) forward = time_forward(problem, options_.kernel);
    problem.progress = [this](std::string_view what, double share) { progress_(what, share); };
    const Clock::time_point begin = Clock::now();
    const AttentionRun done = detail::run(problem, options_.kernel);
    const Clock::time_point end = Clock::now();
    const bool split = progress_.forward_end() > begin;
    const std::chrono::duration<double> first = (split ? progress_.forward_end() : end) - begin;
    const std::chrono::duration<double> second = split ? end - progress_.forward_end() : end - end;
    if (forward.estimated) forward = forward.shares_of(first.count());
    if (wanted_.cost) add_forward_costs(forward, second.count());
    return done;
  }

  // Expands results of the requested rows to the whole call. They are stored side by side, or (if not
  // `alone`) in their places. All other rows become NaN, or -1 for key indices.
  void put_in_place(bool alone) {
    for (std::size_t i = 0; i < kResultCount; ++i) {
      Tensor* tensor = &heed::result<Tensor>(result_, i);
      if (!has_rows(result_entry(i).shape) || tensor->rank() < 3) continue;  // not requested
      Dims shape = tensor->shape();
      shape[2] = problem_.query_length;
      Tensor whole(shape, tensor->dtype());
      const Tensor none = Tensor::from<double>({tensor->dtype() == DType::i64 ? -1 : std::nan("")}, {1});
      if (whole.count() > 0) copy(none.view().expand(shape), whole);
      for (std::size_t k = 0; k < wanted_.rows.size(); ++k) {
        const std::int64_t from = alone ? static_cast<std::int64_t>(k) : wanted_.rows[k];
        copy(tensor->view().narrow(2, from, 1), whole.mutable_view().narrow(2, wanted_.rows[k], 1));
      }
      *tensor = std::move(whole);
    }
  }

  void take_results(Kernel kernel, std::string_view isa) {
    report_.kernel = kernel == Kernel::fused ? "fused" : "reference";
    report_.isa = isa;
    report_.output = std::move(result_.output);
    report_.lse = std::move(result_.lse);
    report_.max_score = std::move(result_.max_score);
    report_.entropy = std::move(result_.entropy);
    report_.distance = std::move(result_.distance);
    report_.top_k_index = std::move(result_.top_k_index);
    report_.top_k_weight = std::move(result_.top_k_weight);
    report_.received = std::move(result_.received);
    report_.weights.weights = std::move(result_.weights);
    fill_max_weight();
  }

  // Takes the first of the top k if available, because it avoids rounding by two logarithms.
  void fill_max_weight() {
    report_.max_weight = Tensor::copy_of(report_.max_score, DType::f64);
    const auto weights = report_.max_weight.values<double>();
    if (wanted_.top_k > 0) {
      const Tensor top = Tensor::copy_of(report_.top_k_weight.view().select(3, 0), DType::f64);
      std::copy(top.values<double>().begin(), top.values<double>().end(), weights.begin());
    } else {
      const Tensor wide = Tensor::copy_of(report_.lse, DType::f64);
      const auto lse = wide.values<double>();
      for (std::size_t i = 0; i < weights.size(); ++i)
        weights[i] = weights[i] == -kInfinity ? 0 : std::exp(weights[i] - lse[i]);
    }
    if (report_.lse.dtype() != DType::f64)
      report_.max_weight = Tensor::copy_of(report_.max_weight, report_.lse.dtype());
  }

  void add_tiles() {
    const Operand lse = lse_operand(problem_, report_.lse, 4);
    if (has(options_.need, Need::weights)) {
      report_.weights.range = {0, report_.queries, 0, report_.keys};
      report_.weights.allowed = allowed_of(problem_);
    }
    if (wanted_.tiles.empty()) return;
    double bytes = 0;
    timed("tiles", 0, [&] {
      for (const TileRange& range : wanted_.tiles) {
        report_.tiles.push_back(make_tile(problem_, lse, range));
        bytes += bytes_of(report_.tiles.back().weights);
      }
    });
    if (wanted_.cost) report_.cost.back().bytes = bytes;
  }

  void add_shares() {
    timed("first, self, previous, next", 4 * bytes_of(report_.lse), [&] { fill_shares(problem_, report_); });
    if (!tells_copies(report_)) return;
    timed("copies, separators", bytes_of(report_.lse), [&] { sets_ = fill_token_sets(problem_, report_); });
  }

  template <class Work>
  void timed(const char* what, double bytes, Work work) {
    const Clock::time_point begin = Clock::now();
    work();
    const std::chrono::duration<double> taken = Clock::now() - begin;
    if (wanted_.cost) add_line(what, taken.count(), bytes, false);
  }

  void add_line(std::string what, double seconds, double bytes, bool estimated) {
    const double plain = report_.cost.empty() ? seconds : report_.cost.front().seconds;
    const double times = plain >= kComparable ? seconds / plain : std::nan("");
    report_.cost.push_back({std::move(what), seconds, times, bytes, estimated});
  }

  void add_forward_costs(const ForwardSeconds& forward, double second) {
    add_line("plain forward", forward.plain, bytes_of(result_.output), forward.estimated);
    add_line("lse, max, entropy, distance", forward.rows, 4 * bytes_of(result_.lse), forward.estimated);
    if (wanted_.top_k > 0)
      add_line("top-" + std::to_string(wanted_.top_k), forward.top_k,
               bytes_of(result_.top_k_index) + bytes_of(result_.top_k_weight), forward.estimated);
    if (options_.map.rows > 0)
      add_line("map " + std::to_string(options_.map.rows) + " x " + std::to_string(options_.map.columns),
               forward.map, bytes_of(result_.map), forward.estimated);
    std::string what = wanted_.received ? "received" : "";
    if (has(options_.need, Need::weights)) what += what.empty() ? "weights" : ", weights";
    if (what.empty()) return;
    const bool within = !progress_.has_weights_pass();
    if (within) what += " (within the one pass)";
    add_line(what, within ? std::nan("") : second, bytes_of(result_.received) + bytes_of(result_.weights),
             false);
  }

  void add_full_matrix() {
    const double cells = static_cast<double>(report_.batch * report_.heads) *
                         static_cast<double>(report_.queries) * static_cast<double>(report_.keys);
    add_line("full matrix (not made)", 0, cells * static_cast<double>(size_of(report_.lse.dtype())), true);
    report_.cost.back().made = false;
    if (has(options_.need, Need::weights)) report_.cost.pop_back();
  }

  const ReportOptions& wanted_;
  AttentionOptions options_;
  TensorView query_, key_, value_;
  Problem problem_;
  AttentionResult result_;
  AttentionReport report_;
  TokenSets sets_;  // kept until heads are named
  Progress progress_;
};

}  // namespace
}  // namespace detail

AttentionReport make_report(const TensorView& query, const TensorView& key, const TensorView& value,
                            const AttentionOptions& options, const ReportOptions& wanted) {
  try {
    return detail::ReportBuilder(query, key, value, options, wanted).build();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "not enough memory for the workspace of a report");
  }
}

}  // namespace heed
